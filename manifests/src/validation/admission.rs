//! LimitRanges and RuntimeClasses, which change new pods.

use super::{Faults, Path, placement, resources};
use crate::{Manifest, ManifestError};
use k8s_openapi::api::core::v1::LimitRange;
use k8s_openapi::api::node::v1::RuntimeClass;

/// The type of a LimitRange's items that have defaults. Others only bound what is given.
pub(crate) const CONTAINER: &str = "Container";
const OPERATORS: [&str; 5] = ["", "Equal", "Exists", "Gt", "Lt"];
const EFFECTS: [&str; 4] = ["", "NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Checks a LimitRange.
pub(crate) fn limit_range(manifest: &Manifest, range: &LimitRange) -> Result<(), Vec<ManifestError>> {
    let mut faults = Faults::new(manifest);
    let spec = Path::root("spec");
    let items = range.spec.iter().flat_map(|spec| &spec.limits).enumerate();
    for (index, item) in items.filter(|(_, item)| item.type_ == CONTAINER) {
        let at = spec.item("limits", index);
        resources::of_new_pods(&mut faults, &at.field("min"), item.min.as_ref());
        resources::of_new_pods(&mut faults, &at.field("max"), item.max.as_ref());
        resources::of_new_pods(&mut faults, &at.field("default"), item.default.as_ref());
        resources::of_new_pods(&mut faults, &at.field("defaultRequest"), item.default_request.as_ref());
    }
    faults.into_result()
}

/// Checks a RuntimeClass.
pub(crate) fn runtime_class(manifest: &Manifest, class: &RuntimeClass) -> Result<(), Vec<ManifestError>> {
    let mut faults = Faults::new(manifest);
    if class.handler.is_empty() {
        faults.add(&Path::root("handler"), "is required");
    }
    let overhead = class.overhead.as_ref().and_then(|overhead| overhead.pod_fixed.as_ref());
    resources::of_new_pods(&mut faults, &Path::root("overhead.podFixed"), overhead);
    let Some(scheduling) = &class.scheduling else { return faults.into_result() };
    let at = Path::root("scheduling");
    let selected = scheduling.node_selector.iter().flatten().map(|(key, value)| (key, value.as_str()));
    faults.labels(&at.field("nodeSelector"), selected);
    for (index, one) in scheduling.tolerations.iter().flatten().enumerate() {
        let at = at.item("tolerations", index);
        placement::toleration(&mut faults, &at, one);
        faults.unless_one_of(&at.field("operator"), one.operator.as_deref(), &OPERATORS);
        faults.unless_one_of(&at.field("effect"), one.effect.as_deref(), &EFFECTS);
    }
    faults.into_result()
}
