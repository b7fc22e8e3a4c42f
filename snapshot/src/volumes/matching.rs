//! Finds the existing volumes that an unbound claim may be bound to.

use crate::selectors;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim as Claim};
use k8s_openapi::api::core::v1::{PersistentVolumeClaimSpec, PersistentVolumeSpec};
use plimsoll_model::names::label;
use plimsoll_model::quantity::Quantity;
use plimsoll_model::requirements::{NodeSelectorRequirement, Operator};
use std::collections::BTreeMap;

/// PersistentVolumes by name.
type Volumes<'objects> = BTreeMap<&'objects str, &'objects PersistentVolume>;

/// The volume that is reserved for the claim and suits it.
pub(super) fn reserved<'objects>(
    volumes: &Volumes<'objects>,
    spec: &PersistentVolumeClaimSpec,
    claim: Option<&Claim>,
) -> Option<&'objects PersistentVolume> {
    let claim = claim?;
    let is_reserved = |volume: &PersistentVolume| {
        let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        reference.is_some_and(|reference| {
            reference.name == claim.metadata.name && reference.namespace == claim.metadata.namespace
        })
    };
    volumes.values().copied().find(|volume| is_reserved(volume) && fits(volume, spec))
}

/// The volumes that suit the claim: only the one that is reserved for it, if there is one, as in Kubernetes.
pub(super) fn suitable<'objects>(
    volumes: &Volumes<'objects>,
    spec: &PersistentVolumeClaimSpec,
    claim: Option<&Claim>,
    class: &str,
) -> Vec<&'objects PersistentVolume> {
    if let Some(volume) = reserved(volumes, spec, claim) {
        return vec![volume];
    }
    let is_free = |volume: &PersistentVolume| {
        volume.spec.as_ref().is_some_and(|spec| {
            spec.claim_ref.is_none() && spec.storage_class_name.as_deref().unwrap_or_default() == class
        })
    };
    let is_selected = |volume: &PersistentVolume| {
        let labels = volume.metadata.labels.clone().unwrap_or_default();
        spec.selector.as_ref().is_none_or(|selector| selectors::matches(selector, &labels).unwrap_or(false))
    };
    volumes.values().copied().filter(|volume| is_free(volume) && fits(volume, spec) && is_selected(volume)).collect()
}

/// Requirements on the nodes that volumes of a class may come with, by class. They exclude the nodes whose volumes of
/// the class are all taken. `None` if no volume of the class is on a node.
pub(super) type OpenHosts<'objects> = BTreeMap<&'objects str, Option<Vec<NodeSelectorRequirement>>>;

/// Finds out which nodes have no free volume of their classes.
pub(super) fn open_hosts<'objects>(volumes: &Volumes<'objects>) -> OpenHosts<'objects> {
    let mut all_taken: BTreeMap<&str, BTreeMap<&str, bool>> = BTreeMap::new();
    for volume in volumes.values().copied() {
        let Some(spec) = &volume.spec else { continue };
        let Some(class) = spec.storage_class_name.as_deref() else { continue };
        let is_free = spec.claim_ref.is_none() && can_be_bound(volume);
        let hosts = all_taken.entry(class).or_default();
        for host in hostnames(spec) {
            *hosts.entry(host).or_insert(true) &= !is_free;
        }
    }
    all_taken.into_iter().map(|(class, hosts)| (class, (!hosts.is_empty()).then(|| not_full(&hosts)))).collect()
}

/// Excludes the hosts whose volumes are all taken, if there are any.
fn not_full(all_taken: &BTreeMap<&str, bool>) -> Vec<NodeSelectorRequirement> {
    let full: Vec<&str> = all_taken.iter().filter(|(_, is_full)| **is_full).map(|(host, _)| *host).collect();
    if full.is_empty() {
        return Vec::new();
    }
    vec![NodeSelectorRequirement::new(label::HOSTNAME, Operator::NotIn, full)]
}

/// Hostnames of the nodes that a volume is on.
fn hostnames(volume: &PersistentVolumeSpec) -> impl Iterator<Item = &str> {
    let required = volume.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
    let terms = required.into_iter().flat_map(|selector| &selector.node_selector_terms);
    let expressions = terms.flat_map(|term| term.match_expressions.iter().flatten());
    let of_host = expressions.filter(|one| one.key == label::HOSTNAME && one.operator == "In");
    of_host.flat_map(|one| one.values.iter().flatten()).map(String::as_str)
}

/// Whether the volume is neither bound nor about to be deleted.
fn can_be_bound(volume: &PersistentVolume) -> bool {
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    volume.metadata.deletion_timestamp.is_none() && matches!(phase, None | Some("Available" | "Pending"))
}

/// Whether the volume can be bound, and is what the claim asks for.
fn fits(volume: &PersistentVolume, claim: &PersistentVolumeClaimSpec) -> bool {
    let Some(spec) = &volume.spec else { return false };
    let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "Filesystem".to_owned());
    let has = |wanted: &String| spec.access_modes.iter().flatten().any(|mode| mode == wanted);
    can_be_bound(volume)
        && mode(&spec.volume_mode) == mode(&claim.volume_mode)
        && claim.access_modes.iter().flatten().all(has)
        && is_large_enough(spec, claim)
}

fn is_large_enough(volume: &PersistentVolumeSpec, claim: &PersistentVolumeClaimSpec) -> bool {
    let requests = claim.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let Some(wanted) = requests.and_then(|requests| requests.get("storage")) else { return true };
    let Some(size) = volume.capacity.as_ref().and_then(|capacity| capacity.get("storage")) else { return false };
    let bytes = |text: &str| Quantity::parse(text).ok()?.amount_of("storage");
    bytes(&size.0).zip(bytes(&wanted.0)).is_some_and(|(size, wanted)| size >= wanted)
}
