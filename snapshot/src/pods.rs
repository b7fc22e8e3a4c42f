//! Reads pods and decides whether each is pending, reserved, bound or ignored.

use crate::pdbs::Budgets;
use crate::pod_protection::PodProtection;
use crate::pod_states::PodStates;
use crate::pod_table::ReadPod;
use crate::problems::{Problem, full_name, full_name_of};
use crate::replicas::Replicas;
use crate::shapes::{NodeBinding, Shapes, Template};
use crate::{Extra, Objects, Source, annotations, kube_time, on_demand, requests};
use k8s_openapi::api::core::v1::{NodeSelectorRequirement, PodSpec};
use plimsoll_api::Pod as KubePod;
use plimsoll_model::identity::{NodeName, PodUid};
use plimsoll_model::names::{annotation, label};
use plimsoll_model::snapshot::{IgnoredPod, Pod, PodList, PodShape, PodState};
use plimsoll_model::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// Eviction cost of a pod without priority and deletion cost, in thousandths.
const EVICTION_COST: i64 = 1000;
const MAX_EVICTION_COST: i64 = 10_000;
/// The pod-deletion-cost that adds one `EVICTION_COST`.
const DELETION_COST_UNIT: i64 = 1 << 27;
/// The priority that adds one `EVICTION_COST`.
const PRIORITY_UNIT: i64 = 1 << 25;

/// Reads the pods. Those that are equal to pods of `known`, which is sorted by UID, are shared with it.
pub(crate) fn build<'known>(
    objects: &Objects,
    (extra, known): (&Extra, &'known PodList),
    pod_states: &PodStates<'_>,
    (shapes, budgets): (&mut Shapes<'_>, &Budgets<'_>),
    problems: &mut Vec<Problem>,
) -> Pods<'known> {
    let (pods, ignored, unreadable_pod_nodes) = Default::default();
    let mut result = Pods { known, pods, ignored, unreadable_pod_nodes };
    result.pods.reserve(objects.pods.len() + objects.replicas.iter().map(Replicas::len).sum::<usize>());
    for pod in &objects.pods {
        let Some(spec) = pod.spec.as_ref().filter(|_| !pod.is_terminal()) else { continue };
        let identity = PodIdentity::of(pod);
        let Some(state) = result.state(pod, spec, &identity, extra, pod_states) else { continue };
        problems.extend(ignored_annotations(pod));
        match read(pod, spec, budgets, shapes) {
            Ok((common, _)) => {
                let protection = pod_states.protection(&state);
                result.push(identity.pod(common, state, protection));
            }
            Err(fault) => {
                problems.push(Problem::of("Pod", &pod.metadata, fault));
                result.unreadable_pod_nodes.extend(node_of(state));
            }
        }
    }
    for replicas in &objects.replicas {
        add_replicas(replicas, extra, pod_states, (budgets, shapes), &mut result, problems);
    }
    result
}

/// Adds the pods of a workload. The common fields are read once, for the first pod that is not ignored.
fn add_replicas(
    replicas: &Replicas,
    extra: &Extra,
    pod_states: &PodStates<'_>,
    (budgets, shapes): (&Budgets<'_>, &mut Shapes<'_>),
    result: &mut Pods<'_>,
    problems: &mut Vec<Problem>,
) {
    let template = replicas.template();
    let Some(spec) = &template.spec else { return };
    let ignored: Vec<Problem> = ignored_annotations(template).collect();
    let mut common: Option<ReadPod> = None;
    for name in replicas.names() {
        let full_name = full_name_of(&template.metadata, &name);
        let identity = PodIdentity { uid: PodUid(full_name), name };
        let Some(state) = result.state(template, spec, &identity, extra, pod_states) else { continue };
        problems.extend(ignored.iter().map(|problem| Problem { name: identity.uid.0.clone(), ..problem.clone() }));
        match common.get_or_insert_with(|| read(template, spec, budgets, shapes)) {
            Ok((common, _)) => {
                let protection = pod_states.protection(&state);
                result.push(identity.pod(common.clone(), state, protection));
            }
            Err(fault) => {
                let problem = Problem::of("Pod", &template.metadata, fault.clone());
                problems.push(Problem { name: identity.uid.0, ..problem });
                result.unreadable_pod_nodes.extend(node_of(state));
            }
        }
    }
}

/// Fields that differ between replicas.
pub(crate) struct PodIdentity {
    pub(crate) uid: PodUid,
    pub(crate) name: String,
}

impl PodIdentity {
    pub(crate) fn of(pod: &KubePod) -> Self {
        Self { uid: uid(pod), name: pod.metadata.name.clone().unwrap_or_default() }
    }

    pub(crate) fn pod(self, common: CommonFields, state: PodState, protection: PodProtection) -> Pod {
        let CommonFields { mut pod, do_not_disrupt_until } = common;
        if protection.forced {
            pod.do_not_disrupt_until = do_not_disrupt_until;
        }
        if let Some(ends) = protection.ends {
            pod.do_not_disrupt_until = pod.do_not_disrupt_until.map(|until| until.min(ends));
        }
        Pod { uid: self.uid, name: self.name, state, ..pod }
    }
}

