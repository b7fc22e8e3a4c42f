//! Describes why a launch uses its pool and offering, and the next best alternatives.

use crate::input::context::{SolveContext, tolerated};
use crate::input::intern::fits;
use crate::place::launch::NewNode;
use plimsoll_model::catalog::Offering;
use plimsoll_model::index::Id;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::OfferingChoice;
use plimsoll_model::snapshot::PodShape;

/// Maximum number of later pools that are searched for an alternative. The text is informational, and created for every
/// launch.
const POOLS: usize = 3;

/// Returns a text of bounded length: pool, pods, offering, and the next best type and pool with the difference in
/// price.
pub(crate) fn text(context: &SolveContext<'_>, node: &NewNode<'_>, choices: &[OfferingChoice], pods: usize) -> String {
    let pool = node.view.pool;
    let Some(first) = choices.first() else { return String::new() };
    let pods = match pods {
        0 => "a node for its replicas".to_owned(),
        1 => "1 pod".to_owned(),
        more => format!("{more} pods"),
    };
    let mut text = format!(
        "NodePool {} (weight {}) takes {pods}; of {} acceptable offerings {} is the cheapest at {} USD/h",
        pool.name,
        pool.weight,
        choices.len(),
        first,
        first.price
    );
    let runner_up = choices.iter().find(|one| one.instance_type != first.instance_type);
    match runner_up.or_else(|| choices.get(1)) {
        Some(other) => text.push_str(&format!("; next is {}, {}", other, dearer(first.price, other.price))),
        None => text.push_str("; there is no other acceptable offering"),
    }
    if let Some((other, price)) = next_pool(context, node) {
        text.push_str(&format!("; NodePool {other} comes later and would cost {}", dearer(first.price, price)));
    }
    text
}

fn dearer(than: MicroUsdPerHour, price: MicroUsdPerHour) -> String {
    match price.0.saturating_sub(than.0) {
        0 => "the same".to_owned(),
        more if more > 0 => format!("{} USD/h more", MicroUsdPerHour(more)),
        less => format!("{} USD/h less", MicroUsdPerHour(less.saturating_neg())),
    }
}

/// The first pool after the chosen one in which a node could run all of these pods, with its cheapest price.
fn next_pool(context: &SolveContext<'_>, node: &NewNode<'_>) -> Option<(String, MicroUsdPerHour)> {
    let mut later = context.pools.iter_enumerated();
    later.find(|(_, view)| std::ptr::eq(*view, node.view))?;
    for (pool, view) in later.take(POOLS) {
        let admission = |shape: &Id<PodShape>| {
            let shape = &context.shapes[*shape];
            tolerated(&view.pool.taints, &shape.shape.tolerations, true)
        };
        if !node.shapes.iter().all(admission) {
            continue;
        }
        let holds = |offering: &Id<Offering>| {
            fits(node.load, &view.offerings[*offering].room)
                && node.shapes.iter().all(|shape| {
                    let fits = &context.shapes[*shape].fits[pool];
                    fits.iter().any(|one| one.offerings.has(*offering))
                })
        };
        if let Some(offering) = view.usable.iter().find(holds) {
            return Some((view.pool.name.to_string(), MicroUsdPerHour(view.price(offering))));
        }
    }
    None
}
