//! Reads that did not find something. Reads of EC2 and of the cluster settle late, so that "absent" is never one read.

use plimsoll_model::time::{Millis, Timestamp};

/// How long look-ups by tag must have found nothing before an instance counts as never bought (rule 14).
pub const SETTLING: Millis = Millis::from_seconds(120);
/// Two reads count as apart from here on: a cached answer would not survive it.
const READS_APART: Millis = Millis::from_seconds(10);

/// Reads in a row that did not find something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Absence {
    first: Option<Timestamp>,
    last: Option<Timestamp>,
}

impl Absence {
    /// A read did not find it.
    pub fn missed(&mut self, now: Timestamp) {
        self.first.get_or_insert(now);
        self.last = Some(now);
    }

    /// A read found it.
    pub fn found(&mut self) {
        *self = Self::default();
    }

    /// Two reads apart did not find it.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        self.lasted().is_some_and(|lasted| lasted >= READS_APART)
    }

    /// Time from the first to the last read that did not find it.
    #[must_use]
    pub fn lasted(&self) -> Option<Millis> {
        Some(self.last?.since(self.first?))
    }
}
