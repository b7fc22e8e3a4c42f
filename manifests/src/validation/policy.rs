//! PodDisruptionBudgets and PriorityClasses.

use super::{Faults, Path};
use crate::{Manifest, ManifestError};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// The highest priority of classes that are not the system's own.
const MAX_USER_PRIORITY: i32 = 1_000_000_000;
const SYSTEM_PREFIX: &str = "system-";

/// Checks a PodDisruptionBudget.
pub(crate) fn disruption_budget(manifest: &Manifest, budget: &PodDisruptionBudget) -> Result<(), Vec<ManifestError>> {
    let mut faults = Faults::new(manifest);
    if let Some(spec) = &budget.spec {
        let at = Path::root("spec");
        if spec.min_available.is_some() && spec.max_unavailable.is_some() {
            faults.add(&at.field("maxUnavailable"), "minAvailable and maxUnavailable exclude each other");
        }
        for (field, value) in [("minAvailable", &spec.min_available), ("maxUnavailable", &spec.max_unavailable)] {
            if let Some(problem) = value.as_ref().and_then(number_problem) {
                faults.add(&at.field(field), problem);
            }
        }
        let policy = spec.unhealthy_pod_eviction_policy.as_deref();
        faults.unless_one_of(&at.field("unhealthyPodEvictionPolicy"), policy, &["IfHealthyBudget", "AlwaysAllow"]);
    }
    faults.into_result()
}

/// What is wrong with a number of pods or a percentage of them.
fn number_problem(value: &IntOrString) -> Option<String> {
    match value {
        IntOrString::Int(number) => (*number < 0).then(|| "must not be negative".to_owned()),
        IntOrString::String(text) => {
            let digits = text.strip_suffix('%').filter(|text| !text.is_empty());
            match digits.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit())) {
                None => {
                    let advice = if text.parse::<i32>().is_ok() { "; remove the quotes" } else { "" };
                    Some(format!("{text:?} is neither a number nor a percentage such as 50%{advice}"))
                }
                Some(digits) => {
                    let more = digits.parse::<u64>().map_or(true, |percent| percent > 100);
                    more.then(|| format!("{text} is more than 100%"))
                }
            }
        }
    }
}

/// Checks a PriorityClass.
pub(crate) fn priority_class(manifest: &Manifest, class: &PriorityClass) -> Result<(), Vec<ManifestError>> {
    let mut faults = Faults::new(manifest);
    let name = class.metadata.name.as_deref().unwrap_or_default();
    if !name.starts_with(SYSTEM_PREFIX) && class.value.is_some_and(|value| value > MAX_USER_PRIORITY) {
        let problem =
            format_args!("must be at most {MAX_USER_PRIORITY}; only names with {SYSTEM_PREFIX} may have more");
        faults.add(&Path::root("value"), problem);
    }
    faults.into_result()
}
