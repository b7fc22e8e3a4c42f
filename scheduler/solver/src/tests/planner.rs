//! A planner that follows a changing cluster computes the same plans as a new planner.

use super::builder::{Cluster, app};
use super::properties::{any_social_cluster, steady};
use crate::{Cancel, Planner, solve};
use plimsoll_model::identity::{CatalogId, PodUid, ShapeId};
use plimsoll_model::plan::{PlanOptions, PreferencePolicy};
use plimsoll_model::snapshot::{Edits, Pod, PodShape, PodState, Snapshot, SnapshotIndex, UnavailableOffering};
use plimsoll_model::time::Millis;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Differences between two lists.
fn edits<T: PartialEq>(old: &[T], new: &[T], key: fn(&T) -> &str) -> Edits {
    let find = |list: &[T], wanted: &str| list.iter().position(|one| key(one) == wanted);
    let mut edits = Edits::default();
    edits.removed.extend((0..old.len()).filter(|at| find(new, key(&old[*at])).is_none()));
    for (at, one) in new.iter().enumerate() {
        match find(old, key(one)) {
            None => edits.inserted.push(at),
            Some(before) if old[before] != *one => edits.replaced.push(at),
            Some(_) => {}
        }
    }
    edits
}

/// A change between two plans.
#[derive(Debug, Clone)]
enum Step {
    /// Removes every n-th pod.
    PodsGo(usize),
    /// Binds every n-th pending pod to the first node.
    PodsBound(usize),
    NodeGoes(usize),
    NodeChanges(usize),
    TimePasses,
    /// A zone lacks capacity for this number of minutes.
    OutOfCapacity(u64),
    LimitRaised,
    /// Toggles whether the last pool is being deleted.
    PoolComesOrGoes,
    /// Sets the cost of the first pool's nodes in addition to their price.
    NodesCost(i64),
    /// Removes a shape that no pod refers to.
    ShapesGo,
    /// Adds a shape of the other cluster, with a pending pod or (if even) a running pod.
    ShapeComes(usize),
    /// Replaces the whole cluster.
    Other,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (2..5_usize).prop_map(Step::PodsGo),
        (1..4_usize).prop_map(Step::PodsBound),
        (0..5_usize).prop_map(Step::NodeGoes),
        (0..5_usize).prop_map(Step::NodeChanges),
        Just(Step::TimePasses),
        (1..9_u64).prop_map(Step::OutOfCapacity),
        Just(Step::LimitRaised),
        Just(Step::PoolComesOrGoes),
        (0..3_i64).prop_map(|fee| Step::NodesCost(fee * 30_000)),
        Just(Step::ShapesGo),
        (0..6_usize).prop_map(Step::ShapeComes),
        Just(Step::Other),
    ]
}

