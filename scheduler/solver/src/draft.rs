//! Nodes to launch while a plan is still being made: with their pods by lot, so that they can be looked at again.

use crate::custom::Narrowed;
use crate::intern::{Amounts, Bits};
use crate::lots::Lot;
use crate::select::{self, Listings, NewNode};
use crate::world::World;
use plimsoll_model::plan::Launch;
use plimsoll_model::snapshot::Pod;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A node to launch.
#[derive(Debug, Clone)]
pub(crate) struct Draft<'a> {
    pub(crate) pool: usize,
    pub(crate) lots: Vec<Lot<'a>>,
    /// What the pods request.
    pub(crate) load: Amounts,
    pub(crate) custom: Narrowed,
    /// What it lists, cheapest first, not empty.
    pub(crate) offerings: Vec<usize>,
    /// What it may list if limits leave room for that.
    pub(crate) spare: Option<Rc<Spare>>,
}

/// Of a launch of a pool with limits.
#[derive(Debug)]
pub(crate) struct Spare {
    /// All that could hold its pods.
    pub(crate) accept: Bits,
    /// What it counts against limits now.
    pub(crate) charge: Amounts,
}

/// Numbers of pods by shape, as the snapshot has them.
pub(crate) type Demand = BTreeMap<usize, usize>;

/// As the plan has them; their pods are added to `demand`.
pub(crate) fn listed(
    world: &World<'_>,
    drafts: &[Draft<'_>],
    listings: &mut Listings,
    demand: &mut Demand,
) -> Vec<Launch> {
    for lot in drafts.iter().flat_map(|draft| &draft.lots) {
        *demand.entry(world.ladders.base(lot.shape)).or_default() += lot.pods.len();
    }
    drafts.iter().map(|draft| draft.launch(world, listings)).collect()
}

impl Draft<'_> {
    /// Of the cheapest offering, in micro-USD per hour.
    pub(crate) fn price(&self, world: &World<'_>) -> i64 {
        self.offerings.first().map_or(0, |cheapest| world.pools[self.pool].price(*cheapest))
    }

    /// As the plan has it.
    fn launch(&self, world: &World<'_>, listings: &mut Listings) -> Launch {
        let pods: Vec<&Pod> = self.lots.iter().flat_map(|lot| lot.pods.iter().copied()).collect();
        let Self { pool, load, custom, offerings, lots, .. } = self;
        let shapes = &lots.iter().map(|lot| world.ladders.base(lot.shape)).collect();
        let node = NewNode { view: &world.pools[*pool], number: 0, load, custom, offerings, shapes };
        select::launch(world, &node, &pods, listings)
    }
}
