//! Number of runs with each kind of fault and event.

use super::play::Outcome;
use std::collections::BTreeMap;
use std::fmt;

/// Counts over seeds.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    seeds: usize,
    /// Number of seeds with each kind of fault.
    faults: BTreeMap<String, usize>,
    /// Number of events of each kind, and number of failed seeds with the kind.
    events: BTreeMap<String, (usize, usize)>,
}

impl Coverage {
    pub(super) fn add(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        for fault in &outcome.faults {
            *self.faults.entry(fault.clone()).or_default() += 1;
        }
        for event in &outcome.events {
            let (count, failed) = self.events.entry(event.clone()).or_default();
            *count += 1;
            *failed += usize::from(outcome.failure.is_some());
        }
    }

    pub(super) fn seeds(&self) -> usize {
        self.seeds
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<20} seeds", "random fault")?;
        for (fault, seeds) in &self.faults {
            writeln!(f, "{fault:<20} {seeds}")?;
        }
        writeln!(f, "\n{:<20} times, in seeds that failed", "event")?;
        for (event, (count, failed)) in &self.events {
            writeln!(f, "{event:<20} {count}, {failed}")?;
        }
        writeln!(f)
    }
}
