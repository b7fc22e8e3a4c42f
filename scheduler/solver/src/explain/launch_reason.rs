//! Describes why a launch uses its pool and offering, and the next best alternative.

use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::OfferingChoice;
use plimsoll_model::snapshot::NodePool;

/// Returns a text of bounded length: pool, pods, offering, and the next best type with the difference in price.
pub(crate) fn text(pool: &NodePool, choices: &[OfferingChoice], pods: usize) -> String {
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
    text
}

fn dearer(than: MicroUsdPerHour, price: MicroUsdPerHour) -> String {
    match price.0.saturating_sub(than.0) {
        0 => "the same".to_owned(),
        more => format!("{} USD/h more", MicroUsdPerHour(more)),
    }
}
