//! Where a pod's volumes can be attached.

use crate::problems::Fault;
use crate::shapes::Template;
use crate::{Objects, selectors};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec};
use k8s_openapi::api::storage::v1::StorageClass;
use plimsoll_model::names::label;
use plimsoll_model::snapshot::VolumeTopology;
use std::collections::BTreeMap;

/// The annotation that marks the default storage class.
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// CSI driver of EBS, also for volumes that were made by the code once in Kubernetes itself.
const EBS_DRIVER: &str = "ebs.csi.aws.com";
const IN_TREE_EBS: &str = "kubernetes.io/aws-ebs";

/// Claims, volumes and storage classes by name.
pub(crate) struct Volumes<'objects> {
    claims: BTreeMap<(&'objects str, &'objects str), &'objects PersistentVolumeClaim>,
    volumes: BTreeMap<&'objects str, &'objects PersistentVolume>,
    classes: BTreeMap<&'objects str, &'objects StorageClass>,
}

impl<'objects> Volumes<'objects> {
    pub(crate) fn new(objects: &'objects Objects) -> Self {
        Self {
            claims: objects
                .persistent_volume_claims
                .iter()
                .filter_map(|claim| {
                    Some(((claim.metadata.namespace.as_deref()?, claim.metadata.name.as_deref()?), claim))
                })
                .collect(),
            volumes: objects
                .persistent_volumes
                .iter()
                .filter_map(|volume| Some((volume.metadata.name.as_deref()?, volume)))
                .collect(),
            classes: objects
                .storage_classes
                .iter()
                .filter_map(|class| Some((class.metadata.name.as_deref()?, class)))
                .collect(),
        }
    }

    /// The topology of each volume that comes from a claim.
    pub(crate) fn of(&self, template: &Template<'_>) -> Result<Vec<VolumeTopology>, Fault> {
        let mut topologies = Vec::new();
        for volume in template.spec.volumes.iter().flatten() {
            if let Some(source) = &volume.persistent_volume_claim {
                topologies.push(self.claimed(template.namespace, &source.claim_name, None)?);
            } else if let Some(source) = &volume.ephemeral {
                let claim = format!("{}-{}", template.name, volume.name);
                let spec = source.volume_claim_template.as_ref().map(|template| &template.spec);
                topologies.push(self.claimed(template.namespace, &claim, spec)?);
            }
        }
        topologies.sort();
        Ok(topologies)
    }

    /// `template` is the claim that will be made where there is none yet.
    fn claimed(
        &self,
        namespace: &str,
        name: &str,
        template: Option<&PersistentVolumeClaimSpec>,
    ) -> Result<VolumeTopology, Fault> {
        let blocked = |problem: String| VolumeTopology {
            claim: name.to_owned(),
            driver: String::new(),
            alternatives: Vec::new(),
            problem: Some(problem),
        };
        let Some(claim) = self.claims.get(&(namespace, name)) else {
            return match template {
                Some(spec) => self.unbound(name, spec),
                None => Ok(blocked(format!("persistent volume claim {name:?} not found"))),
            };
        };
        if claim.metadata.deletion_timestamp.is_some() {
            return Ok(blocked(format!("persistent volume claim {name:?} is being deleted")));
        }
        if claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Lost") {
            return Ok(blocked(format!("persistent volume claim {name:?} has lost its volume")));
        }
        let Some(spec) = &claim.spec else {
            return Ok(blocked(format!("persistent volume claim {name:?} has no spec")));
        };
        match spec.volume_name.as_deref() {
            None | Some("") => self.unbound(name, spec),
            Some(volume_name) => match self.volumes.get(volume_name) {
                None => Ok(blocked(format!("persistent volume {volume_name:?} of claim {name:?} not found"))),
                Some(volume) if volume.metadata.deletion_timestamp.is_some() => {
                    Ok(blocked(format!("persistent volume {volume_name:?} of claim {name:?} is being deleted")))
                }
                Some(volume) => bound(name, volume),
            },
        }
    }

    /// A claim whose volume will be made where its first pod goes.
    fn unbound(&self, name: &str, spec: &PersistentVolumeClaimSpec) -> Result<VolumeTopology, Fault> {
        let mut topology =
            VolumeTopology { claim: name.to_owned(), driver: String::new(), alternatives: Vec::new(), problem: None };
        let class = match spec.storage_class_name.as_deref() {
            Some("") => None,
            Some(class) => match self.classes.get(class) {
                Some(class) => Some(*class),
                None => {
                    topology.problem = Some(format!("storage class {class:?} of claim {name:?} not found"));
                    return Ok(topology);
                }
            },
            None => self.default_class(),
        };
        let Some(class) = class else {
            topology.problem = Some(format!("claim {name:?} is not bound and has no storage class"));
            return Ok(topology);
        };
        if class.volume_binding_mode.as_deref().unwrap_or("Immediate") == "Immediate" {
            topology.problem = Some(format!("claim {name:?} is not bound yet, and its storage class binds at once"));
            return Ok(topology);
        }
        topology.driver = driver_name(&class.provisioner);
        topology.alternatives = selectors::allowed_topologies(class.allowed_topologies.iter().flatten());
        Ok(topology)
    }

    fn default_class(&self) -> Option<&'objects StorageClass> {
        self.classes.values().copied().find(|class| {
            class
                .metadata
                .annotations
                .as_ref()
                .and_then(|annotations| annotations.get(DEFAULT_CLASS))
                .map(String::as_str)
                == Some("true")
        })
    }
}

fn bound(claim: &str, volume: &PersistentVolume) -> Result<VolumeTopology, Fault> {
    let mut topology =
        VolumeTopology { claim: claim.to_owned(), driver: String::new(), alternatives: Vec::new(), problem: None };
    let Some(spec) = &volume.spec else { return Ok(topology) };
    topology.driver = match (&spec.csi, &spec.aws_elastic_block_store) {
        (Some(csi), _) => driver_name(&csi.driver),
        (None, Some(_)) => EBS_DRIVER.to_owned(),
        (None, None) => String::new(),
    };
    let terms = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
    // A volume on a node's own disk is gone with the node: a new node need not have that name.
    let ignored_key = (spec.local.is_some() || spec.host_path.is_some()).then_some(label::HOSTNAME);
    for term in terms.into_iter().flat_map(|terms| &terms.node_selector_terms) {
        let path = format!("spec.volumes.{claim}.nodeAffinity");
        match selectors::volume_term(term, ignored_key).map_err(|fault| fault.below(&path))? {
            Some(term) => topology.alternatives.push(term),
            None => {
                topology.alternatives.clear();
                return Ok(topology);
            }
        }
    }
    Ok(topology)
}

fn driver_name(provisioner: &str) -> String {
    if provisioner == IN_TREE_EBS { EBS_DRIVER.to_owned() } else { provisioner.to_owned() }
}

#[cfg(test)]
mod tests;
