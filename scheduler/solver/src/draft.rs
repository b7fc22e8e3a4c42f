//! Nodes to launch while a plan is still being made: with their pods by lot, so that they can be looked at again.

use crate::custom::Narrowed;
use crate::intern::Amounts;
use crate::lots::Lot;
use crate::select::{self, Listings, NewNode};
use crate::world::World;
use plimsoll_model::plan::Launch;
use plimsoll_model::snapshot::Pod;

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
}

impl Draft<'_> {
    /// Of the cheapest offering, in micro-USD per hour.
    pub(crate) fn price(&self, world: &World<'_>) -> i64 {
        self.offerings.first().map_or(0, |cheapest| world.pools[self.pool].price(*cheapest))
    }

    /// As the plan has it.
    pub(crate) fn launch(&self, world: &World<'_>, listings: &mut Listings) -> Launch {
        let pods: Vec<&Pod> = self.lots.iter().flat_map(|lot| lot.pods.iter().copied()).collect();
        let Self { pool, load, custom, offerings, .. } = self;
        let node = NewNode { view: &world.pools[*pool], number: 0, load, custom, offerings };
        select::launch(world, &node, &pods, listings)
    }
}