/// A fully protected pod of which UID, name and state are not used. The other fields are equal for all replicas of a
/// workload.
#[derive(Debug, Clone)]
pub(crate) struct CommonFields {
    pod: Pod,
    /// Until when `karpenter.sh/do-not-disrupt` protects the pod.
    do_not_disrupt_until: Option<Timestamp>,
}

impl CommonFields {
    /// Those of a fully protected pod that was read from `object` before.
    pub(crate) fn of(pod: &Pod, object: &KubePod) -> Self {
        Self { pod: pod.clone(), do_not_disrupt_until: do_not_disrupt_until(object) }
    }
}

pub(crate) fn node_of(state: PodState) -> Option<NodeName> {
    match state {
        PodState::Bound(node) | PodState::Reserved(node) => Some(node),
        PodState::Pending => None,
    }
}

/// The pods of a cluster.
#[derive(Debug)]
pub(crate) struct Pods<'known> {
    /// Pods of another snapshot, sorted by UID.
    known: &'known PodList,
    pub(crate) pods: PodList,
    pub(crate) ignored: Vec<IgnoredPod>,
    /// Nodes of unparsable pods, whose requests are unknown.
    pub(crate) unreadable_pod_nodes: BTreeSet<NodeName>,
}

impl Pods<'_> {
    /// Adds a pod, or the one that is known, if they are equal.
    fn push(&mut self, pod: Pod) {
        let position = self.known.binary_search_by(|known| known.uid.cmp(&pod.uid)).ok();
        let known = position.and_then(|position| self.known.as_slice().get(position)).filter(|known| ***known == pod);
        self.pods.push(known.cloned().unwrap_or_else(|| pod.into()));
    }

    /// State of the pod; `None` if the pod is ignored.
    fn state(
        &mut self,
        pod: &KubePod,
        spec: &PodSpec,
        identity: &PodIdentity,
        extra: &Extra,
        pod_states: &PodStates<'_>,
    ) -> Option<PodState> {
        match pod_state(pod, spec, &identity.uid, extra, pod_states) {
            Ok(state) => Some(state),
            Err(reason) => {
                let pod = full_name_of(&pod.metadata, &identity.name);
                self.ignored.push(IgnoredPod { uid: identity.uid.clone(), pod, reason });
                None
            }
        }
    }
}

/// The annotations of a pod that are ignored because they cannot be read. The pod is used without them.
pub(crate) fn ignored_annotations(pod: &KubePod) -> impl Iterator<Item = Problem> {
    ignored_on_demand_ratio(pod).into_iter().chain(ignored_protection(pod))
}

/// Reports a do-not-disrupt annotation that protects nothing.
#[must_use]
pub fn ignored_protection(pod: &KubePod) -> Option<Problem> {
    let message = format!("{:?} is neither true nor a positive duration such as 1h30m", pod.invalid_protection()?);
    Some(Problem::of_field("Pod", &pod.metadata, annotations::fault(annotation::DO_NOT_DISRUPT, message)))
}

/// Reports unparsable on-demand annotations of a pod. The pod is then used without them.
#[must_use]
pub fn ignored_on_demand_ratio(pod: &KubePod) -> Option<Problem> {
    let fault = on_demand::workload_ratio(pod).err().filter(|_| !stays_with_node(pod))?;
    Some(Problem::of_field("Pod", &pod.metadata, fault))
}

/// State of a pod, or the reason why it is ignored.
pub(crate) fn pod_state(
    pod: &KubePod,
    spec: &PodSpec,
    uid: &PodUid,
    extra: &Extra,
    pod_states: &PodStates<'_>,
) -> Result<PodState, String> {
    if let Some(node) = pod.node_name.as_deref() {
        let ends = pod.metadata.deletion_timestamp.is_some();
        return pod_states.bound(uid, node, ends);
    }
    if let Some(reason) = never_placed_reason(pod, spec) {
        return Err(reason.to_owned());
    }
    if let Some(reserved) = pod_states.reserved(uid) {
        return reserved;
    }
    // kube-scheduler reserves the resources on the nominated node and will try the pod again.
    if let Some(Ok(PodState::Bound(node))) = pod.nominated_node().map(|node| pod_states.bound(uid, node, true)) {
        return Ok(PodState::Reserved(node));
    }
    match extra.source {
        Source::Cluster => undecided_reason(pod).map_or(Ok(PodState::Pending), |reason| Err(reason.to_owned())),
        Source::Files => Ok(PodState::Pending),
    }
}

/// Reason why an unbound pod is never placed.
fn never_placed_reason(pod: &KubePod, spec: &PodSpec) -> Option<&'static str> {
    if pod.metadata.deletion_timestamp.is_some() {
        return Some("it is being deleted");
    }
    if stays_with_node(pod) {
        return Some("it belongs to one node: its owner is a DaemonSet or a Node");
    }
    if spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()) {
        return Some("it has scheduling gates");
    }
    excludes_pools_reason(spec)
}

