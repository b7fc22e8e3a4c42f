//! Pods of removed nodes that are not evicted, and so have no other place in the plan: they must not be disrupted, or
//! their PodDisruptionBudget never allows an eviction. Only expired nodes are removed with such pods.

use plimsoll_model::identity::PodUid;
use plimsoll_model::plan::{Plan, PodRef};
use plimsoll_model::snapshot::{Pod, Snapshot};
use plimsoll_model::time::Millis;
use std::collections::BTreeSet;

/// A removed node with pods that stay on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Staying {
    pub(crate) node: String,
    /// `namespace/name`, sorted.
    pub(crate) pods: Vec<String>,
    /// Time from the start of the drain after which the pods are deleted.
    pub(crate) grace: Option<Millis>,
}

/// Takes the pods that stay out of the terminations, whose pods then all move.
pub(crate) fn take(snapshot: &Snapshot, plan: &mut Plan) -> Vec<Staying> {
    let budgets = snapshot.pod_disruption_budgets.iter().filter(|budget| budget.fully_blocking);
    let blocking: BTreeSet<&str> = budgets.map(|budget| budget.name.as_str()).collect();
    let is_held = |pod: &&Pod| {
        let protected = !pod.terminating && pod.do_not_disrupt_until.is_some_and(|until| until > snapshot.now);
        protected || pod.pod_disruption_budgets.iter().any(|budget| blocking.contains(budget.as_str()))
    };
    let mut held: BTreeSet<PodUid> = snapshot.pods.iter().filter(is_held).map(|pod| pod.uid.clone()).collect();
    if held.is_empty() {
        return Vec::new();
    }
    // A drifted node with a terminationGracePeriod is replaced for all its pods.
    let placed = plan.launched_pods();
    for pod in placed.chain(plan.terminations.iter().flat_map(|it| &it.moved_to).flat_map(|it| &it.pods)) {
        held.remove(&pod.uid);
    }
    let mut staying = Vec::new();
    for termination in &mut plan.terminations {
        let pods = std::mem::take(&mut termination.pods).into_iter();
        let (stay, go): (Vec<PodRef>, Vec<PodRef>) = pods.partition(|pod| held.contains(&pod.uid));
        termination.pods = go;
        if !stay.is_empty() {
            let node = snapshot.nodes.iter().find(|node| node.name == termination.node);
            staying.push(Staying {
                node: termination.node.to_string(),
                pods: stay.into_iter().map(|pod| pod.name).collect(),
                grace: node.and_then(|node| node.termination_grace_period),
            });
        }
    }
    staying
}
