//! Names of launch groups, client tokens and claims. All are derived from the plan's actions, so a repeated step uses
//! the same names.

use plimsoll_model::identity::{ActionId, ContentHasher, NodePoolName};
use plimsoll_model::names::tag;
use plimsoll_model::snapshot::LedgerPosition;
use serde::{Deserialize, Serialize};

/// Hexadecimal digits of a group's id (96 bits). With the attempt it stays far below EC2's limit of 64 characters for a
/// client token.
const GROUP_DIGITS: usize = 24;
/// Hexadecimal digits in a claim's name (64 bits).
const CLAIM_DIGITS: usize = 16;
/// Maximum length of a claim's name, which is also used as a label value of at most 63 characters.
const MAX_CLAIM_NAME: usize = 63;

/// Id and size of a launch group, as recorded on its claims. Immutable once written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupKey {
    /// Id.
    pub id: String,
    /// Number of claims, at least 1.
    pub size: u32,
}

impl GroupKey {
    /// The key of these actions, regardless of order and repetition; `None` without actions. `admitted` is the ledger's
    /// position after their admission: the same actions planned again after a failure must get another token,
    /// since EC2 still answers the old token with that failure.
    #[must_use]
    pub fn of(actions: &[ActionId], admitted: LedgerPosition) -> Option<Self> {
        let mut actions: Vec<&str> = actions.iter().map(ActionId::as_str).collect();
        actions.sort_unstable();
        actions.dedup();
        let size = u32::try_from(actions.len()).ok().filter(|size| *size > 0)?;
        let mut hasher = ContentHasher::new("launch group");
        hasher.part(&admitted.epoch.to_le_bytes());
        hasher.part(&admitted.sequence.to_le_bytes());
        for action in actions {
            hasher.text(action);
        }
        Some(Self { id: hasher.hex(GROUP_DIGITS), size })
    }

    /// The client token of an attempt, which identifies exactly one request (rule 3).
    #[must_use]
    pub fn client_token(&self, attempt: u32) -> String {
        format!("{}-{attempt}", self.id)
    }

    /// The tags of the instances of an attempt, by which they are looked up (rule 4).
    #[must_use]
    pub fn tags(&self, attempt: u32) -> [(String, String); 2] {
        [(tag::LAUNCH_GROUP.to_owned(), self.id.clone()), (tag::LAUNCH_ATTEMPT.to_owned(), attempt.to_string())]
    }
}

/// The name of the claim for `action`: the pool's name, truncated if necessary, and a hash of the action.
#[must_use]
pub fn claim_name(pool: &NodePoolName, action: &ActionId) -> String {
    let mut hasher = ContentHasher::new("node claim");
    hasher.text(action.as_str());
    let hash = hasher.hex(CLAIM_DIGITS);
    let room = MAX_CLAIM_NAME - CLAIM_DIGITS - 1;
    // Pool names are DNS names and therefore ASCII; the API server rejects anything else.
    let prefix: String = pool.as_str().chars().filter(char::is_ascii).take(room).collect();
    let prefix = prefix.trim_end_matches(['-', '.']);
    if prefix.is_empty() { format!("claim-{hash}") } else { format!("{prefix}-{hash}") }
}

/// The action of a like-for-like replacement of a claim without a plan (rule 13). It is derived from the old claim, so
/// that the replacement is launched only once.
#[must_use]
pub fn replacement_action(claim_uid: &str) -> ActionId {
    ActionId(format!("replace-{claim_uid}"))
}

/// The action that launches a NodeClaim which a user created. It is derived from the claim, so that all leaders use the
/// same launch group and client token for it.
#[must_use]
pub fn standalone_action(claim_uid: &str) -> ActionId {
    ActionId(format!("standalone-{claim_uid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actions(names: &[&str]) -> Vec<ActionId> {
        names.iter().map(|name| ActionId::from(*name)).collect()
    }

    const AT: LedgerPosition = LedgerPosition { epoch: 1, sequence: 5 };

    #[test]
    fn launch_group_id_depends_only_on_the_set_of_actions() {
        let of = |names: &[&str]| GroupKey::of(&actions(names), AT);
        let group = of(&["b", "a"]).unwrap();
        assert_eq!(group.size, 2);
        assert_eq!(Some(&group), of(&["a", "b", "a"]).as_ref());
        assert_ne!(group.id, of(&["a", "b", "c"]).unwrap().id);
        assert_ne!(group.id, of(&["ab"]).unwrap().id);
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn the_same_actions_admitted_again_get_another_token() {
        let first = GroupKey::of(&actions(&["a"]), AT).unwrap();
        for later in [LedgerPosition { sequence: 6, ..AT }, LedgerPosition { epoch: 2, ..AT }] {
            let again = GroupKey::of(&actions(&["a"]), later).unwrap();
            assert_ne!(first.client_token(1), again.client_token(1));
        }
    }

    #[test]
    fn client_token_is_unique_per_attempt_and_at_most_64_characters() {
        let group = GroupKey::of(&actions(&["a"]), AT).unwrap();
        assert_eq!(group.client_token(3), format!("{}-3", group.id));
        assert_ne!(group.client_token(1), group.client_token(2));
        assert!(group.client_token(u32::MAX).len() <= 64);
    }

    #[test]
    fn claim_name_is_valid_and_derived_from_the_action() {
        let pool = NodePoolName::from("general");
        let name = claim_name(&pool, &ActionId::from("one"));
        assert!(name.starts_with("general-"));
        assert_eq!(name, claim_name(&pool, &ActionId::from("one")));
        assert_ne!(name, claim_name(&pool, &ActionId::from("two")));

        let long =
            claim_name(&NodePoolName::from(format!("{}.{}", "a".repeat(45), "b".repeat(100))), &ActionId::from("x"));
        assert_eq!(long.len(), 45 + 1 + 16, "cut before the dot, which may not precede a hyphen");
    }

    #[test]
    fn replacement_action_is_derived_from_the_claim() {
        let pool = NodePoolName::from("general");
        let of = |uid| claim_name(&pool, &replacement_action(uid));
        assert_eq!(of("u1"), of("u1"));
        assert_ne!(of("u1"), of("u2"));
    }
}
