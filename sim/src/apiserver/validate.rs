//! Validation of objects: the part of the real validation that clients depend on.

use super::error::{ApiError, Cause};
use super::object;
use super::resources::{Resource, ResourceId};
use super::selector::LabelSelector;
use super::store::Part;
use serde_json::Value;

/// Maximum length of an object name, that of a DNS name.
const NAME_MAX: usize = 253;
/// Maximum length of a namespace name, that of a DNS label.
const NAMESPACE_MAX: usize = 63;
/// Fields of a pod spec that may change after creation.
const POD_MUTABLE: &[&str] =
    &["tolerations", "activeDeadlineSeconds", "terminationGracePeriodSeconds", "schedulingGates"];
/// Fields that may also change while a pod has scheduling gates.
const GATED_POD_MUTABLE: &[&str] = &["nodeSelector", "affinity"];

/// Validates a new object.
pub(crate) fn new_object(row: &Resource, object: &Value) -> Result<(), ApiError> {
    let mut causes = Vec::new();
    let name = object::name(object);
    if !is_dns_name(name, if row.kind == "Namespace" { NAMESPACE_MAX } else { NAME_MAX }) {
        causes.push(Cause::invalid(
            "metadata.name",
            "must consist of lower case letters, digits, '-' and '.', and begin and end with a letter or digit",
        ));
    }
    if row.plural == ResourceId::PODS.get().plural {
        let containers = object::items(object, &["spec", "containers"]);
        if containers.is_empty() {
            causes.push(Cause::required("spec.containers", "at least one is required"));
        }
        for (index, container) in containers.iter().enumerate() {
            if object::text(container, &["name"]).is_empty() {
                causes.push(Cause::required(format!("spec.containers[{index}].name"), "is required"));
            }
        }
    }
    let template = object::at(object, &["spec", "template", "metadata"]);
    if matches!(row.group, "apps" | "batch")
        && !LabelSelector::of_object(object::at(object, &["spec", "selector"]))
            .matches_labels(template.and_then(|metadata| metadata.get("labels")).and_then(Value::as_object))
    {
        causes.push(Cause::invalid("spec.template.metadata.labels", "`selector` does not match template `labels`"));
    }
    if causes.is_empty() { Ok(()) } else { Err(ApiError::invalid(row, name, &causes)) }
}

/// Validates a change.
pub(crate) fn changed_object(row: &Resource, part: Part, old: &Value, new: &Value) -> Result<(), ApiError> {
    let mut causes = Vec::new();
    if object::is_deleting(old) {
        let had: Vec<_> = object::finalizers(old).collect();
        if let Some(added) = object::finalizers(new).find(|finalizer| !had.contains(finalizer)) {
            causes.push(Cause::forbidden(
                "metadata.finalizers",
                format!("{added:?} cannot be added to an object that is being deleted"),
            ));
        }
    }
    if part == Part::Main {
        if row.immutable_spec && old.get("spec") != new.get("spec") {
            causes.push(Cause::invalid("spec", "spec is immutable"));
        }
        if row.kind == "Pod" {
            causes.extend(pod_changes(old, new));
        }
        if matches!(row.group, "apps" | "batch")
            && object::at(old, &["spec", "selector"]) != object::at(new, &["spec", "selector"])
        {
            causes.push(Cause::invalid("spec.selector", "field is immutable"));
        }
    }
    if causes.is_empty() { Ok(()) } else { Err(ApiError::invalid(row, object::name(old), &causes)) }
}

fn pod_changes(old: &Value, new: &Value) -> Option<Cause> {
    let gated = !object::items(old, &["spec", "schedulingGates"]).is_empty();
    let frozen = |pod: &Value| {
        let mut spec = pod.get("spec").cloned().unwrap_or_default();
        for field in POD_MUTABLE.iter().chain(GATED_POD_MUTABLE.iter().filter(|_| gated)) {
            object::remove(&mut spec, &[field]);
        }
        for list in ["containers", "initContainers"] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                object::remove(container, &["image"]);
            }
        }
        spec
    };
    (frozen(old) != frozen(new)).then(|| {
        let allowed = "pod updates may not change fields other than images, tolerations, activeDeadlineSeconds and \
                       terminationGracePeriodSeconds";
        Cause::forbidden("spec", allowed)
    })
}

/// Whether a name consists of DNS labels.
fn is_dns_name(name: &str, longest: usize) -> bool {
    let label = |label: &str| {
        let inner = label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        inner && !label.is_empty() && !label.starts_with('-') && !label.ends_with('-')
    };
    name.len() <= longest && name.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::is_dns_name;

    #[test]
    fn names() {
        for good in ["a", "a-b", "a.b-1.c", "0"] {
            assert!(is_dns_name(good, 253), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a..b", "a_b", "a.", &"x".repeat(254)] {
            assert!(!is_dns_name(bad, 253), "{bad}");
        }
    }
}
