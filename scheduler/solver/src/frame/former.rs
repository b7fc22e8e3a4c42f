//! Shapes of a frame that is no more: what is known of them may still be right.

use super::{Frame, ShapeData, Slot};
use plimsoll_model::identity::{NodePoolName, ShapeId};
use plimsoll_model::snapshot::{PodShape, Snapshot, SnapshotIndex};
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Former {
    pub(super) pools: Vec<NodePoolName>,
    /// Those of the snapshot, by revision.
    own: BTreeMap<u64, (PodShape, ShapeData)>,
    rungs: BTreeMap<ShapeId, (PodShape, ShapeData)>,
}

impl Former {
    /// The snapshot's shapes, and what is known of each if pools are what they were. Few are new: the others need not be copied.
    pub(super) fn own_shapes(
        &mut self,
        snapshot: &Snapshot,
        index: &SnapshotIndex,
        same_pools: bool,
    ) -> (Vec<PodShape>, Vec<Option<ShapeData>>) {
        let known = |(shape, revision): (&PodShape, &u64)| match self.own.remove(revision) {
            Some((same, data)) => (same, same_pools.then_some(data)),
            None => (shape.clone(), None),
        };
        let all: (Vec<PodShape>, _) = snapshot.shapes.iter().zip(index.shape_revisions()).map(known).unzip();
        debug_assert_eq!(all.0, snapshot.shapes, "the index has not followed the snapshot");
        all
    }

    /// What is known of rungs if pools are what they were.
    pub(super) fn data_of(&mut self, rungs: &[PodShape], same_pools: bool) -> Vec<Option<ShapeData>> {
        let known = |rung: &PodShape| {
            let (same, data) = self.rungs.remove(&rung.id)?;
            (same_pools && same == *rung).then_some(data)
        };
        rungs.iter().map(known).collect()
    }
}

impl Frame {
    /// Its shapes, and its pools by name.
    pub(super) fn dismantle(self) -> (Former, BTreeMap<String, Slot>) {
        let pools = self.pools.iter().map(|slot| slot.pool.name.clone()).collect();
        let mut data = self.shapes.into_iter();
        let own = self.own.into_iter().zip(data.by_ref());
        let own = self.revisions.into_iter().zip(own).collect();
        let rungs = self.rungs.into_iter().zip(data).map(|(shape, data)| (shape.id.clone(), (shape, data))).collect();
        let former = Former { pools, own, rungs };
        let slots = self.pools.into_iter().chain(self.fixed);
        (former, slots.map(|slot| (slot.pool.name.0.clone(), slot)).collect())
    }
}
