//! One new node for all of some pods, without a search: what the pools of the highest weight that can have it have on offer.

use crate::custom::{Narrowed, combine};
use crate::draft::Draft;
use crate::hosts::Tally;
use crate::intern::{Amounts, Bits, add, fits};
use crate::limits;
use crate::lots::Lot;
use crate::market;
use crate::place::State;
use crate::select;
use crate::world::{World, tolerated};
use plimsoll_model::snapshot::HostPort;

/// What could hold them all.
#[derive(Debug, Clone)]
pub(crate) struct Offer {
    pub(crate) pool: usize,
    pub(crate) accept: Bits,
    load: Amounts,
    custom: Narrowed,
}

/// Offerings of one pool each, of which one node could hold all of `lots`: of all pools of the highest weight that has any, the
/// cheapest first.
pub(crate) fn offers(world: &World<'_>, state: &State, lots: &[Lot<'_>]) -> Vec<Offer> {
    let cheapest = |offer: &Offer| offer.accept.first().map(|one| world.pools[offer.pool].price(one));
    for tier in market::tiers(world) {
        let mut offers: Vec<Offer> = tier.filter_map(|pool| of_pool(world, state, lots, pool)).collect();
        if !offers.is_empty() {
            offers.sort_by_key(cheapest);
            return offers;
        }
    }
    Vec::new()
}

fn of_pool(world: &World<'_>, state: &State, lots: &[Lot<'_>], pool: usize) -> Option<Offer> {
    let view = &world.pools[pool];
    let mut accept = view.usable.clone();
    let mut custom = Narrowed::new();
    let mut load = vec![0; world.table.len()];
    let mut ports: Vec<&HostPort> = Vec::new();
    let mut tally = Tally::default();
    for lot in lots {
        let shape = &world.shapes[lot.shape];
        if !tolerated(&view.pool.taints, &shape.shape.tolerations, world.ladders.is_bare(lot.shape)) {
            return None;
        }
        // The first demand on open labels that agrees with those before it.
        let alternatives = world.narrowed(lot.shape, pool, lot.only.as_deref());
        custom = alternatives.iter().find_map(|one| combine(&custom, &one.custom))?;
        let mut any = Bits::none(view.offerings.len());
        for one in &alternatives {
            if combine(&custom, &one.custom).as_ref() == Some(&custom) {
                any.join(&one.offerings);
            }
        }
        accept.keep(&any);
        add(&mut load, shape.requests, i64::try_from(lot.pods.len()).unwrap_or(i64::MAX));
        if !shape.hosts.is_free() && tally.limit(&world.topology.host_rules, shape.hosts, lot.whole) < lot.pods.len() {
            return None;
        }
        tally.add(shape.hosts, lot.pods.len());
        for port in &shape.shape.host_ports {
            if lot.pods.len() > 1 || ports.iter().any(|other| other.conflicts(port)) {
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
            && limits::allows(&state.headroom[pool], &view.types[one.type_index].capacity)
            && !ports.iter().any(|port| one.ports.iter().any(|other| other.conflicts(port)))
    });
    (!accept.is_empty()).then_some(Offer { pool, accept, load, custom })
}

/// The launch of `offer` for `lots`, charged against the pool's limits; `None` if nothing is left of it.
pub(crate) fn launch<'a>(world: &World<'a>, state: &mut State, offer: Offer, lots: &[Lot<'a>]) -> Option<Draft<'a>> {
    let view = &world.pools[offer.pool];
    let offerings = select::acceptable(view, &offer.accept)?;
    limits::take_extra(view, &offerings, &vec![0; world.table.len()], &mut state.headroom[offer.pool]);
    let Offer { pool, load, custom, .. } = offer;
    Some(Draft { pool, lots: lots.to_vec(), load, custom, offerings, spare: None })
}
