//! The next step of a removal in progress (safety rule 9). Pure functions.

use crate::ledger::Removal;
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_model::time::{Millis, Timestamp};

/// A removal that takes longer is undone: its replacements do not start, or someone keeps removing the taint. Longer
/// than the registration timeout of 15 minutes, after which a replacement is lost: Windows and GPU nodes boot for more
/// than 10 minutes.
pub const TIMEOUT: Millis = Millis::from_seconds(20 * 60);

/// State of the launches that a removal waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replacements {
    /// All are initialized, or there are none.
    Ready,
    /// These are not initialized yet.
    Awaited(Vec<String>),
    /// This one failed or is gone.
    Lost(String),
}

/// A snapshot of a removal in progress.
#[derive(Debug, Clone)]
pub struct Observation<'a> {
    /// The command.
    pub command: &'a Removal,
    /// The Node exists.
    pub node_is_there: bool,
    /// The watch cache shows the taint.
    pub tainted: bool,
    /// Why the node cannot be removed now, if so.
    pub obstacle: Option<String>,
    /// State of the replacements.
    pub replacements: Replacements,
    /// When the node expires.
    pub expires: Option<Timestamp>,
    /// The current time.
    pub now: Timestamp,
}

/// The next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Taint the node; the watch will show the taint.
    Taint,
    /// Wait for a change.
    Wait(String),
    /// Check again on a live list of the node's pods, then delete the claim.
    Delete,
    /// Remove the taint and the command, for this reason.
    Undo(String),
}

/// Computes the next step.
#[must_use]
pub fn next(observed: &Observation<'_>) -> Step {
    if !observed.node_is_there {
        return Step::Undo("node not found".to_owned());
    }
    if let Some(obstacle) = &observed.obstacle {
        return Step::Undo(obstacle.clone());
    }
    // An expired node is removed even if its replacements do not start: if undone, the removal would be retried again
    // and again. Soon after the expiry it is retried, since the next plan knows what has no capacity.
    let expired = observed.command.reason == DisruptionReason::Expired;
    let may_retry = observed.expires.is_some_and(|at| observed.now.since(at) <= TIMEOUT);
    let late = observed.now.since(observed.command.admitted) > TIMEOUT;
    if late && !expired {
        return Step::Undo("timed out".to_owned());
    }
    match &observed.replacements {
        Replacements::Lost(_) if expired && !may_retry => Step::Delete,
        Replacements::Awaited(_) if expired && late => Step::Delete,
        Replacements::Lost(name) => Step::Undo(format!("replacement {name} failed")),
        // Taint even while replacements are awaited, so that no unknown pods arrive.
        _ if !observed.tainted => Step::Taint,
        Replacements::Awaited(names) => {
            Step::Wait(format!("waiting for replacements {} to be initialized", names.join(", ")))
        }
        Replacements::Ready => Step::Delete,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Removal {
        Removal {
            action: "a".into(),
            node: "n".into(),
            reason: DisruptionReason::Empty,
            replacements: Vec::new(),
            evictions: [].into(),
            rooms: [].into(),
            pods: [].into(),
            admitted: Timestamp(1_000_000),
        }
    }

    fn step(change: impl FnOnce(&mut Observation<'_>)) -> Step {
        let command = command();
        let mut observed = Observation {
            command: &command,
            node_is_there: true,
            tainted: true,
            obstacle: None,
            replacements: Replacements::Ready,
            expires: None,
            now: Timestamp(1_000_000),
        };
        change(&mut observed);
        next(&observed)
    }

    #[test]
    fn removal_taints_awaits_replacements_and_deletes() {
        assert_eq!(step(|seen| seen.tainted = false), Step::Taint);
        let awaited = Replacements::Awaited(vec!["r".to_owned()]);
        assert!(matches!(step(|seen| seen.replacements = awaited), Step::Wait(why) if why.contains("replacements r")));
        assert_eq!(step(|_| ()), Step::Delete);
    }

    #[test]
    fn forced_removal_waits_for_replacements_until_the_timeout() {
        let forced = Removal { reason: DisruptionReason::Expired, ..command() };
        let awaited = || Replacements::Awaited(vec!["r".to_owned()]);
        let late = Timestamp(1_000_000).plus(TIMEOUT).plus(Millis(1));
        assert!(matches!(forced_step(&forced, awaited(), Timestamp(1_000_000)), Step::Wait(_)));
        assert_eq!(forced_step(&forced, awaited(), late), Step::Delete);
    }

    /// The next step of the removal of a node that expired at 500 s.
    fn forced_step(command: &Removal, replacements: Replacements, now: Timestamp) -> Step {
        let (node_is_there, tainted, obstacle, expires) = (true, true, None, Some(Timestamp(500_000)));
        next(&Observation { command, node_is_there, tainted, obstacle, replacements, expires, now })
    }

    #[test]
    fn forced_removal_is_retried_without_its_replacement_only_soon_after_the_expiry() {
        let forced = Removal { reason: DisruptionReason::Expired, ..command() };
        let lost = || Replacements::Lost("r".to_owned());
        let last = Timestamp(500_000).plus(TIMEOUT);
        assert_eq!(forced_step(&forced, lost(), last), Step::Undo("replacement r failed".to_owned()));
        assert_eq!(forced_step(&forced, lost(), last.plus(Millis(1))), Step::Delete);
    }

    #[test]
    fn obstacles_undo_the_removal() {
        let undo = |why: &str| Step::Undo(why.to_owned());
        assert_eq!(step(|seen| seen.node_is_there = false), undo("node not found"));
        assert_eq!(step(|seen| seen.obstacle = Some("a pod came".to_owned())), undo("a pod came"));
        assert_eq!(step(|seen| seen.replacements = Replacements::Lost("r".to_owned())), undo("replacement r failed"));
        let late = Timestamp(1_000_000).plus(TIMEOUT);
        assert_eq!(step(|seen| seen.now = late), Step::Delete);
        assert_eq!(step(|seen| seen.now = late.plus(Millis(1))), undo("timed out"));
    }
}
