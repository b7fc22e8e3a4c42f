//! Timestamps and durations as numbers. Pure code receives the time as an argument.

use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Timestamp(pub i64);

/// A non-negative duration in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Millis(pub u64);

impl Millis {
    /// Creates a duration from seconds, saturating.
    #[must_use]
    pub const fn from_seconds(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1000))
    }
}

impl Timestamp {
    /// Adds `by`, saturating.
    #[must_use]
    pub fn plus(self, by: Millis) -> Self {
        Self(self.0.saturating_add(i64::try_from(by.0).unwrap_or(i64::MAX)))
    }

    /// Duration since `earlier`; zero if `earlier` is in the future.
    #[must_use]
    pub fn since(self, earlier: Self) -> Millis {
        Millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// Formats a duration in its two largest units, such as `2 d 3 h`; rounded up to seconds.
#[must_use]
pub fn duration_text(duration: Millis) -> String {
    let seconds = duration.0.div_ceil(1000);
    let parts = [(seconds / 86_400, "d"), (seconds / 3600 % 24, "h"), (seconds / 60 % 60, "min"), (seconds % 60, "s")];
    let first = parts.iter().position(|(count, _)| *count > 0).unwrap_or(parts.len() - 1);
    let shown = parts.iter().skip(first).take(2).filter(|(count, _)| *count > 0 || seconds == 0);
    shown.map(|(count, unit)| format!("{count} {unit}")).collect::<Vec<String>>().join(" ")
}
