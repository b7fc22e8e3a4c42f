//! Consolidation must pay where kube-scheduler binds the pods of removed nodes, not only where the plan puts them.
//!
//! Controllers create a new pod for each evicted one, and kube-scheduler binds it to the node with the highest score
//! before anything could nominate another node. If a pod then finds no node, the next plan launches one. The removal
//! has saved nothing, and the same removal may follow again and again. Pods that have just been created may be those of
//! such a removal, so if they are few, a loss counts more the younger they are.

use super::projected::{PlannedPod, Replay};
use super::run::{self, RunConfig};
use super::{Inputs, LOOKS, NODES, PODS};
use crate::disrupt::pod_age;
use plimsoll_kubesched::ClusterState;
use plimsoll_model::identity::{NodeName, PodUid};
use plimsoll_model::index::Id;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::{Plan, Termination};
use plimsoll_model::snapshot::{DisruptionReason, PodShape, Snapshot};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Number of runs, each with another order of the pods.
const RUNS: u64 = 8;
/// Maximum number of pods of removed nodes. Of more pods, a few without a node cost little compared with the saving.
const MOVED: usize = 100;
/// Maximum number of pods of removals that may fail in the same way each time: so few pods always come in the same
/// order.
const FEW: usize = 10;

/// A node to keep, if the removals would not save at least half as much as planned (more if a few young pods move): the
/// one whose pods are without a node most often. If other pods are, because their place is taken, all removed nodes
/// count. `cost` returns the hourly price in micro-USD of the nodes that a plan launches for a cluster, or `None` if no
/// work is left.
pub(crate) fn unprofitable(
    inputs: Inputs<'_>,
    plan: &Plan,
    cost: &dyn Fn(&Snapshot) -> Option<i64>,
) -> Option<NodeName> {
    let is_consolidation = |one: &&Termination| one.reason == DisruptionReason::Underutilized;
    let consolidated = || plan.terminations.iter().filter(is_consolidation);
    let sources: BTreeMap<&PodUid, &NodeName> =
        consolidated().flat_map(|one| one.pods.iter().map(move |pod| (&pod.uid, &one.node))).collect();
    let is_large = inputs.snapshot.pods.len() > PODS || inputs.snapshot.nodes.len() > NODES;
    if sources.is_empty() || sources.len() > MOVED || is_large {
        return None;
    }
    let replay = Replay::of_removals(inputs, plan).filter(|replay| replay.looks() <= LOOKS)?;
    let mut state = ClusterState::clone(&replay.state);
    let mut costs: BTreeMap<Vec<Id<PodShape>>, i64> = BTreeMap::new();
    let now = inputs.snapshot.now;
    let pods = inputs.snapshot.pods.iter().filter(|_| sources.len() <= FEW);
    let factors: BTreeMap<&PodUid, i64> = pods.map(|pod| (&pod.uid, pod_age::factor(pod, now))).collect();
    let mut lost = 0_i64;
    let mut failures_by_node: BTreeMap<&NodeName, usize> = BTreeMap::new();
    for seed in 0..RUNS {
        let assignment = run::run(&replay, &mut state, RunConfig::unordered(seed));
        let stranded = assignment.iter_enumerated().filter(|(_, node)| node.is_none());
        let stranded: Vec<&PlannedPod> = stranded.map(|(slot, _)| &replay.slots[slot]).collect();
        if stranded.is_empty() {
            continue;
        }
        let mut shapes: Vec<Id<PodShape>> = stranded.iter().map(|slot| slot.shape).collect();
        shapes.sort();
        let known = costs.get(&shapes).copied();
        let price = known.or_else(|| cost(&replay.bound(&assignment)))?;
        costs.insert(shapes, price);
        let factor = stranded.iter().filter_map(|slot| factors.get(&slot.uid)).max().copied().unwrap_or(1);
        lost = lost.saturating_add(price.saturating_mul(factor));
        let mut causes: Vec<&NodeName> = stranded.iter().filter_map(|slot| sources.get(&slot.uid).copied()).collect();
        if causes.is_empty() {
            causes.extend(consolidated().map(|one| &one.node));
        }
        causes.into_iter().for_each(|node| *failures_by_node.entry(node).or_default() += 1);
    }
    let saving = consolidated().map(|one| one.saving).sum::<MicroUsdPerHour>().0;
    let runs = i64::try_from(RUNS).unwrap_or(i64::MAX);
    if lost.saturating_mul(2) <= saving.saturating_mul(runs) {
        return None;
    }
    failures_by_node.into_iter().max_by_key(|(node, times)| (*times, Reverse(*node))).map(|(node, _)| node.clone())
}
