//! What only the cluster's NodeClaims know about a node.

use super::entry;
use plimsoll_api::NodeClaim;
use plimsoll_model::names::annotation;

/// Why it was launched, and what is under way with it.
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
