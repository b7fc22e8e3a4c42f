//! Where a pod's volumes can be attached.

mod attach;
mod users;

pub(crate) use attach::AttachLimits;

use crate::problems::Fault;
use crate::shapes::Template;
use crate::{Objects, Source, selectors};
use k8s_openapi::api::core::v1::{EphemeralVolumeSource, PersistentVolume, PersistentVolumeClaim as Claim};
use k8s_openapi::api::core::v1::{PersistentVolumeClaimSpec, PersistentVolumeSpec};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plimsoll_model::names::label;
use plimsoll_model::quantity::Quantity;
use plimsoll_model::requirements::{NodeSelectorRequirement, NodeSelectorTerm, Operator};
use plimsoll_model::snapshot::VolumeTopology;
use std::collections::BTreeMap;
use users::Users;

/// Annotations that mark the default storage class.
const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
/// The storage class of old claims.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
/// On a claim whose volume is its own for good.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// The provisioner of classes whose volumes are made by people.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
/// CSI driver of EBS, also for volumes that were made by the code once in Kubernetes itself.
const EBS_DRIVER: &str = "ebs.csi.aws.com";
const IN_TREE_EBS: &str = "kubernetes.io/aws-ebs";
/// Labels by which old volumes say where they are; several values are joined by [`LABEL_SEPARATOR`].
const PLACE_LABELS: [&str; 4] =
    [label::ZONE, label::REGION, "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"];
const LABEL_SEPARATOR: &str = "__";

/// Claims, volumes and storage classes by name, and who uses which claim.
pub(crate) struct Volumes<'objects> {
    source: Source,
    claims: BTreeMap<(&'objects str, &'objects str), &'objects Claim>,
    volumes: BTreeMap<&'objects str, &'objects PersistentVolume>,
    classes: BTreeMap<&'objects str, &'objects StorageClass>,
    users: Users<'objects>,
}

/// Why a volume has no topology.
enum Refusal {
    /// The pod cannot run for now.
    Problem(String),
    /// An object cannot be read.
    Fault(Fault),
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

fn problem<T>(text: String) -> Result<T, Refusal> {
    Err(Refusal::Problem(text))
}

impl<'objects> Volumes<'objects> {
    pub(crate) fn new(objects: &'objects Objects, source: Source) -> Self {
        let name = |metadata: &'objects ObjectMeta| metadata.name.as_deref();
        let claims = objects.persistent_volume_claims.iter();
        Self {
            source,
            claims: claims
                .filter_map(|it| Some(((it.metadata.namespace.as_deref()?, name(&it.metadata)?), it)))
                .collect(),
            volumes: objects.persistent_volumes.iter().filter_map(|it| Some((name(&it.metadata)?, it))).collect(),
            classes: objects.storage_classes.iter().filter_map(|it| Some((name(&it.metadata)?, it))).collect(),
            users: Users::new(objects),
        }
    }

    /// The topology of each volume that comes from a claim. `runs`: the pod has a node, and is asked about only to be moved.
    pub(crate) fn of(&self, template: &Template<'_>, runs: bool) -> Result<Vec<VolumeTopology>, Fault> {
        let mut found: BTreeMap<String, VolumeTopology> = BTreeMap::new();
        for volume in template.spec.volumes.iter().flatten() {
            let (name, own) = match (&volume.persistent_volume_claim, &volume.ephemeral) {
                (Some(source), _) => (source.claim_name.clone(), None),
                (None, Some(source)) => (users::ephemeral_claim(template.name, &volume.name), Some(source)),
                (None, None) => continue,
            };
            let topology = match self.claimed(template, &name, own, runs) {
                Ok(mut topology) => {
                    // Only a claim that others use too need be told from others like it.
                    if self.users.is_shared(template.namespace, &name) {
                        topology.claim.clone_from(&name);
                    }
                    topology
                }
                Err(Refusal::Problem(problem)) => VolumeTopology {
                    claim: name.clone(),
                    driver: String::new(),
                    alternatives: Vec::new(),
                    problem: Some(problem),
                },
                Err(Refusal::Fault(fault)) => return Err(fault),
            };
            found.insert(name, topology);
        }
        let mut topologies: Vec<VolumeTopology> = found.into_values().collect();
        topologies.sort();
        Ok(topologies)
    }

