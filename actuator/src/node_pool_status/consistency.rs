//! Whether a Node has the capacity that its claim expects. Pure functions.

use crate::state::capacity::amounts;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use plimsoll_api::NodeClaim;
use plimsoll_api::condition::node_claim::{CONDITIONS, CONSISTENT_STATE_FOUND};
use plimsoll_api::condition::{Moment, Status};
use plimsoll_model::quantity::format_amount;

/// Share of the expected capacity that a Node must have at least.
const MIN_PERCENT: i64 = 90;

/// Compares the capacity of an initialized Node with that of its claim. Only resources that the claim requests count.
///
/// # Errors
/// The resources of which the Node has too little.
pub(super) fn check(claim: &NodeClaim, node: &Node) -> Result<(), String> {
    let (Some(status), Some(resources)) = (&claim.status, &claim.spec.resources) else { return Ok(()) };
    let requests = amounts(&resources.requests);
    let expected = amounts(&status.capacity);
    let found = node.status.as_ref().and_then(|status| status.capacity.as_ref()).map(amounts).unwrap_or_default();
    let requested = requests.iter().filter(|(_, amount)| *amount > 0).map(|(name, _)| name);
    let missing = requested.filter_map(|name| {
        let (found, expected) = (found.get(name), expected.get(name));
        let is_short = found.saturating_mul(100) < expected.saturating_mul(MIN_PERCENT);
        let text = |amount| format_amount(name, amount);
        is_short.then(|| format!("{name}: expected {}, found {}", text(expected), text(found)))
    });
    let missing: Vec<String> = missing.collect();
    if missing.is_empty() { Ok(()) } else { Err(format!("the Node lacks capacity: {}", missing.join("; "))) }
}

/// Sets the condition. Returns whether it has changed.
pub(super) fn show(conditions: &mut Vec<Condition>, moment: Moment, result: &Result<(), String>) -> bool {
    match result {
        Ok(()) => CONDITIONS.set_true(conditions, moment, CONSISTENT_STATE_FOUND),
        Err(message) => {
            let reason = "ConsistencyCheckFailed";
            CONDITIONS.set(conditions, moment, CONSISTENT_STATE_FOUND, Status::False, reason, message)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use plimsoll_api::condition::{self, READY};
    use serde_json::{Value, json};

    /// The result for a claim that requests CPU and a GPU and expects `{"cpu": "4", "memory": "16Gi", "gpu": "8"}`.
    fn check_node(capacity: &Value) -> Result<(), String> {
        let claim: NodeClaim = serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "c"},
            "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"},
                "resources": {"requests": {"cpu": "2", "example.com/gpu": "1"}}},
            "status": {"capacity": {"cpu": "4", "memory": "16Gi", "example.com/gpu": "8"}, "conditions": []},
        }))
        .unwrap();
        check(&claim, &serde_json::from_value(json!({"metadata": {}, "status": {"capacity": capacity}})).unwrap())
    }

    #[test]
    fn a_node_has_at_least_nine_tenths_of_what_its_claim_expects() {
        assert_eq!(check_node(&json!({"cpu": "3600m", "example.com/gpu": "8"})), Ok(()), "memory is not requested");
        let short = check_node(&json!({"cpu": "3599m", "example.com/gpu": "7", "memory": "16Gi"}));
        let message = "the Node lacks capacity: cpu: expected 4, found 3599m; example.com/gpu: expected 8, found 7";
        assert_eq!(short, Err(message.to_owned()));
    }

    #[test]
    fn the_condition_is_no_part_of_ready() {
        let now = Timestamp::UNIX_EPOCH;
        let moment = Moment { generation: 1, created: now, deleting: false, now };
        let mut conditions = Vec::new();
        for dependent in CONDITIONS.dependents {
            CONDITIONS.set_true(&mut conditions, moment, dependent);
        }
        assert!(show(&mut conditions, moment, &Err("the Node lacks capacity".to_owned())));
        let shown = condition::get(&conditions, CONSISTENT_STATE_FOUND).unwrap();
        assert_eq!((shown.status.as_str(), shown.reason.as_str()), ("False", "ConsistencyCheckFailed"));
        assert!(condition::get_true(&conditions, READY).is_some());
        assert!(show(&mut conditions, moment, &Ok(())));
        assert!(condition::get_true(&conditions, CONSISTENT_STATE_FOUND).is_some());
    }
}
