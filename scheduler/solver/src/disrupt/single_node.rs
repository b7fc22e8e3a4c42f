//! One new node for all of some pods, without a search: what the pools of the highest weight that can have it have on offer.

use crate::input::context::{SolveContext, tolerated};
use crate::input::custom_labels::{Narrowed, combine};
use crate::input::intern::{Amounts, Bits, add, fits};
use crate::place::State;
use crate::place::draft::Draft;
use crate::place::hostname_topology::Tally;
use crate::place::launch;
use crate::place::limits;
use crate::place::market;
use crate::place::pod_groups::PodGroup;
use plimsoll_model::catalog::Offering;
use plimsoll_model::index::Id;
use plimsoll_model::snapshot::{HostPort, NodePool};

/// What could hold them all.
#[derive(Debug, Clone)]
pub(crate) struct Offer {
    pub(crate) pool: Id<NodePool>,
    pub(crate) accept: Bits<Offering>,
    load: Amounts,
    custom: Narrowed,
}

/// Offerings of one pool each, of which one node could hold all of `pod_groups`: of all pools of the highest weight that has any, the
/// cheapest first.
pub(crate) fn offers(context: &SolveContext<'_>, state: &State, pod_groups: &[PodGroup<'_>]) -> Vec<Offer> {
    let cheapest = |offer: &Offer| offer.accept.first().map(|one| context.pools[offer.pool].price(one));
    for tier in market::tiers(context) {
        let mut offers: Vec<Offer> =
            tier.into_iter().filter_map(|pool| of_pool(context, state, pod_groups, pool)).collect();
        if !offers.is_empty() {
            offers.sort_by_key(cheapest);
            return offers;
        }
    }
    Vec::new()
}

fn of_pool(
    context: &SolveContext<'_>,
    state: &State,
    pod_groups: &[PodGroup<'_>],
    pool: Id<NodePool>,
) -> Option<Offer> {
    let view = &context.pools[pool];
    let mut accept = view.usable.clone();
    let mut custom = Narrowed::new();
    let mut load = vec![0; context.table.len()];
    let mut ports: Vec<&HostPort> = Vec::new();
    let mut tally = Tally::default();
    for pod_group in pod_groups {
        let shape = &context.shapes[pod_group.shape];
        if !tolerated(&view.pool.taints, &shape.shape.tolerations, context.relaxation.is_required_only(pod_group.shape))
        {
            return None;
        }
        // The first demand on open labels that agrees with those before it.
        let alternatives = context.narrowed(pod_group.shape, pool, pod_group.only.as_deref());
        custom = alternatives.iter().find_map(|one| combine(&custom, &one.custom))?;
        let mut any = Bits::none(view.offerings.len());
        for one in &alternatives {
            if combine(&custom, &one.custom).as_ref() == Some(&custom) {
                any.join(&one.offerings);
            }
        }
        accept.keep(&any);
        add(&mut load, shape.requests, i64::try_from(pod_group.pods.len()).unwrap_or(i64::MAX));
        if !shape.hosts.is_free()
            && tally.limit(&context.topology.host_rules, shape.hosts, pod_group.whole) < pod_group.pods.len()
        {
            return None;
        }
        tally.add(shape.hosts, pod_group.pods.len());
        for port in &shape.shape.host_ports {
            if pod_group.pods.len() > 1 || ports.iter().any(|other| other.conflicts(port)) {
                return None;
            }
        }
        ports.extend(&shape.shape.host_ports);
        if accept.is_empty() {
            return None;
        }
    }
    accept.retain(|index| {
        let one = &view.offerings[index];
        fits(&load, &one.room)
            && limits::allows(&state.headroom[pool], view.capacity(index))
            && !ports.iter().any(|port| one.ports.iter().any(|other| other.conflicts(port)))
    });
    (!accept.is_empty()).then_some(Offer { pool, accept, load, custom })
}

/// The launch of `offer` for `pod_groups`, charged against the pool's limits; `None` if nothing is left of it.
pub(crate) fn launch<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    offer: Offer,
    pod_groups: &[PodGroup<'a>],
) -> Option<Draft<'a>> {
    let view = &context.pools[offer.pool];
    let mut accept = offer.accept;
    let cheapest = accept.first()?;
    // One capacity reservation is enough: the others are for other nodes.
    accept.retain(|one| one == cheapest || !view.is_reserved(one));
    let offerings = launch::acceptable(view, &accept)?;
    limits::take_extra(view, &offerings, &vec![0; context.table.len()], &mut state.headroom[offer.pool]);
    limits::share(context, &mut state.headroom, offer.pool);
    let Offer { pool, load, custom, .. } = offer;
    Some(Draft { pool, pod_groups: pod_groups.to_vec(), load, custom, offerings, spare: None })
}
