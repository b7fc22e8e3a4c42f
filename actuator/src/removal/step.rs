//! What a removal under way does next (safety rule 9). Pure.

use crate::ledger::Removal;
use plimsoll_model::time::{Millis, Timestamp};

/// A removal that took so long is undone: its replacements do not come, or somebody takes the taint away again and again.
/// Longer than a node takes to boot, shorter than the time-out of a registration.
pub const TIME_OUT: Millis = Millis::from_seconds(600);

/// How the launches stand that a removal waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replacements {
    /// All are in service, or there are none.
    Ready,
    /// These are not in service yet.
    Awaited(Vec<String>),
    /// One failed or is gone.
    Lost(String),
}

/// A removal under way, at one moment.
#[derive(Debug, Clone)]
pub struct Observation<'a> {
    /// The command.
    pub command: &'a Removal,
    /// The Node is there.
    pub node_is_there: bool,
    /// Our watch shows the taint on it.
    pub tainted: bool,
    /// What stands against it, if anything does.
    pub obstacle: Option<String>,
    /// How its replacements stand.
    pub replacements: Replacements,
    /// The time.
    pub now: Timestamp,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Put the taint on the node; the watch will show it.
    Taint,
    /// Nothing, until something changes.
    Wait(String),
    /// Check once more on a live list of its pods, then delete the claim.
    Delete,
    /// Take the taint off and forget it, for this reason.
    Undo(String),
}

/// The next step.
#[must_use]
pub fn next(seen: &Observation<'_>) -> Step {
    if !seen.node_is_there {
        return Step::Undo("its node is gone".to_owned());
    }
    if let Some(obstacle) = &seen.obstacle {
        return Step::Undo(obstacle.clone());
    }
    // A node whose time is over goes without replacements, if these do not come: undone, it would be replaced again and again.
    let forced = seen.command.reason.is_forced();
    let late = seen.now.since(seen.command.admitted) > TIME_OUT;
    if late && !forced {
        return Step::Undo("it took too long".to_owned());
    }
    match &seen.replacements {
        Replacements::Lost(_) if forced => Step::Delete,
        Replacements::Awaited(_) if forced && late => Step::Delete,
        Replacements::Lost(name) => Step::Undo(format!("replacement {name} failed")),
        // Also while it waits for its replacements: no pod may come that the plan does not know.
        _ if !seen.tainted => Step::Taint,
        Replacements::Awaited(names) => Step::Wait(format!("replacements {} are not in service yet", names.join(", "))),
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
        let mut seen = Observation {
            command: &command,
            node_is_there: true,
            tainted: true,
            obstacle: None,
            replacements: Replacements::Ready,
            now: Timestamp(1_000_000),
        };
        change(&mut seen);
        next(&seen)
    }

    #[test]
    fn the_order_is_taint_replacements_delete() {
        assert_eq!(step(|seen| seen.tainted = false), Step::Taint);
        let awaited = Replacements::Awaited(vec!["r".to_owned()]);
        assert!(matches!(step(|seen| seen.replacements = awaited), Step::Wait(why) if why.contains("replacements r")));
        assert_eq!(step(|_| ()), Step::Delete);
    }

    #[test]
    fn a_forced_removal_waits_for_its_replacements_and_no_longer() {
        let forced = Removal { reason: DisruptionReason::Expired, ..command() };
        let awaited = || Replacements::Awaited(vec!["r".to_owned()]);
        let late = Timestamp(1_000_000).plus(TIME_OUT).plus(Millis(1));
        let step = |replacements, now| {
            let (node_is_there, tainted, obstacle) = (true, true, None);
            next(&Observation { command: &forced, node_is_there, tainted, obstacle, replacements, now })
        };
        assert!(matches!(step(awaited(), Timestamp(1_000_000)), Step::Wait(_)));
        assert_eq!(step(awaited(), late), Step::Delete);
        assert_eq!(step(Replacements::Lost("r".to_owned()), Timestamp(1_000_000)), Step::Delete);
    }

    #[test]
    fn whatever_changed_undoes_it() {
        let undo = |why: &str| Step::Undo(why.to_owned());
        assert_eq!(step(|seen| seen.node_is_there = false), undo("its node is gone"));
        assert_eq!(step(|seen| seen.obstacle = Some("a pod came".to_owned())), undo("a pod came"));
        assert_eq!(step(|seen| seen.replacements = Replacements::Lost("r".to_owned())), undo("replacement r failed"));
        let late = Timestamp(1_000_000).plus(TIME_OUT);
        assert_eq!(step(|seen| seen.now = late), Step::Delete);
        assert_eq!(step(|seen| seen.now = late.plus(Millis(1))), undo("it took too long"));
    }
}