fn taken(step: &Step, before: &Snapshot, other: &Snapshot) -> Snapshot {
    let mut after = before.clone();
    match step {
        Step::PodsGo(every) => {
            let mut at = 0;
            after.pods.retain(|_| {
                at += 1;
                at % every != 0
            });
        }
        Step::PodsBound(every) => {
            if let Some(node) = after.nodes.first().map(|node| node.name.clone()) {
                let pending = after.pods.iter_mut().filter(|pod| pod.state == PodState::Pending).step_by(*every);
                pending.for_each(|pod| pod.state = PodState::Bound(node.clone()));
            }
        }
        Step::NodeGoes(number) if *number < after.nodes.len() => {
            let gone = after.nodes.remove(*number).name;
            after.pods.retain(|pod| pod.state != PodState::Bound(gone.clone()));
        }
        Step::NodeChanges(number) if *number < after.nodes.len() => {
            let node = &mut after.nodes[*number];
            node.cordoned = !node.cordoned;
            node.labels.insert("rack".into(), format!("{}", *number % 2));
        }
        Step::TimePasses => after.now = after.now.plus(Millis::from_seconds(60)),
        Step::OutOfCapacity(minutes) => after.unavailable_offerings.push(UnavailableOffering {
            instance_type: None,
            zone: Some("zone-a".into()),
            capacity_type: plimsoll_model::catalog::CapacityType::OnDemand,
            remaining: Millis::from_seconds(minutes * 60),
        }),
        Step::LimitRaised => after.node_pools[0].limits.set("cpu", 1_000_000),
        Step::PoolComesOrGoes => {
            if let Some(pool) = after.node_pools.last_mut() {
                pool.deleting = !pool.deleting;
            }
        }
        Step::NodesCost(fee) => after.node_pools[0].costs.per_node.0 = *fee,
        Step::ShapesGo => after.shapes.retain(|shape| {
            after.pods.iter().any(|pod| pod.shape == shape.id)
                || after.daemon_sets.iter().any(|daemon| daemon.shape == shape.id)
        }),
        Step::ShapeComes(number) => {
            let name = format!("new-{}-{number}", after.sequence);
            if let (Some(shape), Some(pod)) = (other.shapes.get(number % other.shapes.len()), other.pods.first()) {
                let id = ShapeId::from(name.as_str());
                after.shapes.push(PodShape { id: id.clone(), ..shape.clone() });
                let node = after.nodes.first().filter(|_| number % 2 == 0);
                let state = node.map_or(PodState::Pending, |node| PodState::Bound(node.name.clone()));
                after.pods.push(Pod { uid: PodUid::from(name.as_str()), name, shape: id, state, ..pod.clone() });
            }
        }
        Step::Other => after = other.clone(),
        _ => {}
    }
    after.sequence += 1;
    after.sort();
    after
}

proptest! {
    #![proptest_config(steady())]

    #[test]
    fn following_changes_gives_the_plan_of_a_fresh_look(
        (first, other) in (any_social_cluster(), any_social_cluster()),
        steps in prop::collection::vec((any_step(), 0..4_u8), 1..6),
    ) {
        let catalogs = BTreeMap::from([(CatalogId::from("test"), first.catalog.clone())]);
        let mut before = first.snapshot;
        before.sort();
        let mut index = SnapshotIndex::new(&before);
        let mut planner = Planner::default();
        for (step, how) in steps {
            let preference_policy = if how == 0 { PreferencePolicy::Ignore } else { PreferencePolicy::Respect };
            let options = PlanOptions { disruption: how <= 1, preference_policy, ..PlanOptions::default() };
            let warm = planner.solve(&before, &index, &catalogs, &options);
            prop_assert_eq!(&warm, &solve(&before, &catalogs, &options), "before {:?}", &step);
            let after = taken(&step, &before, &other.snapshot);
            index.update(
                &after,
                &edits(&before.pods, &after.pods, |pod| pod.uid.as_str()),
                &edits(&before.nodes, &after.nodes, |node| node.name.as_str()),
                &edits(&before.shapes, &after.shapes, |shape| shape.id.as_str()),
            );
            before = after;
        }
        let options = PlanOptions::default();
        prop_assert_eq!(planner.solve(&before, &index, &catalogs, &options), solve(&before, &catalogs, &options));
    }
}

#[test]
fn a_cancelled_solve_ends_with_a_valid_plan() {
    let mut cluster = Cluster::new();
    cluster.pending("web", 20, &app("web", 1500));
    cluster.snapshot.sort();
    let catalogs = cluster.catalogs();
    let cancel = Cancel::default();
    cancel.cancel();
    let mut planner = Planner::default();
    planner.set_cancel(cancel);
    let index = SnapshotIndex::new(&cluster.snapshot);
    let plan = planner.solve(&cluster.snapshot, &index, &catalogs, &PlanOptions::default());
    assert_eq!(plimsoll_invariants::check(&cluster.snapshot, &catalogs, &plan), []);
    assert_eq!(plan.unschedulable, [], "placed pods keep their nodes");
}
