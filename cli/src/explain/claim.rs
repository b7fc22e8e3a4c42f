//! What only the cluster's NodeClaims know about a node.

use plimsoll_api::NodeClaim;
use plimsoll_model::names::annotation;

/// Why it was launched, and what is under way with it.
pub(super) fn lines(claims: &[NodeClaim], name: &str) -> Vec<String> {
    let named = |claim: &&NodeClaim| claim.metadata.name.as_deref() == Some(name);
    let Some(claim) = claims.iter().find(named) else { return Vec::new() };
    let annotations = claim.metadata.annotations.as_ref();
    let of = |key: &str| annotations.and_then(|it| it.get(key)).map(String::as_str);
    let launched = match of(annotation::WHY) {
        Some(why) => format!("was launched for this: {why}"),
        None if of(annotation::OWNER) == Some(annotation::OWNER_VALUE) => "does not say why it was launched".to_owned(),
        None => "was launched by something other than Plimsoll".to_owned(),
    };
    let mut lines = vec![format!("NodeClaim {name} {launched}")];
    if let Some(kind) = of(annotation::INTERRUPTED) {
        lines.push(format!("its capacity is about to be taken back: {kind}"));
    }
    if of(annotation::REMOVAL).is_some() {
        lines.push("its removal is under way".to_owned());
    }
    lines
}
