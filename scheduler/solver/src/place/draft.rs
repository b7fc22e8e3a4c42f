//! Nodes to launch while a plan is still being made: with their pods by pod group, so that they can be looked at again.

use crate::input::context::SolveContext;
use crate::input::custom_labels::Narrowed;
use crate::input::intern::{Amounts, Bits};
use crate::place::launch::{self, Listings, NewNode};
use crate::place::pod_groups::PodGroup;
use plimsoll_model::catalog::Offering;
use plimsoll_model::index::Id;
use plimsoll_model::plan::Launch;
use plimsoll_model::snapshot::{NodePool, Pod, PodShape};
use std::collections::BTreeMap;
use std::rc::Rc;

/// A node to launch.
#[derive(Debug, Clone)]
pub(crate) struct Draft<'a> {
    pub(crate) pool: Id<NodePool>,
    pub(crate) pod_groups: Vec<PodGroup<'a>>,
    /// What the pods request.
    pub(crate) load: Amounts,
    pub(crate) custom: Narrowed,
    /// What it lists, cheapest first, not empty.
    pub(crate) offerings: Vec<Id<Offering>>,
    /// What it may list if limits leave room for that.
    pub(crate) spare: Option<Rc<Spare>>,
}

/// Of a launch of a pool with limits.
#[derive(Debug)]
pub(crate) struct Spare {
    /// All that could hold its pods.
    pub(crate) accept: Bits<Offering>,
    /// What it counts against limits now.
    pub(crate) charge: Amounts,
}

/// Numbers of pods by shape, as the snapshot has them.
pub(crate) type Demand = BTreeMap<Id<PodShape>, usize>;

/// As the plan has them; their pods are added to `demand`.
pub(crate) fn listed(
    context: &SolveContext<'_>,
    drafts: &[Draft<'_>],
    listings: &mut Listings,
    demand: &mut Demand,
) -> Vec<Launch> {
    for pod_group in drafts.iter().flat_map(|draft| &draft.pod_groups) {
        *demand.entry(context.relaxation.base(pod_group.shape)).or_default() += pod_group.pods.len();
    }
    drafts.iter().map(|draft| draft.launch(context, listings)).collect()
}

impl Draft<'_> {
    /// Of the cheapest offering, in micro-USD per hour.
    pub(crate) fn price(&self, context: &SolveContext<'_>) -> i64 {
        self.offerings.first().map_or(0, |cheapest| context.pools[self.pool].price(*cheapest))
    }

    /// As the plan has it.
    fn launch(&self, context: &SolveContext<'_>, listings: &mut Listings) -> Launch {
        let pods: Vec<&Pod> = self.pod_groups.iter().flat_map(|pod_group| pod_group.pods.iter().copied()).collect();
        let Self { pool, load, custom, offerings, pod_groups, .. } = self;
        let shapes = &pod_groups.iter().map(|pod_group| context.relaxation.base(pod_group.shape)).collect();
        let node = NewNode { view: &context.pools[*pool], number: 0, load, custom, offerings, shapes };
        launch::launch(context, &node, &pods, listings)
    }
}
