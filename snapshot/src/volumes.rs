//! Determines where the volumes of a pod can be attached.

mod attach;
mod matching;
mod places;
mod users;

pub(crate) use attach::attach_limits;

use crate::problems::Fault;
use crate::shapes::Template;
use crate::{Objects, Source, annotations, selectors};
use k8s_openapi::api::core::v1::{EphemeralVolumeSource, PersistentVolume, PersistentVolumeClaim as Claim};
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaimSpec};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use matching::OpenHosts;
use places::{driver_name, driver_of, node_terms};
use plimsoll_api::volume_claims;
use plimsoll_model::names::label;
use plimsoll_model::requirements::{NodeSelectorRequirement, NodeSelectorTerm, Operator};
use plimsoll_model::snapshot::VolumeTopology;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use users::ClaimUsers;

/// Annotations that mark the default storage class.
const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
/// Storage class annotation of old claims.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
/// Annotation of a claim that is permanently bound.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Annotation of a claim whose volume is being provisioned for the first pod, with the name of the pod's node.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Provisioner of classes whose volumes are created manually.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// Claims, volumes and storage classes by name, and the users of claims.
pub(crate) struct Volumes<'objects> {
    source: Source,
    claims: BTreeMap<(&'objects str, &'objects str), &'objects Claim>,
    volumes: BTreeMap<&'objects str, &'objects PersistentVolume>,
    classes: BTreeMap<&'objects str, &'objects StorageClass>,
    objects: &'objects Objects,
    /// Built when the first claim is looked up, since it takes a pass over all pods.
    users: OnceCell<ClaimUsers<'objects>>,
    /// Built for the first claim that needs it, since it takes a pass over all volumes.
    open_hosts: OnceCell<OpenHosts<'objects>>,
    /// Nodes by name, built for the first claim with a selected node.
    nodes: OnceCell<BTreeMap<&'objects str, &'objects Node>>,
}

/// Reason why a volume has no topology.
enum VolumeError {
    /// The pod cannot be scheduled for now.
    Problem(String),
    /// An object is invalid.
    Fault(Fault),
}

impl From<Fault> for VolumeError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

fn problem<T>(text: String) -> Result<T, VolumeError> {
    Err(VolumeError::Problem(text))
}

impl<'objects> Volumes<'objects> {
    pub(crate) fn new(objects: &'objects Objects, source: Source) -> Self {
        let name = |metadata: &'objects ObjectMeta| metadata.name.as_deref();
        let claims = objects.persistent_volume_claims.iter();
        Self {
            source,
            claims: claims
                .filter_map(|claim| Some(((claim.metadata.namespace.as_deref()?, name(&claim.metadata)?), claim)))
                .collect(),
            volumes: objects
                .persistent_volumes
                .iter()
                .filter_map(|object| Some((name(&object.metadata)?, object)))
                .collect(),
            classes: objects
                .storage_classes
                .iter()
                .filter_map(|object| Some((name(&object.metadata)?, object)))
                .collect(),
            objects,
            users: OnceCell::new(),
            open_hosts: OnceCell::new(),
            nodes: OnceCell::new(),
        }
    }

