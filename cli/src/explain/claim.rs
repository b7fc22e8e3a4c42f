//! Facts about a node that only the cluster's NodeClaims have.

use super::entry;
use plimsoll_api::NodeClaim;
use plimsoll_model::names::annotation;

/// Why the node was launched, and its current operations.
pub(super) fn lines(claims: &[NodeClaim], name: &str) -> Vec<String> {
    let named = |claim: &&NodeClaim| claim.metadata.name.as_deref() == Some(name);
    let Some(claim) = claims.iter().find(named) else { return Vec::new() };
    let annotations = claim.metadata.annotations.as_ref();
    let of = |key: &str| annotations.and_then(|it| it.get(key)).map(String::as_str);
    let launched = match of(annotation::WHY) {
        Some(why) => why,
        None if of(annotation::OWNER) == Some(annotation::OWNER_VALUE) => {
            "for a reason that its NodeClaim does not have"
        }
        None => "by something other than Plimsoll",
    };
    let mut lines = vec![entry("launched", launched)];
    if let Some(kind) = of(annotation::INTERRUPTED) {
        lines.push(entry("interrupted", format!("EC2 takes its capacity back: {kind}")));
    }
    if of(annotation::REMOVAL).is_some() {
        lines.push(entry("removal", "under way"));
    }
    lines
}
