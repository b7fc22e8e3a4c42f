//! When nodes expire. With an annotation of the NodePool, nodes that were created together do not expire together.

use crate::problems::Fault;
use crate::{annotations, kube_time};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plimsoll_api::condition::node_claim::DISRUPTION_REASON;
use plimsoll_api::{NodeClaim, NodePool};
use plimsoll_model::identity::ContentHasher;
use plimsoll_model::names::annotation;
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_model::time::{Millis, Timestamp};

/// The largest jitter in percent. With more, nodes might expire soon after their creation.
const LARGEST: u32 = 50;

/// When a node expires. A node from a file may have neither claim nor creation time. Such a node does not expire.
#[must_use]
pub fn expires(claim: Option<&NodeClaim>, pool: Option<&NodePool>, created: Timestamp) -> Option<Timestamp> {
    let after = match (claim, pool) {
        (Some(claim), _) => claim.spec.expire_after(),
        (None, Some(pool)) => pool.spec.template.spec.expire_after(),
        (None, None) => return None,
    };
    let age_is_known = created != Timestamp::default();
    let after = kube_time::millis(after.value().filter(|_| age_is_known)?);
    let earlier = match (claim.and_then(|claim| claim.metadata.uid.as_ref()), pool) {
        // An invalid jitter is in the condition of the NodePool.
        (Some(uid), Some(pool)) => earlier(after, jitter(&pool.metadata).unwrap_or(0), uid),
        _ => Millis(0),
    };
    Some(created.plus(Millis(after.0.saturating_sub(earlier.0))))
}

/// Whether the claim was deleted because it had expired, and no plan removes its node. The actuator marks such a claim
/// first. An expired claim may also be deleted by a user, which is voluntary.
#[must_use]
pub fn was_expired(claim: &NodeClaim) -> bool {
    let annotations = claim.metadata.annotations.as_ref();
    let is_planned = annotations.is_some_and(|annotations| annotations.contains_key(annotation::REMOVAL));
    let expired = DisruptionReason::Expired.as_str();
    let is_marked = claim.true_condition(DISRUPTION_REASON).is_some_and(|condition| condition.reason == expired);
    claim.metadata.deletion_timestamp.is_some() && !is_planned && is_marked
}

/// By how many percent of `expireAfter` nodes of `pool` may expire earlier. Zero without the annotation.
///
/// # Errors
/// The annotation is invalid.
pub(crate) fn jitter(pool: &ObjectMeta) -> Result<u32, Fault> {
    let key = annotation::EXPIRY_JITTER;
    let Some(text) = annotations::text(pool, key) else { return Ok(0) };
    let number = text.trim().strip_suffix('%').and_then(|number| number.parse::<u32>().ok());
    let message = || format!("{text:?} is not a percentage from 0% to {LARGEST}%, such as 10%");
    let percentage = number.filter(|number| *number <= LARGEST);
    percentage.ok_or_else(|| annotations::fault(key, message()))
}

