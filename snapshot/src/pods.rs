//! Pods: which are to be placed, which run where, and which are nobody's business.

use crate::pdbs::Budgets;
use crate::places::Places;
use crate::problems::{Fault, Problem, full_name, full_name_of};
use crate::replicas::Replicas;
use crate::shapes::{Shapes, Template, Tie};
use crate::{Extra, Objects, Source, kube_time, on_demand, requests};
use k8s_openapi::api::core::v1::{NodeSelectorRequirement, Pod as KubePod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use plimsoll_api::duration::parse_go;
use plimsoll_model::identity::{NodeName, PodUid};
use plimsoll_model::names::{annotation, label};
use plimsoll_model::snapshot::{IgnoredPod, Pod, PodState};
use plimsoll_model::time::Timestamp;
use std::collections::BTreeSet;

/// What an ordinary pod's eviction costs, in thousandths.
const EVICTION_COST: i64 = 1000;
const MAX_EVICTION_COST: i64 = 10_000;
/// The pod-deletion-cost that counts as much as an ordinary pod.
const DELETION_COST_UNIT: i64 = 1 << 27;
/// The priority that counts as much as an ordinary pod.
const PRIORITY_UNIT: i64 = 1 << 25;
/// The annotation of a pod that a kubelet runs from its own files.
const MIRROR: &str = "kubernetes.io/config.mirror";

pub(crate) fn build(
    objects: &Objects,
    extra: &Extra,
    places: &Places<'_>,
    budgets: &Budgets<'_>,
    shapes: &mut Shapes<'_>,
    problems: &mut Vec<Problem>,
) -> Pods {
    let mut found = Pods::default();
    found.pods.reserve(objects.pods.len() + objects.replicas.iter().map(Replicas::len).sum::<usize>());
    for pod in &objects.pods {
        let Some(spec) = pod.spec.as_ref().filter(|_| !is_terminal(pod)) else { continue };
        let identity = Identity { uid: uid(pod), name: pod.metadata.name.clone().unwrap_or_default() };
        let Some(state) = found.state(pod, spec, &identity, extra, places) else { continue };
        problems.extend(ignored_wish(pod));
        match read(pod, spec, budgets, shapes) {
            Ok(common) => found.pods.push(identity.pod(&common, state)),
            Err(fault) => {
                problems.push(Problem::of("Pod", &pod.metadata, fault));
                found.unread.extend(node_of(state));
            }
        }
    }
    for replicas in &objects.replicas {
        add_replicas(replicas, extra, places, (budgets, shapes), &mut found, problems);
    }
    found
}

/// Adds the pods of a workload. What they have in common is read once, for the first of them that is not ignored.
fn add_replicas(
    replicas: &Replicas,
    extra: &Extra,
    places: &Places<'_>,
    (budgets, shapes): (&Budgets<'_>, &mut Shapes<'_>),
    found: &mut Pods,
    problems: &mut Vec<Problem>,
) {
    let template = replicas.template();
    let Some(spec) = &template.spec else { return };
    let wish = ignored_wish(template);
    let mut common: Option<Result<Common, Fault>> = None;
    for name in replicas.names() {
        let full_name = full_name_of(&template.metadata, &name);
        let identity = Identity { uid: PodUid(full_name), name };
        let Some(state) = found.state(template, spec, &identity, extra, places) else { continue };
        problems.extend(wish.clone().map(|wish| Problem { name: identity.uid.0.clone(), ..wish }));
        match common.get_or_insert_with(|| read(template, spec, budgets, shapes)) {
            Ok(common) => found.pods.push(identity.pod(common, state)),
            Err(fault) => {
                let problem = Problem::of("Pod", &template.metadata, fault.clone());
                problems.push(Problem { name: identity.uid.0, ..problem });
                found.unread.extend(node_of(state));
            }
        }
    }
}

/// What no two pods share.
struct Identity {
    uid: PodUid,
    name: String,
}

impl Identity {
    fn pod(self, common: &Common, state: PodState) -> Pod {
        Pod { uid: self.uid, name: self.name, state, ..common.0.clone() }
    }
}

/// A pod without UID, name and state: the same for all replicas of a workload.
struct Common(Pod);

fn node_of(state: PodState) -> Option<NodeName> {
    match state {
        PodState::Bound(node) | PodState::Reserved(node) => Some(node),
        PodState::Pending => None,
    }
}

/// What became of a cluster's pods.
#[derive(Debug, Default)]
pub(crate) struct Pods {
    pub(crate) pods: Vec<Pod>,
    pub(crate) ignored: Vec<IgnoredPod>,
    /// Nodes with pods that cannot be read: nobody knows how much room those take.
    pub(crate) unread: BTreeSet<NodeName>,
}

impl Pods {
    /// Where the pod is; `None` if it is ignored.
    fn state(
        &mut self,
        pod: &KubePod,
        spec: &PodSpec,
        identity: &Identity,
        extra: &Extra,
        places: &Places<'_>,
    ) -> Option<PodState> {
        match place(pod, spec, &identity.uid, extra, places) {
            Ok(state) => Some(state),
            Err(reason) => {
                let pod = full_name_of(&pod.metadata, &identity.name);
                self.ignored.push(IgnoredPod { uid: identity.uid.clone(), pod, reason });
                None
            }
        }
    }
}

/// What the pod says of On-Demand, if that cannot be read. Nothing else rests on it, so the pod is as any other without it.
#[must_use]
pub fn ignored_wish(pod: &KubePod) -> Option<Problem> {
    let fault = on_demand::wish(&pod.metadata).err().filter(|_| !stays_with_node(pod))?;
    Some(Problem::of_field("Pod", &pod.metadata, fault))
}

/// Where a pod is, or why nobody is to place it.
fn place(pod: &KubePod, spec: &PodSpec, uid: &PodUid, extra: &Extra, places: &Places<'_>) -> Result<PodState, String> {
    if let Some(node) = node_name(pod) {
        let ends = pod.metadata.deletion_timestamp.is_some();
        return places.bound(uid, node, ends);
    }
    if let Some(reason) = is_nobodys(pod, spec) {
        return Err(reason.to_owned());
    }
    if let Some(reserved) = places.reserved(uid) {
        return reserved;
    }
    // kube-scheduler keeps the room of a node that it has nominated, and looks at the pod again.
    if let Some(Ok(PodState::Bound(node))) = nominated(pod).map(|node| places.bound(uid, node, true)) {
        return Ok(PodState::Reserved(node));
    }
    match extra.source {
        Source::Cluster => undecided(pod).map_or(Ok(PodState::Pending), |reason| Err(reason.to_owned())),
        Source::Files => Ok(PodState::Pending),
    }
}

/// Why an unbound pod is never to be placed.
fn is_nobodys(pod: &KubePod, spec: &PodSpec) -> Option<&'static str> {
    if pod.metadata.deletion_timestamp.is_some() {
        return Some("it is being deleted");
    }
    if stays_with_node(pod) {
        return Some("it belongs to one node: its owner is a DaemonSet or a Node");
    }
    if spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()) {
        return Some("it has scheduling gates");
    }
    avoids_pools(spec)
}