/// Reason why kube-scheduler may still place an unbound pod itself.
fn undecided_reason(pod: &KubePod) -> Option<&'static str> {
    if pod.nominated_node().is_some() {
        return Some("kube-scheduler has nominated a node for it that is not known");
    }
    if pod.status.unschedulable().is_none() {
        return Some("kube-scheduler has not found it unschedulable");
    }
    None
}

/// Whether the pod's placement is settled: it is bound, unschedulable, terminal or never placed.
#[must_use]
pub fn is_decided(pod: &KubePod) -> bool {
    let never_placed = pod.spec.as_ref().is_some_and(|spec| never_placed_reason(pod, spec).is_some());
    pod.node_name.is_some() || pod.is_terminal() || never_placed || pod.status.unschedulable().is_some()
}

/// Reason why no node of any pool can run the pod.
fn excludes_pools_reason(spec: &PodSpec) -> Option<&'static str> {
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    let refuses = |requirement: &NodeSelectorRequirement| {
        requirement.key == label::NODE_POOL && requirement.operator == "DoesNotExist"
    };
    let refused = terms.iter().all(|term| term.match_expressions.iter().flatten().any(refuses));
    (refused && !terms.is_empty()).then_some("its node affinity excludes every NodePool")
}

pub(crate) fn read(pod: &KubePod, spec: &PodSpec, budgets: &Budgets<'_>, shapes: &mut Shapes<'_>) -> ReadPod {
    let metadata = &pod.metadata;
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let name = metadata.name.as_deref().unwrap_or_default();
    let stays_with_node = stays_with_node(pod);
    let labels = BTreeMap::clone(&pod.labels);
    let on_demand = on_demand::workload_ratio(pod).unwrap_or_default().filter(|_| !stays_with_node);
    let binding = match pod.node_name {
        _ if stays_with_node => NodeBinding::Pinned,
        Some(_) => NodeBinding::Movable,
        None => NodeBinding::None,
    };
    let resized = requests::resized(pod, spec);
    let spec = resized.as_ref().unwrap_or(spec);
    let shape = shapes.add(&Template { namespace, name, labels, spec, on_demand }, binding)?;
    let pod_fields = Pod {
        uid: PodUid::default(),
        namespace: namespace.to_owned(),
        name: String::new(),
        shape: shape.id.clone(),
        state: PodState::Pending,
        created: kube_time::created(metadata),
        stays_with_node,
        terminating: metadata.deletion_timestamp.is_some(),
        returns: !stays_with_node && pod.returns(),
        do_not_disrupt_until: pod.protected_until().map(kube_time::moment),
        eviction_cost_milli: eviction_cost(pod, &shape),
        pod_disruption_budgets: covering(pod, budgets),
        buffer: None,
    };
    Ok((CommonFields { pod: pod_fields, do_not_disrupt_until: do_not_disrupt_until(pod) }, shape))
}

/// Names of the budgets that an eviction of the pod must respect. Few pods have one, so that is asked first.
fn covering(pod: &KubePod, budgets: &Budgets<'_>) -> Vec<String> {
    let covering = budgets.covering(pod);
    if covering.is_empty() || pod.is_drained() { covering } else { Vec::new() }
}

fn uid(pod: &KubePod) -> PodUid {
    PodUid(pod.metadata.uid.clone().unwrap_or_else(|| full_name(&pod.metadata)))
}

pub(crate) fn stays_with_node(pod: &KubePod) -> bool {
    pod.is_static() || pod.is_daemon()
}

/// Until when `karpenter.sh/do-not-disrupt` protects the pod.
fn do_not_disrupt_until(pod: &KubePod) -> Option<Timestamp> {
    pod.do_not_disrupt().map(|(until, _)| kube_time::moment(until))
}

/// A volume that can be attached only in some zones must be detached from one node and attached to the next, while the
/// pod does not run. It counts as one more pod. A volume that can be mounted anywhere costs nothing.
fn eviction_cost(pod: &KubePod, shape: &PodShape) -> i64 {
    let deletion_cost = annotations::text(&pod.metadata, annotation::POD_DELETION_COST);
    let deletion_cost = deletion_cost.and_then(|text| text.parse::<i32>().ok()).unwrap_or(0);
    let attached = shape.volumes.iter().filter(|volume| !volume.alternatives.is_empty()).count();
    let volumes = i64::try_from(attached).unwrap_or(MAX_EVICTION_COST).min(MAX_EVICTION_COST);
    let cost = EVICTION_COST * (1 + volumes)
        + i64::from(deletion_cost) * EVICTION_COST / DELETION_COST_UNIT
        + i64::from(shape.priority) * EVICTION_COST / PRIORITY_UNIT;
    cost.clamp(-MAX_EVICTION_COST, MAX_EVICTION_COST)
}

#[cfg(test)]
mod tests;
