//! The next step of a removal in progress (safety rule 9). Pure functions.

use crate::ledger::Removal;
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
    // and again.
    let forced = observed.command.reason.is_forced();
    let late = observed.now.since(observed.command.admitted) > TIMEOUT;
    if late && !forced {
        return Step::Undo("timed out".to_owned());
    }
    match &observed.replacements {
        Replacements::Lost(_) if forced => Step::Delete,
        Replacements::Awaited(_) if forced && late => Step::Delete,
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
    use plimsoll_model::snapshot::DisruptionReason;

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
        let step = |replacements, now| {
            let (node_is_there, tainted, obstacle) = (true, true, None);
            next(&Observation { command: &forced, node_is_there, tainted, obstacle, replacements, now })
        };
        assert!(matches!(step(awaited(), Timestamp(1_000_000)), Step::Wait(_)));
        assert_eq!(step(awaited(), late), Step::Delete);
        assert_eq!(step(Replacements::Lost("r".to_owned()), Timestamp(1_000_000)), Step::Delete);
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
