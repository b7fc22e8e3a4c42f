//! What an API server would refuse in a pod and what nobody else here looks at.

use super::{Manifest, ManifestError};
use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec};
use plimsoll_api::validation::{is_label_key, is_label_value};
use plimsoll_model::quantity::Quantity;
use serde_json::Value;
use std::collections::BTreeMap;

/// Checks the pod at field `path` of the manifest.
pub(super) fn check(manifest: &Manifest, spec: Option<&PodSpec>, path: &str) -> Result<(), Vec<ManifestError>> {
    let Some(spec) = spec.filter(|spec| !spec.containers.is_empty()) else {
        return Err(vec![manifest.fault(format!("{path}.containers"), "must have at least one container")]);
    };
    let mut faults = Vec::new();
    for (list, containers) in
        [("containers", Some(&spec.containers)), ("initContainers", spec.init_containers.as_ref())]
    {
        for (index, container) in containers.into_iter().flatten().enumerate() {
            limits(manifest, container, &format!("{path}.{list}[{index}]"), &mut faults);
        }
    }
    for (key, value) in spec.node_selector.iter().flatten() {
        if !is_label_key(key) || !is_label_value(value) {
            faults.push(manifest.fault(format!("{path}.nodeSelector"), format!("{key:?}: {value:?} is not a label")));
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// Checks that the selector of a workload matches the labels of its template: no API server takes one that does not.
pub(super) fn check_selector(manifest: &Manifest, template: &PodTemplateSpec) -> Result<(), Vec<ManifestError>> {
    let none = BTreeMap::new();
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref()).unwrap_or(&none);
    let wanted = manifest.value.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
    for (key, value) in wanted.into_iter().flatten() {
        let found = labels.get(key).map(String::as_str);
        if value.as_str().is_some() && found != value.as_str() {
            let text = found.map_or_else(|| "no such label".to_owned(), |found| format!("{key}: {found}"));
            let problem = format!(
                "{key}: {} does not match spec.template.metadata.labels, which has {text}",
                value.as_str().unwrap_or_default()
            );
            return Err(vec![manifest.fault("spec.selector.matchLabels", problem)]);
        }
    }
    Ok(())
}

/// A request above its limit. Quantities that cannot be read are somebody else's.
fn limits(manifest: &Manifest, container: &Container, path: &str, faults: &mut Vec<ManifestError>) {
    let Some(resources) = &container.resources else { return };
    for (name, request) in resources.requests.iter().flatten() {
        let Some(limit) = resources.limits.as_ref().and_then(|limits| limits.get(name)) else { continue };
        let amount = |text: &str| Quantity::parse(text).ok()?.amount_of(name);
        if let (Some(wanted), Some(most)) = (amount(&request.0), amount(&limit.0))
            && wanted > most
        {
            let problem = format!("{} is more than the limit, {}", request.0, limit.0);
            faults.push(manifest.fault(format!("{path}.resources.requests.{name}"), problem));
        }
    }
}