    fn users(&self) -> &ClaimUsers<'objects> {
        self.users.get_or_init(|| ClaimUsers::new(self.objects))
    }

    /// Topology of each volume with a claim. `runs` means that the pod has a node and is only checked in order to be
    /// moved.
    pub(crate) fn of(&self, template: &Template<'_>, runs: bool) -> Result<Vec<VolumeTopology>, Fault> {
        let mut by_claim: BTreeMap<String, VolumeTopology> = BTreeMap::new();
        for (name, ephemeral) in volume_claims(template.spec, template.name) {
            let topology = match self.claim_topology(template, &name, ephemeral, runs) {
                Ok(mut topology) => {
                    // The name only matters for claims that several pods share.
                    if self.users().is_shared(template.namespace, &name) {
                        topology.claim.clone_from(&name);
                    }
                    topology
                }
                Err(VolumeError::Problem(problem)) => VolumeTopology {
                    claim: name.clone(),
                    // The volume of a pod that runs is attached nevertheless.
                    driver: if runs { self.driver(template, &name, ephemeral) } else { String::new() },
                    alternatives: Vec::new(),
                    problem: Some(problem),
                },
                Err(VolumeError::Fault(fault)) => return Err(fault),
            };
            by_claim.insert(name, topology);
        }
        let mut topologies: Vec<VolumeTopology> = by_claim.into_values().collect();
        topologies.sort();
        Ok(topologies)
    }

    /// The volumes of a pod that stays with its node, which count towards the attach limits of the node.
    pub(crate) fn attached(&self, template: &Template<'_>) -> Vec<VolumeTopology> {
        let claims: BTreeMap<String, _> = volume_claims(template.spec, template.name).collect();
        let attached = |(name, ephemeral): (String, Option<&EphemeralVolumeSource>)| {
            let driver = self.driver(template, &name, ephemeral);
            let claim = if self.users().is_shared(template.namespace, &name) { name } else { String::new() };
            VolumeTopology { claim, ..topology(driver, Vec::new()) }
        };
        let mut topologies: Vec<VolumeTopology> = claims.into_iter().map(attached).collect();
        topologies.retain(|volume| !volume.driver.is_empty());
        topologies.sort();
        topologies
    }

    /// CSI driver of the volume of a claim; empty if unknown.
    fn driver(&self, pod: &Template<'_>, name: &str, ephemeral: Option<&EphemeralVolumeSource>) -> String {
        let claim = self.claims.get(&(pod.namespace, name)).copied();
        let claim_template = ephemeral.and_then(|ephemeral| ephemeral.volume_claim_template.as_ref());
        let spec = match claim {
            Some(claim) => claim.spec.as_ref(),
            None => claim_template.map(|template| &template.spec),
        };
        let Some(spec) = spec else { return String::new() };
        if let Some(volume) = spec.volume_name.as_deref().filter(|volume| !volume.is_empty()) {
            return self.volumes.get(volume).copied().map(driver_of).unwrap_or_default();
        }
        let class = self.class(spec, claim).ok().flatten().filter(|class| class.provisioner != NO_PROVISIONER);
        class.map(|class| driver_name(&class.provisioner)).unwrap_or_default()
    }

    fn claim_topology(
        &self,
        pod: &Template<'_>,
        name: &str,
        ephemeral: Option<&EphemeralVolumeSource>,
        runs: bool,
    ) -> Result<VolumeTopology, VolumeError> {
        let Some(claim) = self.claims.get(&(pod.namespace, name)).copied() else {
            let claim_template = ephemeral.and_then(|ephemeral| ephemeral.volume_claim_template.as_ref());
            return match claim_template {
                Some(template) => self.unbound(name, &template.spec, None),
                None => problem(format!("persistent volume claim {name:?} not found{}", self.advice())),
            };
        };
        if ephemeral.is_some() && !self.belongs(claim, pod.name) {
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
            && users::is_read_write_once_pod(spec)
            && let Some(other) = self.users().preceding_user(pod.namespace, name, pod.name)
        {
            return problem(format!("persistent volume claim {name:?} is for one pod only, and pod {other} has it"));
        }
        let volume_name = match spec.volume_name.as_deref() {
            None | Some("") => return self.unbound(name, spec, Some(claim)),
            Some(volume) => volume,
        };
        if self.source == Source::Cluster && annotations::text(&claim.metadata, BIND_COMPLETED).is_none() {
            return problem(format!("persistent volume claim {name:?} is being bound to {volume_name:?}"));
        }
        match self.volumes.get(volume_name) {
            None => problem(format!("persistent volume {volume_name:?} of claim {name:?} not found{}", self.advice())),
            // kube-scheduler does not check this: the volume is only deleted once its claim is. No node is launched for
            // a new pod, as in Karpenter, but a pod that runs can be moved.
            Some(volume) if !runs && volume.metadata.deletion_timestamp.is_some() => {
                problem(format!("persistent volume {volume_name:?} of claim {name:?} is being deleted"))
            }
            Some(volume) => Ok(topology(driver_of(volume), node_terms(name, volume, runs)?)),
        }
    }

    /// Advice about a missing object. Files may contain only a part of a cluster.
    fn advice(&self) -> &'static str {
        match self.source {
            Source::Cluster => "",
            Source::Files => " in the input; add pvc, pv and sc to it",
        }
    }

    /// Whether the claim of an ephemeral volume belongs to the named pod. Claims from files have no owner.
    fn belongs(&self, claim: &Claim, pod: &str) -> bool {
        let owners = claim.metadata.owner_references.as_deref().unwrap_or_default();
        (self.source == Source::Files && owners.is_empty())
            || owners.iter().any(|owner| owner.kind == "Pod" && owner.name == pod)
    }

    /// Topology of an unbound claim, whose volume will be provisioned or selected once its first pod is scheduled.
    fn unbound(
        &self,
        name: &str,
        spec: &PersistentVolumeClaimSpec,
        claim: Option<&Claim>,
    ) -> Result<VolumeTopology, VolumeError> {
        let class = self.class(spec, claim);
        let waits = class.is_ok_and(|class| class.is_some_and(waits_for_pod));
        // The control plane has not seen such a claim. It binds the claim to a volume at once if it finds one.
        let is_new = self.source == Source::Files && claim.is_none_or(is_unseen);
        if is_new && (!waits || matching::reserved(&self.volumes, spec, claim).is_some()) {
            let class_name = match class {
                Ok(class) => class.map_or("", class_name),
                Err(class_name) => class_name,
            };
            if let Some(found) = self.existing_volumes(name, spec, claim, class_name)? {
                return Ok(found);
            }
        }
        let class = match class {
            Ok(Some(class)) => class,
            Ok(None) => {
                let advice = if self.classes.is_empty() { self.advice() } else { "" };
                return problem(format!("claim {name:?} is not bound and has no storage class{advice}"));
            }
            Err(class) => {
                return problem(format!("storage class {class:?} of claim {name:?} not found{}", self.advice()));
            }
        };
        if !waits && !is_new {
            return problem(format!("claim {name:?} is not bound yet, and its storage class binds at once"));
        }
        let terms = selectors::allowed_topologies(class.allowed_topologies.as_ref())
            .map_err(|fault| fault.below(&format!("spec.volumes.{name}.storageClass")))?;
        if class.provisioner == NO_PROVISIONER {
            let class = class_name(class);
            let found = self.existing_volumes(name, spec, claim, class)?;
            if waits && let Some(to_come) = self.volumes_to_come(class, terms) {
                return Ok(found_or_to_come(found, to_come));
            }
            let none = || format!("storage class {class:?} of claim {name:?} makes no volumes, and no free one suits");
            return found.ok_or_else(|| VolumeError::Problem(none()));
        }
        let terms = match claim.and_then(|claim| self.selected_hostname(claim)) {
            Some(hostname) => with(terms, &NodeSelectorRequirement::new(label::HOSTNAME, Operator::In, [hostname])),
            None => terms,
        };
        Ok(topology(driver_name(&class.provisioner), terms))
    }

    /// Places of the volumes of a class that come with their nodes. They are expected on all nodes that `terms` allow,
    /// except those whose volumes are all taken. `None` if the class has volumes, but none that is on a node.
    fn volumes_to_come(&self, class: &str, terms: Vec<NodeSelectorTerm>) -> Option<Vec<NodeSelectorTerm>> {
        match self.open_hosts.get_or_init(|| matching::open_hosts(&self.volumes)).get(class) {
            None => Some(terms),
            Some(None) => None,
            Some(Some(requirements)) => Some(requirements.iter().fold(terms, with)),
        }
    }

    /// Hostname of the node for which the volume of the claim is being provisioned. kube-scheduler skips all other
    /// nodes, until the provisioner has given up or the node is gone.
    fn selected_hostname(&self, claim: &Claim) -> Option<&'objects str> {
        let name = annotations::text(&claim.metadata, SELECTED_NODE)?;
        let named = |node: &'objects Node| Some((node.metadata.name.as_deref()?, node));
        let node = *self.nodes.get_or_init(|| self.objects.nodes.iter().filter_map(named).collect()).get(name)?;
        let hostname = node.metadata.labels.as_ref().and_then(|labels| labels.get(label::HOSTNAME));
        hostname.or(node.metadata.name.as_ref()).map(String::as_str)
    }

    /// The storage class of a claim, if it has one; an error with its name if there is no such class.
    fn class<'spec>(
        &self,
        spec: &'spec PersistentVolumeClaimSpec,
        claim: Option<&'spec Claim>,
    ) -> Result<Option<&'objects StorageClass>, &'spec str> {
        let annotated = claim.and_then(|claim| annotations::text(&claim.metadata, CLASS_ANNOTATION));
        match annotated.or(spec.storage_class_name.as_deref()) {
            Some("") => Ok(None),
            Some(class) => self.classes.get(class).copied().map(Some).ok_or(class),
            None => Ok(self.default_class()),
        }
    }

    /// Topology of a claim that will be bound to any suitable free volume; `None` if there is none.
    fn existing_volumes(
        &self,
        name: &str,
        spec: &PersistentVolumeClaimSpec,
        claim: Option<&Claim>,
        class: &str,
    ) -> Result<Option<VolumeTopology>, Fault> {
        let mut result: Option<VolumeTopology> = None;
        for volume in matching::suitable(&self.volumes, spec, claim, class) {
            let terms = node_terms(name, volume, false)?;
            let topology_so_far = result.get_or_insert_with(|| topology(driver_of(volume), Vec::new()));
            if terms.is_empty() {
                topology_so_far.alternatives.clear();
                break;
            }
            topology_so_far.alternatives.extend(terms);
        }
        Ok(result)
    }

    /// The default class; the newest if there are several, then the first by name, as in Kubernetes.
    fn default_class(&self) -> Option<&'objects StorageClass> {
        let marked = |class: &&StorageClass| {
            DEFAULT_CLASS.iter().any(|key| annotations::text(&class.metadata, key) == Some("true"))
        };
        let created = |class: &&StorageClass| class.metadata.creation_timestamp.as_ref().map(|time| time.0);
        self.classes.values().copied().filter(marked).min_by_key(|class| std::cmp::Reverse(created(class)))
    }
}

