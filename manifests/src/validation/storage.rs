//! Volumes, claims and their classes.

use super::{Faults, Path, node_selector};
use crate::{Manifest, ManifestError};
use k8s_openapi::api::core::v1::{
    NodeSelectorTerm, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec,
};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as KubeQuantity;
use plimsoll_model::quantity::Quantity;
use std::collections::BTreeMap;

/// The resource that a claim requests and a volume has.
const STORAGE: &str = "storage";
/// Operators of node affinity.
const OPERATORS: [&str; 6] = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
const ACCESS_MODES: [&str; 4] = ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"];

/// Checks a StorageClass.
pub(crate) fn storage_class(manifest: &Manifest, class: &StorageClass) -> Result<(), Vec<ManifestError>> {
    let mut faults = Faults::new(manifest);
    if class.provisioner.is_empty() {
        faults.add(&Path::root("provisioner"), "is required");
    }
    let modes = ["Immediate", "WaitForFirstConsumer"];
    faults.unless_one_of(&Path::root("volumeBindingMode"), class.volume_binding_mode.as_deref(), &modes);
    for (term_index, term) in class.allowed_topologies.iter().flatten().enumerate() {
        let at = format!("allowedTopologies[{term_index}]");
        let at = Path::root(&at);
        for (index, expression) in term.match_label_expressions.iter().flatten().enumerate() {
            let at = at.item("matchLabelExpressions", index);
            if expression.key.is_empty() {
                faults.add(&at.field("key"), "is required");
            }
            if expression.values.is_empty() {
                faults.add(&at.field("values"), "must have at least one value");
            }
        }
    }
    faults.into_result()
}

/// Checks a PersistentVolumeClaim.
pub(crate) fn claim(manifest: &Manifest, claim: &PersistentVolumeClaim) -> Result<(), Vec<ManifestError>> {
    let mut faults = Faults::new(manifest);
    claim_spec(&mut faults, &Path::root("spec"), claim.spec.as_ref());
    faults.into_result()
}

pub(super) fn claim_spec(faults: &mut Faults<'_>, at: &Path<'_>, spec: Option<&PersistentVolumeClaimSpec>) {
    let modes = spec.and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    if modes.is_empty() {
        faults.add(&at.field("accessModes"), "must have at least one access mode");
    }
    for (index, mode) in modes.iter().enumerate() {
        faults.unless_one_of(&at.item("accessModes", index), Some(mode), &ACCESS_MODES);
    }
    let resources = spec.and_then(|spec| spec.resources.as_ref());
    size(faults, &at.field("resources.requests"), resources.and_then(|resources| resources.requests.as_ref()));
}

/// Checks a size that is given.
fn size(faults: &mut Faults<'_>, at: &Path<'_>, amounts: Option<&BTreeMap<String, KubeQuantity>>) {
    let Some(size) = amounts.and_then(|amounts| amounts.get(STORAGE)) else { return };
    match Quantity::parse(&size.0) {
        Err(error) => faults.add(&at.field(STORAGE), error),
        Ok(read) if read <= Quantity::ZERO => faults.add(&at.field(STORAGE), "must be more than 0"),
        Ok(_) => {}
    }
}

/// Checks a PersistentVolume.
pub(crate) fn volume(manifest: &Manifest, volume: &PersistentVolume) -> Result<(), Vec<ManifestError>> {
    let mut faults = Faults::new(manifest);
    let capacity = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref());
    size(&mut faults, &Path::root("spec.capacity"), capacity);
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    if let Some(required) = affinity.and_then(|affinity| affinity.required.as_ref()) {
        let at = Path::root("spec.nodeAffinity.required");
        node_selector(&mut faults, &at, required);
        for (index, term) in required.node_selector_terms.iter().enumerate() {
            expressions(&mut faults, &at.item("nodeSelectorTerms", index), term);
        }
    }
    faults.into_result()
}

/// Checks what the snapshot would find at each pod that has the volume.
fn expressions(faults: &mut Faults<'_>, at: &Path<'_>, term: &NodeSelectorTerm) {
    for (index, expression) in term.match_expressions.iter().flatten().enumerate() {
        let at = at.item("matchExpressions", index);
        if expression.key.is_empty() {
            faults.add(&at.field("key"), "is required");
        }
        faults.unless_one_of(&at.field("operator"), Some(&expression.operator), &OPERATORS);
        let values = expression.values.as_deref().unwrap_or_default();
        let problem = match expression.operator.as_str() {
            "In" | "NotIn" => values.is_empty().then_some("must have at least one value"),
            "Exists" | "DoesNotExist" => (!values.is_empty()).then_some("must be empty for this operator"),
            // The API server does not look whether it is an integer.
            "Gt" | "Lt" => (values.len() != 1).then_some("must be exactly one"),
            _ => None,
        };
        if let Some(problem) = problem {
            faults.add(&at.field("values"), problem);
        }
    }
}

/// Checks a CSINode.
pub(crate) fn csi_node(manifest: &Manifest, node: &CSINode) -> Result<(), Vec<ManifestError>> {
    let mut faults = Faults::new(manifest);
    let spec = Path::root("spec");
    for (index, driver) in node.spec.drivers.iter().enumerate() {
        if driver.allocatable.as_ref().and_then(|allocatable| allocatable.count).is_some_and(|count| count < 0) {
            let at = spec.item("drivers", index);
            faults.add(&at.field("allocatable.count"), "must not be negative");
        }
    }
    faults.into_result()
}
