//! Pod templates and the objects that have one.

use super::{Faults, Path, is_dns_label, pod, storage};
use crate::{Manifest, ManifestError};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use std::collections::BTreeMap;

/// Where a workload has its template.
const TEMPLATE: Path<'_> = Path::root("spec.template");

/// Checks the pod of a PodTemplate.
pub(crate) fn pod_template(manifest: &Manifest, of: Option<&PodTemplateSpec>) -> Result<(), Vec<ManifestError>> {
    let mut faults = Faults::new(manifest);
    template(&mut faults, &Path::root("template"), of);
    faults.into_result()
}

/// Checks a workload that keeps pods running: one of the selector's pods must be what the template makes.
pub(crate) fn replicated(
    manifest: &Manifest,
    selector: &LabelSelector,
    of: &PodTemplateSpec,
) -> Result<(), Vec<ManifestError>> {
    let mut faults = Faults::new(manifest);
    template(&mut faults, &TEMPLATE, Some(of));
    restart_policy(&mut faults, of, &["Always"]);
    selects(&mut faults, selector, of);
    faults.into_result()
}

/// Checks the template of a Job, whose pods end.
pub(crate) fn job(manifest: &Manifest, of: &PodTemplateSpec) -> Result<(), Vec<ManifestError>> {
    let mut faults = Faults::new(manifest);
    template(&mut faults, &TEMPLATE, Some(of));
    restart_policy(&mut faults, of, &["OnFailure", "Never"]);
    faults.into_result()
}

/// Checks the claims of a StatefulSet. Each is also a volume of that name.
pub(crate) fn claim_templates(manifest: &Manifest, claims: &[PersistentVolumeClaim]) -> Result<(), Vec<ManifestError>> {
    let mut faults = Faults::new(manifest);
    let spec = Path::root("spec");
    for (index, claim) in claims.iter().enumerate() {
        let at = spec.item("volumeClaimTemplates", index);
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        if !is_dns_label(name) {
            faults.add(&at.field("metadata.name"), format_args!("{name:?} is not the name of a volume"));
        }
        storage::claim_spec(&mut faults, &at.field("spec"), claim.spec.as_ref());
    }
    faults.into_result()
}

fn template(faults: &mut Faults<'_>, at: &Path<'_>, of: Option<&PodTemplateSpec>) {
    let metadata = of.and_then(|template| template.metadata.as_ref());
    let labels = metadata.and_then(|metadata| metadata.labels.as_ref()).into_iter().flatten();
    faults.labels(&at.field("metadata.labels"), labels.map(|(key, value)| (key, value.as_str())));
    pod::pod_spec(faults, &at.field("spec"), of.and_then(|template| template.spec.as_ref()));
}

/// Checks for a policy that pods may have, but not those of this workload. Others have been found with the pod.
fn restart_policy(faults: &mut Faults<'_>, of: &PodTemplateSpec, allowed: &[&str]) {
    let policy = of.spec.as_ref().map_or("Always", |spec| pod::restart_policy(spec).unwrap_or("Always"));
    if pod::RESTART_POLICIES.contains(&policy) && !allowed.contains(&policy) {
        let problem = format_args!("must be {} here, not {policy}", allowed.join(" or "));
        faults.add(&TEMPLATE.field("spec.restartPolicy"), problem);
    }
}

fn selects(faults: &mut Faults<'_>, selector: &LabelSelector, of: &PodTemplateSpec) {
    const LABELS: &str = "spec.template.metadata.labels";
    let none = BTreeMap::new();
    let labels = of.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref()).unwrap_or(&none);
    let at = Path::root("spec.selector");
    let mut is_empty = true;
    for (key, value) in selector.match_labels.iter().flatten() {
        is_empty = false;
        let found = labels.get(key);
        if found != Some(value) {
            let found = found.map_or_else(|| "no such label".to_owned(), |found| format!("{key}: {found}"));
            let problem = format_args!("{key}: {value} does not match {LABELS}, which has {found}");
            faults.add(&at.field("matchLabels"), problem);
        }
    }
    for (index, requirement) in selector.match_expressions.iter().flatten().enumerate() {
        is_empty = false;
        let at = at.item("matchExpressions", index);
        match matches(requirement, labels) {
            Some(true) => {}
            Some(false) => faults.add(&at, format_args!("does not match {LABELS}")),
            None => faults.add(&at, "is not an operator with the values that it needs"),
        }
    }
    if is_empty {
        faults.add(&at, format_args!("must select {LABELS}"));
    }
}

/// Whether labels match; `None` if the requirement is none.
fn matches(requirement: &LabelSelectorRequirement, labels: &BTreeMap<String, String>) -> Option<bool> {
    let values = requirement.values.as_deref().unwrap_or_default();
    let value = labels.get(&requirement.key);
    match requirement.operator.as_str() {
        "In" if !values.is_empty() => Some(value.is_some_and(|value| values.contains(value))),
        "NotIn" if !values.is_empty() => Some(!value.is_some_and(|value| values.contains(value))),
        "Exists" if values.is_empty() => Some(value.is_some()),
        "DoesNotExist" if values.is_empty() => Some(value.is_none()),
        _ => None,
    }
}
