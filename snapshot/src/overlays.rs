//! Reads NodeOverlays.

use crate::Objects;
use crate::decimal::{MILLION, millionths};
use crate::problems::{Fault, Problem};
use crate::requests;
use plimsoll_api::{NodeOverlay as ApiOverlay, Validate};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::overlay::{NodeOverlay, PriceChange};
use plimsoll_model::requirements::NodeSelectorRequirement;

/// Millionths in one percent.
const MILLIONTHS_PER_PERCENT: i64 = 10_000;
/// Returns all valid overlays, ordered by name.
pub(crate) fn build(objects: &Objects, problems: &mut Vec<Problem>) -> Vec<NodeOverlay> {
    let mut overlays = Vec::new();
    for overlay in objects.node_overlays.iter().filter(|overlay| overlay.metadata.deletion_timestamp.is_none()) {
        match read(overlay) {
            Ok(overlay) => overlays.push(overlay),
            Err(fault) => problems.push(Problem::of("NodeOverlay", &overlay.metadata, fault)),
        }
    }
    overlays.sort();
    overlays
}

fn read(overlay: &ApiOverlay) -> Result<NodeOverlay, Fault> {
    if let Some(error) = overlay.validate().into_iter().next() {
        return Err(Fault::new(error.path, error.message));
    }
    let spec = &overlay.spec;
    let price = match (&spec.price, &spec.price_adjustment) {
        (Some(price), _) => {
            Some(PriceChange::To(millionths(price).map(MicroUsdPerHour).ok_or_else(|| wrong("spec.price", price))?))
        }
        (None, Some(text)) => Some(adjustment(text).ok_or_else(|| wrong("spec.priceAdjustment", text))?),
        (None, None) => None,
    };
    Ok(NodeOverlay {
        name: overlay.metadata.name.clone().unwrap_or_default(),
        weight: spec.weight(),
        requirements: spec.requirements.iter().map(NodeSelectorRequirement::from).collect(),
        price,
        capacity: requests::amounts(Some(&spec.capacity), "spec.capacity")?,
    })
}

fn wrong(field: &str, text: &str) -> Fault {
    Fault::new(field, format!("{text:?} is not a price"))
}

/// Parses a price adjustment such as `+0.05`, `-0.05`, `+10%` or `-10%`.
fn adjustment(text: &str) -> Option<PriceChange> {
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let size = text.strip_prefix(['+', '-'])?;
    Some(match size.strip_suffix('%') {
        Some(share) => PriceChange::ByShare(sign * (millionths(share)?.checked_mul(MILLIONTHS_PER_PERCENT)? / MILLION)),
        None => PriceChange::By(MicroUsdPerHour(sign * millionths(size)?)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn overlay(spec: &Value) -> Result<NodeOverlay, Fault> {
        let mut overlay_spec = json!({"requirements": [{"key": "a", "operator": "In", "values": ["b"]}]});
        overlay_spec.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        read(&serde_json::from_value(json!({"metadata": {"name": "o"}, "spec": overlay_spec})).unwrap())
    }

    #[test]
    fn prices_are_parsed_to_the_millionth() {
        let table = [
            (json!({"price": "0.0312"}), PriceChange::To(MicroUsdPerHour(31_200))),
            (json!({"price": "7"}), PriceChange::To(MicroUsdPerHour(7_000_000))),
            (json!({"priceAdjustment": "+0.05"}), PriceChange::By(MicroUsdPerHour(50_000))),
            (json!({"priceAdjustment": "-.05"}), PriceChange::By(MicroUsdPerHour(-50_000))),
            (json!({"priceAdjustment": "+10%"}), PriceChange::ByShare(100_000)),
            (json!({"priceAdjustment": "-12.5%"}), PriceChange::ByShare(-125_000)),
            (json!({"priceAdjustment": "-100%"}), PriceChange::ByShare(-1_000_000)),
        ];
        for (spec, expected) in table {
            assert_eq!(overlay(&spec).map(|overlay| overlay.price), Ok(Some(expected)), "{spec}");
        }
        assert_eq!(overlay(&json!({"weight": 3})).map(|overlay| (overlay.price, overlay.weight)), Ok((None, 3)));
    }

    #[test]
    fn an_invalid_overlay_names_the_field() {
        let table = [
            (json!({"price": "cheap"}), "spec.price"),
            (json!({"price": "99999999"}), "spec.price"),
            (json!({"priceAdjustment": "10%"}), "spec.priceAdjustment"),
            (json!({"price": "1", "priceAdjustment": "+1"}), "spec.priceAdjustment"),
            (json!({"capacity": {"cpu": "4"}}), "spec.capacity"),
        ];
        for (spec, field) in table {
            let path = overlay(&spec).unwrap_err().field;
            assert!(path.starts_with(field), "{spec}: {path}");
        }
    }
}
