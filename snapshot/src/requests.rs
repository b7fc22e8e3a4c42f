//! What a pod requests, as kube-scheduler counts it.

use crate::problems::Fault;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as KubeQuantity;
use plimsoll_model::quantity::{Quantity, parse_resources};
use plimsoll_model::resources::{CPU, MEMORY, PODS, Resources};
use std::collections::BTreeMap;

/// The request of a pod: the larger of what its containers need together and what its init containers need one after the
/// other (sidecars staying), then what the pod asks for as a whole, plus overhead, with `pods: 1`.
///
/// ```
/// use plimsoll_snapshot::effective_requests;
/// use serde_json::json;
///
/// let spec = serde_json::from_value(json!({
///     "containers": [
///         {"name": "app", "resources": {"requests": {"cpu": "1"}}},
///         {"name": "proxy", "resources": {"requests": {"cpu": "250m"}}},
///     ],
///     "initContainers": [{"name": "migrate", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
/// }))?;
/// let requests = effective_requests(&spec)?;
/// assert_eq!((requests.get("cpu"), requests.get("memory"), requests.get("pods")), (1250, 1 << 30, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// The field that is not a quantity or is negative, from the pod's root.
pub fn effective_requests(spec: &PodSpec) -> Result<Resources, Fault> {
    let mut running = Resources::new();
    for (index, container) in spec.containers.iter().enumerate() {
        running.add(&container_requests(container, &format!("spec.containers[{index}]"))?);
    }
    let (mut sidecars, mut starting) = (Resources::new(), Resources::new());
    for (index, container) in spec.init_containers.iter().flatten().enumerate() {
        let mut own = container_requests(container, &format!("spec.initContainers[{index}]"))?;
        if is_sidecar(container) {
            running.add(&own);
            sidecars.add(&own);
            starting.raise_to(&sidecars);
        } else {
            own.add(&sidecars);
            starting.raise_to(&own);
        }
    }
    running.raise_to(&starting);
    if let Some(whole) = &spec.resources {
        apply_pod_level(&mut running, whole)?;
    }
    running.add(&amounts(spec.overhead.as_ref(), "spec.overhead")?);
    running.set(PODS, running.get(PODS).saturating_add(1));
    Ok(running)
}

/// The spec of a pod that is being resized in place, where it has or gets more than it asks for: the larger amount counts until the
/// kubelet is done.
pub(crate) fn resized(pod: &Pod, spec: &PodSpec) -> Option<PodSpec> {
    let status = pod.status.as_ref()?;
    let mut resized = None;
    for known in status.container_statuses.iter().chain(&status.init_container_statuses).flatten() {
        let granted = known.allocated_resources.iter();
        let actual = known.resources.iter().filter_map(|resources| resources.requests.as_ref());
        for (name, amount) in granted.chain(actual).flatten() {
            let bytes = |text: &str| Quantity::parse(text).ok()?.amount_of(name);
            let whole = resized.get_or_insert_with(|| spec.clone());
            let containers = whole.containers.iter_mut().chain(whole.init_containers.iter_mut().flatten());
            for container in containers.filter(|container| container.name == known.name) {
                let requests = container.resources.get_or_insert_default().requests.get_or_insert_default();
                let asked = requests.get(name).and_then(|asked| bytes(&asked.0));
                // What is not asked for at all cannot be resized.
                if asked.zip(bytes(&amount.0)).is_some_and(|(asked, has)| has > asked) {
                    requests.insert(name.clone(), amount.clone());
                }
            }
        }
    }
    resized.filter(|resized| resized != spec)
}

/// Whether an init container goes on running beside the others.
pub(crate) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Requests of a container; a limit without a request is one, as the API server has it.
fn container_requests(container: &Container, path: &str) -> Result<Resources, Fault> {
    let Some(resources) = &container.resources else { return Ok(Resources::new()) };
    let mut requests = amounts(resources.limits.as_ref(), &format!("{path}.resources.limits"))?;
    for (name, amount) in amounts(resources.requests.as_ref(), &format!("{path}.resources.requests"))?.iter() {
        requests.set(name, amount);
    }
    Ok(requests)
}

/// What the pod asks for as a whole stands in place of its containers' sum; its limit counts where no container asks.
fn apply_pod_level(total: &mut Resources, whole: &ResourceRequirements) -> Result<(), Fault> {
    let supported = |name: &str| name == CPU || name == MEMORY || name.starts_with("hugepages-");
    for (name, amount) in amounts(whole.limits.as_ref(), "spec.resources.limits")?.iter() {
        if supported(name) && !total.contains(name) {
            total.set(name, amount);
        }
    }
    for (name, amount) in amounts(whole.requests.as_ref(), "spec.resources.requests")?.iter() {
        if supported(name) {
            total.set(name, amount);
        }
    }
    Ok(())
}

/// Quantities by resource name, none of them negative.
pub(crate) fn amounts(list: Option<&BTreeMap<String, KubeQuantity>>, path: &str) -> Result<Resources, Fault> {
    let Some(list) = list else { return Ok(Resources::new()) };
    let amounts = parse_resources(list.iter().map(|(name, quantity)| (name, &quantity.0)))
        .map_err(|(name, error)| Fault::new(format!("{path}.{name}"), error))?;
    if let Some((name, _)) = amounts.iter().find(|(_, amount)| *amount < 0) {
        return Err(Fault::new(format!("{path}.{name}"), "must not be negative"));
    }
    Ok(amounts)
}

#[cfg(test)]
mod tests;