/// Why kube-scheduler may yet place an unbound pod itself (rule 6).
fn undecided(pod: &KubePod) -> Option<&'static str> {
    if nominated(pod).is_some() {
        return Some("kube-scheduler has nominated a node for it that is not known");
    }
    if !is_unschedulable(pod) {
        return Some("kube-scheduler has not found it unschedulable");
    }
    None
}

/// The node that kube-scheduler has chosen for an unbound pod, once others have left it.
fn nominated(pod: &KubePod) -> Option<&str> {
    pod.status.as_ref()?.nominated_node_name.as_deref().filter(|name| !name.is_empty())
}

/// Whether the pod's scheduler has looked at it and found no place.
fn is_unschedulable(pod: &KubePod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    conditions
        .filter(|condition| condition.type_ == "PodScheduled")
        .any(|condition| condition.status == "False" && condition.reason.as_deref() == Some("Unschedulable"))
}

/// Whether nothing more is to be heard about where the pod goes: it has a node, or none was found, or it is not to have one.
#[must_use]
pub fn is_decided(pod: &KubePod) -> bool {
    let held_back = pod.spec.as_ref().is_some_and(|spec| is_nobodys(pod, spec).is_some());
    node_name(pod).is_some() || is_terminal(pod) || held_back || is_unschedulable(pod)
}

