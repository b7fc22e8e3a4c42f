//! Computes pod requests as kube-scheduler does.

use crate::problems::Fault;
use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as KubeQuantity;
use plimsoll_api::Pod;
use plimsoll_api::pod::PodStatus;
use plimsoll_model::quantity::{Quantity, parse_resources};
use plimsoll_model::resources::{CPU, MEMORY, PODS, Resources};
use std::collections::BTreeMap;

/// Effective requests of a pod. Starts with the larger of the sum of all containers and the peak of the init
/// containers, where sidecars keep running. Pod-level resources then override the result. Finally adds the overhead and
/// `pods: 1`.
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
/// The field that is negative or not a quantity, from the pod's root.
pub fn effective_requests(spec: &PodSpec) -> Result<Resources, Fault> {
    let mut running = Resources::new();
    for (index, container) in spec.containers.iter().enumerate() {
        running.add(&container_requests(container, &format!("spec.containers[{index}]"))?);
    }
    let (mut sidecars, mut starting) = (Resources::new(), Resources::new());
    for (index, container) in spec.init_containers.iter().flatten().enumerate() {
        let mut requests = container_requests(container, &format!("spec.initContainers[{index}]"))?;
        if is_sidecar(container) {
            running.add(&requests);
            sidecars.add(&requests);
            starting.raise_to(&sidecars);
        } else {
            requests.add(&sidecars);
            starting.raise_to(&requests);
        }
    }
    running.raise_to(&starting);
    if let Some(pod_level) = &spec.resources {
        apply_pod_level(&mut running, pod_level)?;
    }
    running.add(&amounts(spec.overhead.as_ref(), "spec.overhead")?);
    running.set(PODS, running.get(PODS).saturating_add(1));
    Ok(running)
}

/// Returns the spec of a pod that is being resized in place, if other amounts count than it requests. Until the kubelet
/// has finished, the larger of the requested and the allocated amount counts. If the kubelet has rejected the resize,
/// only the allocated amount counts.
pub(crate) fn resized(pod: &Pod, spec: &PodSpec) -> Option<PodSpec> {
    let PodStatus { allocated, resize_infeasible, .. } = &pod.status;
    if allocated.is_empty() {
        return None;
    }
    let mut resized = spec.clone();
    let containers = resized.containers.iter_mut().chain(resized.init_containers.iter_mut().flatten());
    let of_containers = containers.map(|it| (it.name.as_str(), it.resources.as_mut()));
    let of_pod = ("", resized.resources.as_mut());
    for (container, resources) in of_containers.chain([of_pod]) {
        // A resize removes no request.
        for (name, requested) in resources.and_then(|it| it.requests.as_mut()).into_iter().flatten() {
            let amount = |quantity: &KubeQuantity| Quantity::parse(&quantity.0).ok()?.amount_of(name);
            let mut allocations = allocated.iter().filter(|it| it.container == container).peekable();
            let is_known = allocations.peek().is_some();
            let Some(has) = allocations.filter_map(|it| it.amounts.get(name)).max_by_key(|it| amount(it)) else {
                // The rejected resize adds this request.
                if *resize_infeasible && is_known && matches!(name.as_str(), CPU | MEMORY) {
                    *requested = KubeQuantity("0".to_owned());
                }
                continue;
            };
            let amounts = amount(has).zip(amount(requested));
            if amounts.is_some_and(|(has, requested)| has > requested || *resize_infeasible) {
                *requested = has.clone();
            }
        }
    }
    Some(resized).filter(|resized| resized != spec)
}

/// Whether an init container is a sidecar, which runs together with the other containers.
pub(crate) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Requests of a container. As in the API server, a limit without a request is also the request.
fn container_requests(container: &Container, path: &str) -> Result<Resources, Fault> {
    let Some(resources) = &container.resources else { return Ok(Resources::new()) };
    let mut requests = amounts(resources.limits.as_ref(), &format!("{path}.resources.limits"))?;
    for (name, amount) in amounts(resources.requests.as_ref(), &format!("{path}.resources.requests"))?.iter() {
        requests.set(name, amount);
    }
    Ok(requests)
}

/// Applies pod-level resources. A pod-level request replaces the containers' sum. A pod-level limit is used for
/// resources that no container requests, and for huge pages, which cannot be overcommitted.
fn apply_pod_level(total: &mut Resources, pod_level: &ResourceRequirements) -> Result<(), Fault> {
    let is_huge_pages = |name: &str| name.starts_with("hugepages-");
    let supported = |name: &str| name == CPU || name == MEMORY || is_huge_pages(name);
    for (name, amount) in amounts(pod_level.limits.as_ref(), "spec.resources.limits")?.iter() {
        if supported(name) && (is_huge_pages(name) || !total.contains(name)) {
            total.set(name, amount);
        }
    }
    for (name, amount) in amounts(pod_level.requests.as_ref(), "spec.resources.requests")?.iter() {
        if supported(name) {
            total.set(name, amount);
        }
    }
    Ok(())
}

/// Parses quantities by resource name. Rejects empty names and negative quantities.
pub(crate) fn amounts(list: Option<&BTreeMap<String, KubeQuantity>>, path: &str) -> Result<Resources, Fault> {
    let Some(list) = list else { return Ok(Resources::new()) };
    parsed(list.iter().map(|(name, quantity)| (name, &quantity.0)), path)
}

/// Like [`amounts`], of quantities as text.
pub(crate) fn parsed<'a>(
    list: impl IntoIterator<Item = (&'a String, &'a String)>,
    path: &str,
) -> Result<Resources, Fault> {
    let amounts = parse_resources(list).map_err(|(name, error)| Fault::new(format!("{path}.{name}"), error))?;
    if let Some((name, _)) = amounts.iter().find(|(_, amount)| *amount < 0) {
        return Err(Fault::new(format!("{path}.{name}"), "must not be negative"));
    }
    Ok(amounts)
}

#[cfg(test)]
mod tests;
