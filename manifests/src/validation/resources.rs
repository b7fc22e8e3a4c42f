//! Requests and limits of containers and pods. Quantities that cannot be read are left to the snapshot.

use super::{Faults, Path};
use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as KubeQuantity;
use plimsoll_api::validation::is_label_key;
use plimsoll_model::quantity::{Quantity, format_amount, parse_resources};
use plimsoll_model::resources::{CPU, EPHEMERAL_STORAGE, MEMORY};
use plimsoll_snapshot::effective_requests;
use std::collections::BTreeMap;

const HUGE_PAGES: &str = "hugepages-";
/// The domain of Kubernetes' own resources.
const NATIVE_DOMAIN: &str = "kubernetes.io/";

/// What is wrong with the name of a resource.
type NameRule = fn(&str) -> Option<&'static str>;

pub(super) fn of_container(faults: &mut Faults<'_>, at: &Path<'_>, container: &Container) {
    if let Some(resources) = &container.resources {
        requirements(faults, &at.field("resources"), resources, container_name);
    }
}

/// Checks resources of the pod as a whole, which its containers share.
pub(super) fn of_pod(faults: &mut Faults<'_>, at: &Path<'_>, spec: &PodSpec) {
    let Some(resources) = &spec.resources else { return };
    let below = at.field("resources");
    requirements(faults, &below, resources, pod_name);
    container_limits(faults, at, spec, resources);
    let containers_alone = PodSpec { resources: None, overhead: None, ..spec.clone() };
    let Ok(together) = effective_requests(&containers_alone) else { return };
    let requested = |name: &str| resources.requests.as_ref().is_some_and(|requests| requests.contains_key(name));
    // Without a request, the pod's is that of the containers, or the limit for huge pages, which must not be less.
    let implied = resources.limits.iter().flatten().filter(|(name, _)| !requested(name));
    let given = resources.requests.iter().flatten().map(|pair| ("requests", pair));
    for (list, (name, quantity)) in given.chain(implied.map(|pair| ("limits", pair))) {
        let wanted = together.get(name);
        if amount(quantity).and_then(|quantity| quantity.amount_of(name)).is_some_and(|has| has < wanted) {
            let wanted = format_amount(name, wanted);
            let at = below.field(list);
            faults.add(
                &at.field(name),
                format_args!("{} is less than what the containers request, {wanted}", quantity.0),
            );
        }
    }
}

fn container_limits(faults: &mut Faults<'_>, at: &Path<'_>, spec: &PodSpec, of_pod: &ResourceRequirements) {
    for (index, container) in spec.containers.iter().enumerate() {
        let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
        for (name, limit) in limits.into_iter().flatten() {
            let Some(most) = of_pod.limits.as_ref().and_then(|limits| limits.get(name)) else { continue };
            if amount(limit).zip(amount(most)).is_some_and(|(limit, most)| limit > most) {
                let at = at.item("containers", index);
                let at = at.field("resources.limits");
                faults.add(&at.field(name), format_args!("{} is more than the limit of the pod, {}", limit.0, most.0));
            }
        }
    }
}

fn requirements(faults: &mut Faults<'_>, at: &Path<'_>, resources: &ResourceRequirements, rule: NameRule) {
    amounts(faults, &at.field("limits"), resources.limits.as_ref(), rule);
    amounts(faults, &at.field("requests"), resources.requests.as_ref(), rule);
    for (name, request) in resources.requests.iter().flatten() {
        // What cannot be overcommitted needs a limit as well. It can only equal the request, so it may be absent here.
        let Some(limit) = resources.limits.as_ref().and_then(|limits| limits.get(name)) else { continue };
        let Some((wanted, most)) = amount(request).zip(amount(limit)) else { continue };
        let at = at.field("requests");
        if wanted > most {
            faults.add(&at.field(name), format_args!("{} is more than the limit, {}", request.0, limit.0));
        } else if wanted < most && !is_overcommitted(name) {
            let reason = "the two must be equal, since the resource cannot be overcommitted";
            faults.add(&at.field(name), format_args!("{} is less than the limit, {}: {reason}", request.0, limit.0));
        }
    }
}

/// Checks amounts that admission adds to new pods. The snapshot would report them as faults of these pods.
pub(super) fn of_new_pods(faults: &mut Faults<'_>, at: &Path<'_>, list: Option<&BTreeMap<String, KubeQuantity>>) {
    for (name, quantity) in list.into_iter().flatten() {
        match parse_resources([(name, &quantity.0)]) {
            Err((_, error)) => faults.add(&at.field(name), error),
            Ok(read) if read.get(name) < 0 => faults.add(&at.field(name), "must not be negative"),
            Ok(_) => {}
        }
    }
    amounts(faults, at, list, container_name);
}

fn amounts(faults: &mut Faults<'_>, at: &Path<'_>, list: Option<&BTreeMap<String, KubeQuantity>>, rule: NameRule) {
    for (name, quantity) in list.into_iter().flatten() {
        if let Some(problem) = rule(name) {
            faults.add(&at.field(name), problem);
        } else if let Some(problem) = amount(quantity).and_then(|quantity| amount_problem(name, quantity)) {
            faults.add(&at.field(name), format_args!("{} {problem}", quantity.0));
        }
    }
}

fn amount(quantity: &KubeQuantity) -> Option<Quantity> {
    Quantity::parse(&quantity.0).ok()
}

fn amount_problem(name: &str, quantity: Quantity) -> Option<&'static str> {
    let whole = quantity.value_ceil().filter(|value| Quantity::from_units(*value) == quantity);
    if let Some(page) = name.strip_prefix(HUGE_PAGES) {
        let page = Quantity::parse(page).ok()?.value_ceil()?;
        let pages_only = whole.is_some_and(|bytes| bytes.checked_rem(page) == Some(0));
        return (!pages_only).then_some("is not a multiple of the page size");
    }
    (!is_native(name) && whole.is_none()).then_some("is not a whole number, as an extended resource needs")
}

/// Whether more of the resource can be promised than there is. Then a request may be less than the limit.
fn is_overcommitted(name: &str) -> bool {
    is_native(name) && !name.starts_with(HUGE_PAGES)
}

/// Whether the resource is Kubernetes' own and no extended one.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains(NATIVE_DOMAIN)
}

fn container_name(name: &str) -> Option<&'static str> {
    // Names of resources have the form of label keys.
    if !is_label_key(name) {
        return Some("is not the name of a resource");
    }
    let known = name.contains('/') || name.starts_with(HUGE_PAGES) || [CPU, MEMORY, EPHEMERAL_STORAGE].contains(&name);
    (!known).then_some("is no resource of containers; the name of an extended one has a domain, such as nvidia.com/gpu")
}

fn pod_name(name: &str) -> Option<&'static str> {
    let known = name.starts_with(HUGE_PAGES) || [CPU, MEMORY].contains(&name);
    (!known).then_some("is no resource of pods, which can have cpu, memory and huge pages; others belong to containers")
}
