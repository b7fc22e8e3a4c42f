//! One new node for several pods, without a search.

use crate::input::context::SolveContext;
use crate::place::State;
use crate::place::draft::Draft;
use crate::place::launch;
use crate::place::limits;
use crate::place::local_search::bins::{Bin, BinKind, BinKinds, Part};
use crate::place::market;
use crate::place::pod_groups::PodGroup;

/// Nodes that could run all of `pod_groups`, at most one per pool. Only pools of the highest weight with such a node
/// are used. Cheapest first.
pub(crate) fn offers<'a>(context: &SolveContext<'a>, state: &State, pod_groups: &[PodGroup<'a>]) -> Vec<Bin<'a>> {
    let kinds: BinKinds = pod_groups.iter().map(|pod_group| BinKind::new(context, pod_group, |_| true)).collect();
    let cheapest = |offer: &Bin<'_>| offer.accept.first().map(|one| context.pools[offer.pool].price(one));
    for weight_group in market::weight_groups(context) {
        let mut offers: Vec<Bin<'a>> = Vec::new();
        for pool in weight_group {
            let mut node = Bin::empty(context, pool);
            let mut parts =
                kinds.ids().zip(pod_groups).map(|(kind, pod_group)| Part { kind, pods: pod_group.pods.clone() });
            if parts.all(|part| node.extend(context, &kinds, part).is_some()) {
                node.accept = node.fitting(context, &state.headroom[pool]);
                offers.extend(Some(node).filter(|node| !node.accept.is_empty()));
            }
        }
        if !offers.is_empty() {
            offers.sort_by_key(cheapest);
            return offers;
        }
    }
    Vec::new()
}

/// The launch of `offer` for `pod_groups`, charged to the pool's limits. `None` if no offering remains.
pub(crate) fn launch<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    offer: Bin<'a>,
    pod_groups: &[PodGroup<'a>],
) -> Option<Draft<'a>> {
    let view = &context.pools[offer.pool];
    let mut accept = offer.accept;
    let cheapest = accept.first()?;
    // One capacity reservation is enough. The others remain available for other nodes.
    accept.retain(|one| one == cheapest || !view.is_reserved(one));
    let offerings = launch::acceptable(view, &accept)?;
    limits::take_extra(view, &offerings, &vec![0; context.table.len()], &mut state.headroom[offer.pool]);
    limits::share(context, &mut state.headroom, offer.pool);
    let Bin { pool, load, custom, .. } = offer;
    Some(Draft { pool, pod_groups: pod_groups.to_vec(), load, custom, offerings, spare: None })
}
