//! Plan after plan for a cluster of which little changes.

use crate::frame::Frame;
use crate::gather;
use crate::mix;
use crate::nodes::Nodes;
use crate::planned;
use crate::world::World;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::overlay;
use plimsoll_model::plan::{Launch, Plan, PlanOptions};
use plimsoll_model::snapshot::{Snapshot, SnapshotIndex};
use std::collections::BTreeMap;

/// Plans for one snapshot after another of the same cluster and keeps what stays the same between them. Each plan is the one that
/// [`solve`](crate::solve) makes: what is kept only saves time.
#[derive(Debug, Default)]
pub struct Planner {
    kept: Option<(Frame, Nodes)>,
}

impl Planner {
    /// One that knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The plan for `snapshot`, which is in canonical order. `index` is the one of this snapshot, and has followed all changes since the last
    /// plan; whatever has the same catalog id is the same catalog.
    #[must_use]
    pub fn solve(
        &mut self,
        snapshot: &Snapshot,
        index: &SnapshotIndex,
        catalogs: &BTreeMap<CatalogId, Catalog>,
        options: &PlanOptions,
    ) -> Plan {
        self.solve_early(snapshot, index, catalogs, options, &mut |_| {})
    }

    /// The same plan. In a large burst `early` is told its first launches long before all others are planned: the plan begins with them.
    #[must_use]
    pub fn solve_early(
        &mut self,
        snapshot: &Snapshot,
        index: &SnapshotIndex,
        catalogs: &BTreeMap<CatalogId, Catalog>,
        options: &PlanOptions,
        early: &mut dyn FnMut(&[Launch]),
    ) -> Plan {
        let mut told = false;
        let plan = self.plain(snapshot, index, catalogs, options, &mut |launches| {
            told |= !launches.is_empty();
            early(launches);
        });
        // What was told stands.
        if told {
            return plan;
        }
        gather::gathered(snapshot, catalogs, plan, |other| {
            Self::new().plain(other, &SnapshotIndex::new(other), catalogs, options, &mut |_| {})
        })
    }

    /// Without a second look at what is left.
    fn plain(
        &mut self,
        snapshot: &Snapshot,
        index: &SnapshotIndex,
        catalogs: &BTreeMap<CatalogId, Catalog>,
        options: &PlanOptions,
        early: &mut dyn FnMut(&[Launch]),
    ) -> Plan {
        let overlaid = overlay::applied(snapshot, catalogs);
        let (facts, sold) = overlaid.as_ref().map_or((snapshot, catalogs), |(facts, sold)| (facts, sold));
        if let Some(mixed) = mix::applied(facts, sold) {
            return Self::new().direct(&mixed, &SnapshotIndex::new(&mixed), sold, options, early);
        }
        if overlaid.is_some() {
            return Self::new().direct(facts, index, sold, options, early);
        }
        self.direct(snapshot, index, catalogs, options, early)
    }

    fn direct(
        &mut self,
        snapshot: &Snapshot,
        index: &SnapshotIndex,
        catalogs: &BTreeMap<CatalogId, Catalog>,
        options: &PlanOptions,
        early: &mut dyn FnMut(&[Launch]),
    ) -> Plan {
        let (frame, nodes) = self.kept.take().unzip();
        let (frame, changed) =
            Frame::new(frame, snapshot, catalogs, (options.preference_policy, options.min_values_policy));
        let mut nodes = nodes.filter(|_| !changed).unwrap_or_else(|| Nodes::new(&frame));
        nodes.follow(&frame, snapshot, index);
        let plan = planned(&mut World::new(snapshot, index, catalogs, &frame, &nodes), options, early);
        self.kept = Some((frame, nodes));
        plan
    }
}
