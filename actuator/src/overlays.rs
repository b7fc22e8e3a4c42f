//! NodeOverlays that are in use: their prices for instance types that have none, such as previews, and the resources
//! that they name.

use crate::settings::Settings;
use crate::stores::Stores;
use plimsoll_api::condition::{self, node_overlay::VALIDATION_SUCCEEDED};
use plimsoll_api::{NodeOverlay, Validate};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::label;
use plimsoll_model::requirements::Operator;
use plimsoll_model::resources::Resources;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The valid NodeOverlays; none if the settings ignore them.
pub(crate) fn in_use(stores: &Stores, settings: &Settings) -> Vec<Arc<NodeOverlay>> {
    let mut overlays = if settings.node_overlays { stores.overlays.state() } else { Vec::new() };
    overlays.retain(|overlay| is_in_use(overlay));
    overlays
}

/// The part of `requests` that the types of a catalog must have. Amounts of a resource that one of the overlays names
/// may be the overlay's, and the catalog does not have those.
pub(crate) fn requests_of_catalog(overlays: &[Arc<NodeOverlay>], requests: &Resources) -> Resources {
    let mut rest = requests.clone();
    for name in overlays.iter().flat_map(|overlay| overlay.spec.capacity.keys()) {
        rest.remove(name);
    }
    rest
}

/// Absolute prices by instance type, of overlays whose only requirement lists instance types by name. Of several
/// for a type, the one that takes precedence counts.
pub(crate) fn prices(overlays: &[Arc<NodeOverlay>]) -> BTreeMap<String, MicroUsdPerHour> {
    let mut overlays: Vec<&NodeOverlay> = overlays.iter().map(|it| &**it).collect();
    overlays.sort_by_key(|it| (Reverse(it.spec.weight()), Reverse(it.metadata.name.clone())));
    let mut prices = BTreeMap::new();
    for overlay in overlays {
        let price = overlay.spec.price.as_deref().and_then(|price| MicroUsdPerHour::parse_usd(price).ok());
        let ([only], Some(price)) = (overlay.spec.requirements.as_slice(), price) else { continue };
        if only.key != label::INSTANCE_TYPE || only.operator != Operator::In {
            continue;
        }
        for name in &only.values {
            prices.entry(name.clone()).or_insert(price);
        }
    }
    prices
}

fn is_in_use(overlay: &NodeOverlay) -> bool {
    let is_refused =
        overlay.status.as_ref().is_some_and(|it| condition::is_false(&it.conditions, VALIDATION_SUCCEEDED));
    overlay.metadata.deletion_timestamp.is_none() && !is_refused && overlay.validate().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn overlay(name: &str, weight: i32, spec: &Value) -> Arc<NodeOverlay> {
        let mut all = json!({"weight": weight, "requirements": [
            {"key": label::INSTANCE_TYPE, "operator": "In", "values": ["new.large", "new.xlarge"]}]});
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let overlay = json!({"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": name},
            "spec": all});
        Arc::new(serde_json::from_value(overlay).unwrap())
    }

    #[test]
    fn absolute_prices_of_named_types_count_in_order_of_precedence() {
        let named = |names: &[&str]| json!([{"key": label::INSTANCE_TYPE, "operator": "In", "values": names}]);
        let other = json!({"key": label::ARCH, "operator": "In", "values": ["amd64"]});
        let two = json!([named(&["two.large"])[0], other]);
        let not_in = json!([{"key": label::INSTANCE_TYPE, "operator": "NotIn", "values": ["x.large"]}]);
        let mut refused: NodeOverlay = (*overlay("refused", 9, &json!({"price": "9"}))).clone();
        refused.status =
            serde_json::from_value(json!({"conditions": [{"type": VALIDATION_SUCCEEDED, "status": "False",
            "reason": "Conflict", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}]}))
            .unwrap();
        let mut all = vec![
            overlay("a", 1, &json!({"price": "0.5"})),
            overlay("b", 2, &json!({"price": "0.25", "requirements": named(&["new.large"])})),
            overlay("c", 3, &json!({"priceAdjustment": "+1"})),
            overlay("d", 3, &json!({"price": "1", "requirements": two})),
            overlay("e", 3, &json!({"price": "1", "requirements": not_in})),
            overlay("f", 3, &json!({"price": "1", "priceAdjustment": "+1"})),
            Arc::new(refused),
        ];
        all.retain(|overlay| is_in_use(overlay));
        let found = prices(&all);
        let found: Vec<_> = found.iter().map(|(name, price)| (name.as_str(), price.0)).collect();
        assert_eq!(found, [("new.large", 250_000), ("new.xlarge", 500_000)]);
    }
}
