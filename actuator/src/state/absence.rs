//! Consecutive failed look-ups. Reads of EC2 and of the cluster are eventually consistent, so a single read never
//! proves absence.

use plimsoll_model::time::{Millis, Timestamp};

/// How long look-ups by tag must find nothing before an instance counts as never launched (rule 14).
pub const SETTLING: Millis = Millis::from_seconds(120);
/// Minimum interval between two independent reads, longer than a response may be cached.
const READS_APART: Millis = Millis::from_seconds(10);

/// Consecutive reads that did not find the subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Absence {
    first: Option<Timestamp>,
    last: Option<Timestamp>,
}

impl Absence {
    /// Records a read that did not find the subject.
    pub fn missed(&mut self, now: Timestamp) {
        self.first.get_or_insert(now);
        self.last = Some(now);
    }

    /// Records a read that found the subject.
    pub fn found(&mut self) {
        *self = Self::default();
    }

    /// Whether two independent reads did not find the subject.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        self.duration().is_some_and(|duration| duration >= READS_APART)
    }

    /// Time between the first and the last read that did not find the subject.
    #[must_use]
    pub fn duration(&self) -> Option<Millis> {
        Some(self.last?.since(self.first?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_in_less_than_ten_seconds_are_not_independent() {
        let mut absence = Absence::default();
        for (at, is_confirmed) in [(1_000, false), (10_999, false), (11_000, true)] {
            absence.missed(Timestamp(at));
            assert_eq!(absence.is_confirmed(), is_confirmed, "{at}");
        }
    }
}