fn topology(driver: String, alternatives: Vec<NodeSelectorTerm>) -> VolumeTopology {
    VolumeTopology { claim: String::new(), driver, alternatives, problem: None }
}

/// Whether the volumes of the class are made or selected for the first pod.
fn waits_for_pod(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

fn class_name(class: &StorageClass) -> &str {
    class.metadata.name.as_deref().unwrap_or_default()
}

/// Whether the control plane has not seen the claim.
fn is_unseen(claim: &Claim) -> bool {
    claim.status.as_ref().is_none_or(|status| status.phase.is_none())
}

/// Topology of a claim that is bound to one of the volumes `found`, or to one that comes with its node.
fn found_or_to_come(found: Option<VolumeTopology>, to_come: Vec<NodeSelectorTerm>) -> VolumeTopology {
    match found {
        Some(found) if found.alternatives.is_empty() => found,
        Some(mut found) if !to_come.is_empty() => {
            found.alternatives.extend(to_come);
            found
        }
        found => topology(found.map(|found| found.driver).unwrap_or_default(), to_come),
    }
}

/// The alternatives `terms`, each with one more requirement.
fn with(mut terms: Vec<NodeSelectorTerm>, requirement: &NodeSelectorRequirement) -> Vec<NodeSelectorTerm> {
    if terms.is_empty() {
        terms.push(NodeSelectorTerm { expressions: Vec::new(), fields: Vec::new() });
    }
    terms.iter_mut().for_each(|term| term.expressions.push(requirement.clone()));
    terms
}

#[cfg(test)]
mod tests;