    fn claimed(
        &self,
        pod: &Template<'_>,
        name: &str,
        own: Option<&EphemeralVolumeSource>,
        runs: bool,
    ) -> Result<VolumeTopology, Refusal> {
        let Some(claim) = self.claims.get(&(pod.namespace, name)).copied() else {
            let made = own.and_then(|own| own.volume_claim_template.as_ref());
            return match made {
                Some(template) => self.unbound(name, &template.spec, None),
                None => problem(format!("persistent volume claim {name:?} not found")),
            };
        };
        if own.is_some() && !self.belongs(claim, pod.name) {
            return problem(format!("persistent volume claim {name:?} was not made for this pod"));
        }
        if claim.metadata.deletion_timestamp.is_some() {
            return problem(format!("persistent volume claim {name:?} is being deleted"));
        }
        if claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Lost") {
            return problem(format!("persistent volume claim {name:?} has lost its volume"));
        }
        let Some(spec) = &claim.spec else { return problem(format!("persistent volume claim {name:?} has no spec")) };
        if !runs
            && users::one_pod_only(spec)
            && let Some(other) = self.users.before(pod.namespace, name, pod.name)
        {
            return problem(format!("persistent volume claim {name:?} is for one pod only, and pod {other} has it"));
        }
        let volume = match spec.volume_name.as_deref() {
            None | Some("") => return self.unbound(name, spec, Some(claim)),
            Some(volume) => volume,
        };
        if self.source == Source::Cluster && annotation(&claim.metadata, BIND_COMPLETED).is_none() {
            return problem(format!("persistent volume claim {name:?} is being bound to {volume:?}"));
        }
        match self.volumes.get(volume) {
            None => problem(format!("persistent volume {volume:?} of claim {name:?} not found")),
            Some(found) if found.metadata.deletion_timestamp.is_some() => {
                problem(format!("persistent volume {volume:?} of claim {name:?} is being deleted"))
            }
            Some(found) => Ok(topology(driver_of(found), places(name, found, runs)?)),
        }
    }

    /// Whether the claim of an ephemeral volume was made for the pod of that name. Nobody has made the one of a file.
    fn belongs(&self, claim: &Claim, pod: &str) -> bool {
        let owners = claim.metadata.owner_references.as_deref().unwrap_or_default();
        (self.source == Source::Files && owners.is_empty())
            || owners.iter().any(|owner| owner.kind == "Pod" && owner.name == pod)
    }

    /// A claim whose volume will be made, or chosen, where its first pod goes.
    fn unbound(
        &self,
        name: &str,
        spec: &PersistentVolumeClaimSpec,
        claim: Option<&Claim>,
    ) -> Result<VolumeTopology, Refusal> {
        let annotated = claim.and_then(|claim| annotation(&claim.metadata, CLASS_ANNOTATION));
        let class = match annotated.or(spec.storage_class_name.as_deref()) {
            Some("") => None,
            Some(class) => match self.classes.get(class) {
                Some(class) => Some(*class),
                None => return problem(format!("storage class {class:?} of claim {name:?} not found")),
            },
            None => self.default_class(),
        };
        let Some(class) = class else {
            return problem(format!("claim {name:?} is not bound and has no storage class"));
        };
        if class.volume_binding_mode.as_deref().unwrap_or("Immediate") == "Immediate" {
            return problem(format!("claim {name:?} is not bound yet, and its storage class binds at once"));
        }
        if class.provisioner == NO_PROVISIONER {
            return self.chosen(name, spec, claim, class.metadata.name.as_deref().unwrap_or_default());
        }
        let places = selectors::allowed_topologies(class.allowed_topologies.as_ref())
            .map_err(|fault| fault.below(&format!("spec.volumes.{name}.storageClass")))?;
        Ok(topology(driver_name(&class.provisioner), places))
    }

    /// A claim of a class that makes no volumes: any free one that is as the claim asks will do.
    fn chosen(
        &self,
        name: &str,
        spec: &PersistentVolumeClaimSpec,
        claim: Option<&Claim>,
        class: &str,
    ) -> Result<VolumeTopology, Refusal> {
        let mut found: Option<VolumeTopology> = None;
        for volume in self.volumes.values().filter(|volume| suits(volume, spec, claim, class)) {
            let places = places(name, volume, false)?;
            let known = found.get_or_insert_with(|| topology(driver_of(volume), Vec::new()));
            if places.is_empty() {
                known.alternatives.clear();
                break;
            }
            known.alternatives.extend(places);
        }
        let none = || format!("storage class {class:?} of claim {name:?} makes no volumes, and no free one suits");
        found.ok_or_else(|| Refusal::Problem(none()))
    }

