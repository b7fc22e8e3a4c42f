//! Shapes of a previous solve index, whose data may still be valid.

use super::{CachedPool, ShapeData, SolveIndex};
use plimsoll_model::identity::NodePoolName;
use plimsoll_model::index::Id;
use plimsoll_model::snapshot::{PodShape, Snapshot, SnapshotIndex};
use std::collections::BTreeMap;

/// The shapes of a solve index.
#[derive(Debug, Default)]
pub(super) struct Shapes {
    /// Shapes of the snapshot.
    pub(super) own: Vec<PodShape>,
    /// Relaxation levels of preferences, in the order of the shapes that they belong to.
    pub(super) levels: Vec<PodShape>,
    /// Number of levels of each shape.
    pub(super) above: Vec<usize>,
    /// Valid data of the snapshot's shapes, followed by that of the levels.
    pub(super) data: Vec<Option<ShapeData>>,
    /// Previous numbers of the snapshot's shapes, followed by those of the levels.
    pub(super) numbers: Vec<Option<Id<PodShape>>>,
}

/// What is unchanged since the previous solve index, in addition to shapes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unchanged {
    pub(super) pools: bool,
    /// Inputs that determine the relaxation levels.
    pub(super) preferences: bool,
}

/// A shape of the previous snapshot.
#[derive(Debug)]
struct Kept {
    id: Id<PodShape>,
    /// Number of the first level of the shape.
    first_level: usize,
    revision: u64,
    shape: PodShape,
    data: ShapeData,
    levels: Vec<(PodShape, ShapeData)>,
}

/// Shapes of a previous solve index.
#[derive(Debug, Default)]
pub(super) struct PreviousShapes {
    pub(super) pools: Vec<NodePoolName>,
    /// In the order of their ids.
    own: Vec<Kept>,
}

impl PreviousShapes {
    /// Returns the snapshot's shapes and levels with their valid data. Data of unchanged shapes is reused.
    pub(super) fn shapes(
        self,
        snapshot: &Snapshot,
        index: &SnapshotIndex,
        same: Unchanged,
        levels: impl Fn(&PodShape) -> Vec<PodShape>,
    ) -> Shapes {
        let mut former = self.own.into_iter().peekable();
        let mut all = Shapes::default();
        let mut of_levels: Vec<(Option<ShapeData>, Option<Id<PodShape>>)> = Vec::new();
        for (shape, revision) in snapshot.shapes.iter().zip(index.shape_revisions()) {
            while former.next_if(|kept| kept.shape.id < shape.id).is_some() {}
            let kept = former.next_if(|kept| kept.revision == *revision);
            all.numbers.push(kept.as_ref().map(|kept| kept.id));
            let (shape, data, above) = match kept {
                Some(Kept { shape, data, levels, first_level, .. }) => (shape, Some(data), Some((levels, first_level))),
                None => (shape.clone(), None, None),
            };
            let first = all.levels.len();
            match above.filter(|_| same.preferences) {
                Some((above, number)) => {
                    for ((level, data), number) in above.into_iter().zip(number..) {
                        all.levels.push(level);
                        of_levels.push((Some(data).filter(|_| same.pools), Some(Id::new(number))));
                    }
                }
                None => all.levels.extend(levels(&shape)),
            }
            of_levels.resize_with(all.levels.len(), Default::default);
            all.above.push(all.levels.len() - first);
            all.data.push(data.filter(|_| same.pools));
            all.own.push(shape);
        }
        let (data, numbers): (Vec<_>, Vec<_>) = of_levels.into_iter().unzip();
        all.data.extend(data);
        all.numbers.extend(numbers);
        debug_assert_eq!(all.own, snapshot.shapes, "the index has not followed the snapshot");
        all
    }
}

impl SolveIndex {
    /// Splits the index into its shapes, and its pools by name.
    pub(super) fn dismantle(self) -> (PreviousShapes, BTreeMap<String, CachedPool>) {
        let pools = self.pools.iter().map(|cached| cached.pool.name.clone()).collect();
        let mut data = self.shapes.into_iter();
        let own: Vec<ShapeData> = data.by_ref().take(self.own.len()).collect();
        let mut levels = self.levels.into_iter().zip(data);
        let mut first_level = self.own.len();
        let shapes = self.own.into_iter().zip(self.revisions).zip(own);
        let kept = shapes.enumerate().map(|(number, ((shape, revision), data))| {
            let id = Id::new(number);
            let levels: Vec<_> = levels.by_ref().take(self.relaxation.above(id)).collect();
            first_level += levels.len();
            Kept { id, first_level: first_level - levels.len(), revision, shape, data, levels }
        });
        let former = PreviousShapes { pools, own: kept.collect() };
        let cached_pools = self.pools.into_iter().chain(self.static_pools);
        (former, cached_pools.map(|cached| (cached.pool.name.0.clone(), cached)).collect())
    }
}
