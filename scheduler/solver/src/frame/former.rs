//! Shapes of a frame that is no more: what is known of them may still be right.

use super::{Frame, ShapeData, Slot};
use plimsoll_model::identity::NodePoolName;
use plimsoll_model::snapshot::{PodShape, Snapshot, SnapshotIndex};
use std::collections::BTreeMap;

/// The shapes of a frame.
#[derive(Debug, Default)]
pub(super) struct Shapes {
    /// Those of the snapshot.
    pub(super) own: Vec<PodShape>,
    /// Those that preferences add, in the order of the shapes that they are rungs above.
    pub(super) rungs: Vec<PodShape>,
    /// How many rungs each shape has above it.
    pub(super) above: Vec<usize>,
    /// What is known of the former, then of the latter.
    pub(super) data: Vec<Option<ShapeData>>,
    /// Of these likewise: the numbers that they had.
    pub(super) numbers: Vec<Option<usize>>,
}

/// What is as it was for the former frame, beside shapes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Same {
    pub(super) pools: bool,
    /// What makes rungs of preferences.
    pub(super) wishes: bool,
}

/// A shape of the snapshot.
#[derive(Debug)]
struct Kept {
    number: usize,
    /// The number of the first rung above it.
    first_rung: usize,
    revision: u64,
    shape: PodShape,
    data: ShapeData,
    rungs: Vec<(PodShape, ShapeData)>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Former {
    pub(super) pools: Vec<NodePoolName>,
    /// In the order of their ids.
    own: Vec<Kept>,
}

impl Former {
    /// The snapshot's shapes, their rungs, and what is known of each. Few are new: of the others nothing need be made again.
    pub(super) fn shapes(
        self,
        snapshot: &Snapshot,
        index: &SnapshotIndex,
        same: Same,
        rungs: impl Fn(&PodShape) -> Vec<PodShape>,
    ) -> Shapes {
        let mut former = self.own.into_iter().peekable();
        let mut all = Shapes::default();
        let mut of_rungs: Vec<(Option<ShapeData>, Option<usize>)> = Vec::new();
        for (shape, revision) in snapshot.shapes.iter().zip(index.shape_revisions()) {
            while former.next_if(|kept| kept.shape.id < shape.id).is_some() {}
            let kept = former.next_if(|kept| kept.revision == *revision);
            all.numbers.push(kept.as_ref().map(|kept| kept.number));
            let (shape, data, above) = match kept {
                Some(Kept { shape, data, rungs, first_rung, .. }) => (shape, Some(data), Some((rungs, first_rung))),
                None => (shape.clone(), None, None),
            };
            let first = all.rungs.len();
            match above.filter(|_| same.wishes) {
                Some((above, number)) => {
                    for ((rung, data), number) in above.into_iter().zip(number..) {
                        all.rungs.push(rung);
                        of_rungs.push((Some(data).filter(|_| same.pools), Some(number)));
                    }
                }
                None => all.rungs.extend(rungs(&shape)),
            }
            of_rungs.resize_with(all.rungs.len(), Default::default);
            all.above.push(all.rungs.len() - first);
            all.data.push(data.filter(|_| same.pools));
            all.own.push(shape);
        }
        let (data, numbers): (Vec<_>, Vec<_>) = of_rungs.into_iter().unzip();
        all.data.extend(data);
        all.numbers.extend(numbers);
        debug_assert_eq!(all.own, snapshot.shapes, "the index has not followed the snapshot");
        all
    }
}

impl Frame {
    /// Its shapes, and its pools by name.
    pub(super) fn dismantle(self) -> (Former, BTreeMap<String, Slot>) {
        let pools = self.pools.iter().map(|slot| slot.pool.name.clone()).collect();
        let mut data = self.shapes.into_iter();
        let own: Vec<ShapeData> = data.by_ref().take(self.own.len()).collect();
        let mut rungs = self.rungs.into_iter().zip(data);
        let mut first_rung = self.own.len();
        let shapes = self.own.into_iter().zip(self.revisions).zip(own);
        let kept = shapes.enumerate().map(|(number, ((shape, revision), data))| {
            let rungs: Vec<_> = rungs.by_ref().take(self.ladders.above(number)).collect();
            first_rung += rungs.len();
            Kept { number, first_rung: first_rung - rungs.len(), revision, shape, data, rungs }
        });
        let former = Former { pools, own: kept.collect() };
        let slots = self.pools.into_iter().chain(self.fixed);
        (former, slots.map(|slot| (slot.pool.name.0.clone(), slot)).collect())
    }
}