/// How much earlier than `after` a claim expires: a part of the jitter that depends only on its UID, so that watcher
/// and actuator agree without a record of it.
fn earlier(after: Millis, percentage: u32, uid: &str) -> Millis {
    if percentage == 0 {
        return Millis(0);
    }
    let mut hasher = ContentHasher::new("expiry");
    hasher.text(uid);
    let part = u32::from_str_radix(&hasher.hex(8), 16).unwrap_or(0);
    let most = u128::from(after.0) * u128::from(percentage) / 100;
    Millis(u64::try_from((most * u128::from(part)) >> u32::BITS).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::collections::BTreeSet;

    const CREATED: Timestamp = Timestamp(1_000_000);
    const HOUR: i64 = 3_600_000;

    fn claim(number: u32, expire_after: &str) -> NodeClaim {
        serde_json::from_value(json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": "c", "uid": format!("uid-{number}")},
            "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"},
                "expireAfter": expire_after}}))
        .unwrap()
    }

    fn pool(annotations: &Value) -> NodePool {
        serde_json::from_value(json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool",
            "metadata": {"name": "p", "annotations": annotations},
            "spec": {"template": {"spec": {"requirements": [],
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "c"}}}}}))
        .unwrap()
    }

    fn with(jitter: &str) -> NodePool {
        pool(&json!({annotation::EXPIRY_JITTER: jitter}))
    }

    /// Milliseconds from the creation to the expiry.
    fn age(number: u32, pool: Option<&NodePool>) -> i64 {
        expires(Some(&claim(number, "10h")), pool, CREATED).unwrap().0 - CREATED.0
    }

    #[test]
    fn nodes_that_were_created_together_expire_one_after_the_other() {
        let pool = with("10%");
        let ages: BTreeSet<i64> = (0..100).map(|number| age(number, Some(&pool))).collect();
        assert_eq!(ages.len(), 100);
        let (first, last) = (*ages.first().unwrap(), *ages.last().unwrap());
        assert!(9 * HOUR < first && first < 9 * HOUR + HOUR / 10, "{first}");
        assert!(10 * HOUR - HOUR / 10 < last && last <= 10 * HOUR, "{last}");
        // Both halves of the hour have their share.
        let early = ages.iter().filter(|age| **age < 9 * HOUR + HOUR / 2).count();
        assert!((35..=65).contains(&early), "{early}");
        assert_eq!(age(7, Some(&pool)), age(7, Some(&pool)));
    }

    #[test]
    fn without_a_valid_jitter_nodes_expire_at_their_age() {
        let pools = [pool(&json!({})), with("0%"), with("51%"), with("10"), with("ten%")];
        for pool in &pools {
            assert_eq!(age(1, Some(pool)), 10 * HOUR, "{pool:?}");
        }
        assert_eq!(age(1, None), 10 * HOUR);
        assert_eq!(expires(Some(&claim(1, "Never")), Some(&with("10%")), CREATED), None);
        // A node from a file has no UID.
        let default = expires(None, Some(&with("10%")), CREATED).unwrap();
        assert_eq!(default.0 - CREATED.0, 720 * HOUR);
        assert_eq!(expires(None, Some(&with("10%")), Timestamp::default()), None, "nor a known age");
        assert_eq!(expires(None, None, CREATED), None);
    }

    #[test]
    fn a_claim_was_expired_if_it_was_marked_and_deleted_without_a_plan() {
        let was = |reason: Option<&str>, deleted: Option<&str>, annotations: &Value| {
            let mut claim = serde_json::to_value(claim(1, "10h")).unwrap();
            claim["metadata"]["deletionTimestamp"] = json!(deleted);
            claim["metadata"]["annotations"] = annotations.clone();
            let condition = |reason: &str| {
                json!({"type": "DisruptionReason", "status": "True", "reason": reason, "message": reason,
                    "lastTransitionTime": "2026-01-05T10:00:00Z"})
            };
            claim["status"] = json!({"conditions": reason.map(condition).into_iter().collect::<Vec<_>>()});
            was_expired(&serde_json::from_value(claim).unwrap())
        };
        let (none, deleted) = (json!({}), Some("2026-01-06T00:00:00Z"));
        assert!(was(Some("Expired"), deleted, &none));
        assert!(!was(Some("Expired"), None, &none), "it is not deleted yet");
        assert!(!was(Some("Interrupted"), deleted, &none));
        assert!(!was(None, deleted, &none), "a user has deleted it after its age");
        let planned = json!({annotation::REMOVAL: "{}"});
        assert!(!was(Some("Expired"), deleted, &planned), "the plan has a reason");
    }

    #[test]
    fn a_jitter_is_at_most_half() {
        let of = |pool: &NodePool| jitter(&pool.metadata);
        assert_eq!((of(&pool(&json!({}))), of(&with("0%")), of(&with(" 50% "))), (Ok(0), Ok(0), Ok(50)));
        for text in ["", "%", "10", "-1%", "1.5%", "51%"] {
            let fault = of(&with(text)).unwrap_err();
            assert_eq!(fault.field, "metadata.annotations[plimsoll.dev/expiry-jitter]", "{text}");
        }
    }
}