    /// Of several the newest, then the first by name, as Kubernetes has it.
    fn default_class(&self) -> Option<&'objects StorageClass> {
        let marked = |class: &&StorageClass| {
            DEFAULT_CLASS.iter().any(|key| annotation(&class.metadata, key).is_some_and(|value| value == "true"))
        };
        let created = |class: &&StorageClass| class.metadata.creation_timestamp.as_ref().map(|time| time.0);
        self.classes.values().copied().filter(marked).min_by_key(|class| std::cmp::Reverse(created(class)))
    }
}

fn topology(driver: String, alternatives: Vec<NodeSelectorTerm>) -> VolumeTopology {
    VolumeTopology { claim: String::new(), driver, alternatives, problem: None }
}

fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Whether a volume is free and as the claim asks.
fn suits(volume: &PersistentVolume, spec: &PersistentVolumeClaimSpec, claim: Option<&Claim>, class: &str) -> bool {
    let Some(own) = volume.spec.as_ref().filter(|_| volume.metadata.deletion_timestamp.is_none()) else { return false };
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    let reserved_for_other = own.claim_ref.as_ref().is_some_and(|reference| {
        claim.is_none_or(|claim| {
            reference.name != claim.metadata.name || reference.namespace != claim.metadata.namespace
        })
    });
    let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "Filesystem".to_owned());
    let has = |wanted: &String| own.access_modes.iter().flatten().any(|mode| mode == wanted);
    let labels = volume.metadata.labels.clone().unwrap_or_default();
    !reserved_for_other
        && matches!(phase, None | Some("Available" | "Pending"))
        && own.storage_class_name.as_deref() == Some(class)
        && mode(&own.volume_mode) == mode(&spec.volume_mode)
        && spec.access_modes.iter().flatten().all(has)
        && is_large_enough(own, spec)
        && spec.selector.as_ref().is_none_or(|selector| selectors::matches(selector, &labels).unwrap_or(false))
}

fn is_large_enough(volume: &PersistentVolumeSpec, claim: &PersistentVolumeClaimSpec) -> bool {
    let requests = claim.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let Some(wanted) = requests.and_then(|requests| requests.get("storage")) else { return true };
    let Some(size) = volume.capacity.as_ref().and_then(|capacity| capacity.get("storage")) else { return false };
    let bytes = |text: &str| Quantity::parse(text).ok()?.amount_of("storage");
    bytes(&size.0).zip(bytes(&wanted.0)).is_some_and(|(size, wanted)| size >= wanted)
}

fn driver_of(volume: &PersistentVolume) -> String {
    match volume.spec.as_ref().map(|spec| (&spec.csi, &spec.aws_elastic_block_store)) {
        Some((Some(csi), _)) => driver_name(&csi.driver),
        Some((None, Some(_))) => EBS_DRIVER.to_owned(),
        _ => String::new(),
    }
}

/// Where a volume can be attached: any one of these; none of them means anywhere.
fn places(claim: &str, volume: &PersistentVolume, runs: bool) -> Result<Vec<NodeSelectorTerm>, Fault> {
    let Some(spec) = &volume.spec else { return Ok(Vec::new()) };
    let by_label = by_label(volume);
    let affinity = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
    // A volume on a node's own disk goes with the node: that must not keep the node for ever. A pod that has no node yet can run
    // only where its volume is.
    let ignored_key = (runs && (spec.local.is_some() || spec.host_path.is_some())).then_some(label::HOSTNAME);
    let mut all = Vec::new();
    for term in affinity.into_iter().flat_map(|terms| &terms.node_selector_terms) {
        let path = format!("spec.volumes.{claim}.nodeAffinity");
        let mut term = selectors::volume_term(term, ignored_key).map_err(|fault| fault.below(&path))?;
        if let Some(term) = &mut term {
            term.expressions.extend(by_label.iter().cloned());
        }
        all.push(term);
    }
    if all.is_empty() || all.contains(&None) {
        let only = NodeSelectorTerm { expressions: by_label, fields: Vec::new() };
        return Ok(if only.expressions.is_empty() { Vec::new() } else { vec![only] });
    }
    Ok(all.into_iter().flatten().collect())
}

fn by_label(volume: &PersistentVolume) -> Vec<NodeSelectorRequirement> {
    let labels = volume.metadata.labels.iter().flatten().filter(|(key, _)| PLACE_LABELS.contains(&key.as_str()));
    labels.map(|(key, value)| NodeSelectorRequirement::new(key, Operator::In, value.split(LABEL_SEPARATOR))).collect()
}

fn driver_name(provisioner: &str) -> String {
    if provisioner == IN_TREE_EBS { EBS_DRIVER.to_owned() } else { provisioner.to_owned() }
}

#[cfg(test)]
mod tests;