/// Why no node of a pool is for this pod, whatever the pools are like.
fn avoids_pools(spec: &PodSpec) -> Option<&'static str> {
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    let refuses = |requirement: &NodeSelectorRequirement| {
        requirement.key == label::NODE_POOL && requirement.operator == "DoesNotExist"
    };
    let refused = terms.iter().all(|term| term.match_expressions.iter().flatten().any(refuses));
    (refused && !terms.is_empty()).then_some("its node affinity excludes every NodePool")
}

fn read(pod: &KubePod, spec: &PodSpec, budgets: &Budgets<'_>, shapes: &mut Shapes<'_>) -> Result<Common, Fault> {
    let metadata = &pod.metadata;
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let name = metadata.name.as_deref().unwrap_or_default();
    let stays_with_node = stays_with_node(pod);
    let labels = metadata.labels.clone().unwrap_or_default();
    let on_demand = on_demand::wish(metadata).unwrap_or_default().filter(|_| !stays_with_node);
    let tie = match node_name(pod) {
        _ if stays_with_node => Tie::Stays,
        Some(_) => Tie::Runs,
        None => Tie::None,
    };
    let resized = requests::resized(pod, spec);
    let spec = resized.as_ref().unwrap_or(spec);
    let shape = shapes.add(&Template { namespace, name, labels, spec, on_demand }, tie)?;
    Ok(Common(Pod {
        uid: PodUid::default(),
        namespace: namespace.to_owned(),
        name: String::new(),
        shape,
        state: PodState::Pending,
        created: kube_time::created(metadata),
        stays_with_node,
        terminating: metadata.deletion_timestamp.is_some(),
        returns: !stays_with_node && returns(pod),
        do_not_disrupt_until: do_not_disrupt_until(pod),
        eviction_cost_milli: eviction_cost(pod, shapes.priority(spec)),
        pod_disruption_budgets: budgets.covering(pod),
        buffer: None,
    }))
}

fn uid(pod: &KubePod) -> PodUid {
    PodUid(pod.metadata.uid.clone().unwrap_or_else(|| full_name(&pod.metadata)))
}

/// The node that the pod is bound to.
pub(crate) fn node_name(pod: &KubePod) -> Option<&str> {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).filter(|name| !name.is_empty())
}

/// Whether the pod has ended and takes no room.
pub(crate) fn is_terminal(pod: &KubePod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// What the pod's Ready condition says, if there is one.
pub(crate) fn ready(pod: &KubePod) -> Option<bool> {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref())?;
    conditions.iter().find(|condition| condition.type_ == "Ready").map(|condition| condition.status == "True")
}

fn stays_with_node(pod: &KubePod) -> bool {
    let owners = pod.metadata.owner_references.iter().flatten();
    let mirror = pod.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(MIRROR));
    mirror || owners.into_iter().any(|owner| matches!(owner.kind.as_str(), "DaemonSet" | "Node"))
}

/// Whether the pod's owner makes it anew under the same name.
fn returns(pod: &KubePod) -> bool {
    let of_set = |owner: &OwnerReference| owner.kind == "StatefulSet" && owner.api_version.starts_with("apps/");
    pod.metadata.owner_references.iter().flatten().any(of_set)
}

/// `true` protects for ever, a duration since the pod's start; anything else says nothing.
fn do_not_disrupt_until(pod: &KubePod) -> Option<Timestamp> {
    let value = pod.metadata.annotations.as_ref()?.get(annotation::DO_NOT_DISRUPT)?;
    if value == "true" {
        return Some(Timestamp(i64::MAX));
    }
    let duration = parse_go(value).ok().filter(|duration| !duration.is_zero())?;
    let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
    Some(started.map_or(Timestamp(i64::MAX), |time| kube_time::timestamp(time).plus(kube_time::millis(duration))))
}

fn eviction_cost(pod: &KubePod, priority: i32) -> i64 {
    let annotations = pod.metadata.annotations.as_ref();
    let deletion_cost = annotations
        .and_then(|annotations| annotations.get(annotation::POD_DELETION_COST))
        .and_then(|text| text.parse::<i32>().ok())
        .unwrap_or(0);
    let cost = EVICTION_COST
        + i64::from(deletion_cost) * EVICTION_COST / DELETION_COST_UNIT
        + i64::from(priority) * EVICTION_COST / PRIORITY_UNIT;
    cost.clamp(-MAX_EVICTION_COST, MAX_EVICTION_COST)
}

#[cfg(test)]
mod tests;
