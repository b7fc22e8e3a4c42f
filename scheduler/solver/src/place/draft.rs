//! Planned launches while they can still be changed, with their pods by pod group.

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

#[derive(Debug, Clone)]
pub(crate) struct Draft<'a> {
    pub(crate) pool: Id<NodePool>,
    pub(crate) pod_groups: Vec<PodGroup<'a>>,
    /// Total requests of the pods.
    pub(crate) load: Amounts,
    pub(crate) custom: Narrowed,
    /// Listed offerings, cheapest first. Not empty.
    pub(crate) offerings: Vec<Id<Offering>>,
    /// Offerings that may be listed too if limits allow, only for pools with limits.
    pub(crate) spare: Option<Rc<Spare>>,
}

/// Further offerings of a launch in a pool with limits.
#[derive(Debug)]
pub(crate) struct Spare {
    /// All offerings on which the pods fit.
    pub(crate) accept: Bits<Offering>,
    /// Usage of limits that is charged now.
    pub(crate) charge: Amounts,
}

/// Pods on launches, by shape of the snapshot.
pub(crate) type Demand = BTreeMap<Id<PodShape>, Launched>;

/// Number of pods of one shape on launches.
#[derive(Debug, Default)]
pub(crate) struct Launched {
    pub(crate) pods: usize,
    /// By zone of the cheapest offering of their launch.
    pub(crate) by_zone: BTreeMap<String, usize>,
}

impl Launched {
    pub(crate) fn add(&mut self, zone: &str, pods: usize) {
        self.pods += pods;
        *self.by_zone.entry(zone.to_owned()).or_default() += pods;
    }
}

/// Converts drafts to launches of a plan, and adds their pods to `demand`.
pub(crate) fn listed(context: &SolveContext<'_>, drafts: &[Draft<'_>], demand: &mut Demand) -> Vec<Launch> {
    let mut listings = Listings::default();
    for draft in drafts {
        let zone = draft.offerings.first().map_or("", |one| context.pools[draft.pool].offering(*one).zone.as_str());
        for pod_group in &draft.pod_groups {
            let launched = demand.entry(context.relaxation.base(pod_group.shape)).or_default();
            launched.add(zone, pod_group.pods.len());
        }
    }
    let launch = |draft: &Draft<'_>| {
        let Draft { pool, load, custom, offerings, pod_groups, .. } = draft;
        let pods: Vec<&Pod> = pod_groups.iter().flat_map(|pod_group| pod_group.pods.iter().copied()).collect();
        let node = NewNode { view: &context.pools[*pool], number: 0, load, custom, offerings };
        launch::launch(context, &node, &pods, &mut listings)
    };
    drafts.iter().map(launch).collect()
}

impl Draft<'_> {
    /// Price of the cheapest offering in micro-USD per hour.
    pub(crate) fn price(&self, context: &SolveContext<'_>) -> i64 {
        self.offerings.first().map_or(0, |cheapest| context.pools[self.pool].price(*cheapest))
    }

    /// Whether the cheapest offering is a reserved instance.
    pub(crate) fn is_reserved(&self, context: &SolveContext<'_>) -> bool {
        self.offerings.first().is_some_and(|cheapest| context.pools[self.pool].is_reserved(*cheapest))
    }
}
