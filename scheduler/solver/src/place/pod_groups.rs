//! Pods to place, grouped by equal properties.

use crate::input::context::SolveContext;
use crate::input::intern::Bits;
use crate::place::State;
use plimsoll_model::catalog::Offering;
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::requirements::NodeSelectorRequirement;
use plimsoll_model::snapshot::{Node, NodePool, Pod, PodShape, PodState};
use plimsoll_model::time::Timestamp;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Pods of one shape, in a fixed order.
#[derive(Debug, Clone)]
pub(crate) struct PodGroup<'a> {
    pub(crate) shape: Id<PodShape>,
    pub(crate) pods: Vec<&'a Pod>,
    /// Nodes and offerings that the pods may use; `None` if there is no restriction.
    pub(crate) only: Option<Rc<DomainRestriction>>,
    /// Whether all pods must run on one node. They need no other pods on this node.
    pub(crate) on_one_node: bool,
}

pub(crate) type PodGroupId = Id<PodGroup<'static>>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DomainRestriction {
    /// By pool of the context.
    pub(crate) offerings: IndexVec<NodePool, Bits<Offering>>,
    /// Nodes of the context.
    pub(crate) nodes: Bits<Node>,
    /// Requirements that cause the restriction, with one value per label.
    pub(crate) demands: Vec<NodeSelectorRequirement>,
}

impl DomainRestriction {
    /// The pool's offerings, and the requirements.
    pub(crate) fn in_pool(&self, pool: Id<NodePool>) -> Option<(&Bits<Offering>, &[NodeSelectorRequirement])> {
        Some((self.offerings.try_get(pool)?, self.demands.as_slice()))
    }

    /// The values by label.
    pub(crate) fn values(&self) -> BTreeMap<String, String> {
        self.demands.iter().filter_map(|one| Some((one.key.clone(), one.values.first()?.clone()))).collect()
    }
}

impl<'a> PodGroup<'a> {
    pub(crate) fn plain(shape: Id<PodShape>, pods: Vec<&'a Pod>) -> Self {
        Self { shape, pods, only: None, on_one_node: false }
    }
}

pub(crate) fn count<'g, 'a: 'g>(pod_groups: impl IntoIterator<Item = &'g PodGroup<'a>>) -> usize {
    pod_groups.into_iter().map(|pod_group| pod_group.pods.len()).sum()
}

/// Pending pods, pods of nodes that are being deleted and that must leave, and `more`.
pub(crate) fn to_place<'a>(context: &SolveContext<'a>, more: &[&'a Pod]) -> Vec<PodGroup<'a>> {
    let leaving = context.nodes.iter().filter(|view| view.node.deleting).flat_map(|view| view.pods.iter());
    let leaving = leaving.filter(|pod| pod.moves() && can_leave(context, pod));
    let pending = context.pending().filter(|(pod, _)| pod.moves());
    let others = leaving.chain(more.iter().copied()).map(|pod| (pod, context.shape_of(pod)));
    grouped(pending.chain(others))
}

/// Removes existing pods from the topology counts, because they are placed again.
pub(crate) fn leave(context: &SolveContext<'_>, state: &mut State, pod_groups: &[PodGroup<'_>]) {
    for pod in pod_groups.iter().flat_map(|pod_group| &pod_group.pods) {
        if let PodState::Bound(name) | PodState::Reserved(name) = &pod.state
            && let Some(node) = context.node_id(name)
        {
            state.counts.leave(context, pod, node);
        }
    }
}

/// Groups pods by shape. Pods whose shape is not in the snapshot are omitted.
pub(crate) fn by_shape<'a>(context: &SolveContext<'a>, pods: impl Iterator<Item = &'a Pod>) -> Vec<PodGroup<'a>> {
    grouped(pods.map(|pod| (pod, context.shape_of(pod))))
}

/// Like [`by_shape`], for pods with their shapes.
fn grouped<'a>(pods: impl Iterator<Item = (&'a Pod, Option<Id<PodShape>>)>) -> Vec<PodGroup<'a>> {
    let mut groups: BTreeMap<Id<PodShape>, Vec<&'a Pod>> = BTreeMap::new();
    for (pod, shape) in pods {
        if let Some(shape) = shape {
            groups.entry(shape).or_default().push(pod);
        }
    }
    plain(groups)
}

/// Converts pods by shape to pod groups. The pods of each group are sorted approximately in the order of
/// kube-scheduler: oldest first, and those of one age by number.
pub(crate) fn plain(groups: BTreeMap<Id<PodShape>, Vec<&Pod>>) -> Vec<PodGroup<'_>> {
    let mut pod_groups: Vec<PodGroup<'_>> =
        groups.into_iter().map(|(shape, pods)| PodGroup::plain(shape, pods)).collect();
    for pod_group in &mut pod_groups {
        let order = |pod: &&Pod| (pod.created, pod.name.len());
        pod_group.pods.sort_by(|a, b| (order(a), &a.name, &a.uid).cmp(&(order(b), &b.name, &b.uid)));
    }
    pod_groups
}

/// Whether `karpenter.sh/do-not-disrupt` protects the pod at `now`.
pub(crate) fn is_protected(pod: &Pod, now: Timestamp) -> bool {
    !pod.terminating && pod.do_not_disrupt_until.is_some_and(|until| until > now)
}

/// Whether a pod of a removed node will be evicted soon or never runs there, so that it needs capacity elsewhere now. A
/// terminating pod and a pod that only waits for the node are not evicted, so that nothing keeps them there.
pub(crate) fn can_leave(context: &SolveContext<'_>, pod: &Pod) -> bool {
    let is_evicted = !pod.terminating && matches!(pod.state, PodState::Bound(_));
    let is_blocked = || pod.pod_disruption_budgets.iter().any(|name| context.blocks(name));
    !is_evicted || (!is_protected(pod, context.snapshot.now) && !is_blocked())
}
