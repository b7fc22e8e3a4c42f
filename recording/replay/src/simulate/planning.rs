//! The plans of a simulation.

use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::plan::{Plan, PlanOptions};
use plimsoll_model::snapshot::{Edits, Snapshot, SnapshotIndex};
use plimsoll_solver::Planner;
use std::collections::BTreeMap;

/// Plans the successive snapshots of a simulated cluster. What stays the same is kept, as in a session: in a large
/// cluster, most of the time of a plan without a session is spent on it.
#[derive(Debug, Default)]
pub(super) struct Planning {
    planner: Planner,
    /// The last snapshot with its index.
    last: Option<(Snapshot, SnapshotIndex)>,
}

impl Planning {
    /// Returns the plan for the next snapshot, which is in canonical order, and the snapshot.
    pub(super) fn plan(
        &mut self,
        snapshot: Snapshot,
        catalogs: &BTreeMap<CatalogId, Catalog>,
        options: &PlanOptions,
    ) -> (&Snapshot, Plan) {
        let index = match self.last.take() {
            Some((last, index)) => updated(index, &last, &snapshot),
            None => SnapshotIndex::new(&snapshot),
        };
        let plan = self.planner.solve(&snapshot, &index, catalogs, options);
        let (snapshot, _) = self.last.insert((snapshot, index));
        (snapshot, plan)
    }
}

/// The index of `last`, updated to `snapshot`.
fn updated(mut index: SnapshotIndex, last: &Snapshot, snapshot: &Snapshot) -> SnapshotIndex {
    let pods = Edits::between(&last.pods, &snapshot.pods, |pod| &pod.uid);
    let nodes = Edits::between(&last.nodes, &snapshot.nodes, |node| &node.name);
    let shapes = Edits::between(&last.shapes, &snapshot.shapes, |shape| &shape.id);
    index.update(snapshot, &pods, &nodes, &shapes);
    index
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{catalog, node, options, planned, pod, shape, snapshot};

    #[test]
    fn each_plan_is_that_of_a_solve_without_a_plan_before() {
        let catalogs: BTreeMap<CatalogId, Catalog> = [(catalog().id(), catalog())].into();
        let small = |name: &str, on: Option<&str>| pod(name, "small", on);
        let with_small = |mut snapshot: Snapshot| {
            snapshot.shapes.push(shape("small", 300));
            snapshot.sort();
            snapshot
        };
        // Pods, nodes and shapes come, change and go.
        let steps = [
            snapshot(0, vec![pod("a", "web", Some("m"))], vec![node("m", "default", 4)]),
            snapshot(10, vec![pod("a", "web", Some("m")), pod("b", "web", None)], vec![node("m", "default", 4)]),
            with_small(snapshot(
                20,
                vec![pod("a", "web", Some("m")), pod("b", "web", Some("c")), small("s", None)],
                vec![node("c", "default", 2), node("m", "default", 4)],
            )),
            with_small(snapshot(
                30,
                vec![pod("b", "web", Some("c")), small("s", Some("m"))],
                vec![node("c", "default", 2), node("m", "default", 4)],
            )),
            snapshot(40, vec![pod("b", "web", Some("z"))], vec![node("z", "default", 8)]),
            snapshot(50, vec![], vec![node("z", "default", 8)]),
        ];
        let mut planning = Planning::default();
        let mut removals = 0;
        for step in steps {
            let expected = planned(&step);
            removals += expected.terminations.len();
            let (snapshot, plan) = planning.plan(step.clone(), &catalogs, &options());
            assert_eq!((snapshot, &plan), (&step, &expected));
            let (snapshot, index) = planning.last.as_ref().unwrap();
            let fresh = SnapshotIndex::new(snapshot);
            assert_eq!(index.pending(), fresh.pending());
            let residents = |index: &SnapshotIndex| {
                (0..snapshot.nodes.len()).map(|node| index.residents(node).to_vec()).collect::<Vec<_>>()
            };
            assert_eq!(residents(index), residents(&fresh));
        }
        assert!(removals > 0);
    }

    #[test]
    fn what_stays_the_same_is_kept() {
        let catalogs: BTreeMap<CatalogId, Catalog> = [(catalog().id(), catalog())].into();
        let nodes = || vec![node("m", "default", 2), node("n", "default", 2)];
        let mut planning = Planning::default();
        planning.plan(snapshot(0, vec![pod("a", "web", Some("m"))], nodes()), &catalogs, &options());
        let revisions = |planning: &Planning| {
            let (_, index) = planning.last.as_ref().unwrap();
            ([0, 1].map(|node| index.revision(node)), index.shape_revisions().to_vec())
        };
        let ([first, second], shapes) = revisions(&planning);
        planning.plan(snapshot(10, vec![pod("b", "web", Some("n"))], nodes()), &catalogs, &options());
        let ([changed, other], same_shapes) = revisions(&planning);
        // The planner recognizes what is unchanged by its revision; both nodes have other pods now.
        assert!(changed > first && other > second && changed != other);
        assert_eq!(same_shapes, shapes);
        planning.plan(snapshot(20, vec![pod("b", "web", Some("n"))], nodes()), &catalogs, &options());
        assert_eq!(revisions(&planning), ([changed, other], shapes));
    }
}
