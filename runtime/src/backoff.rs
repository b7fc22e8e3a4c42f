//! Exponential back-off.

use std::time::Duration;

/// Pause after a failure that follows `failures` others: `first`, doubled by each of them, at most `max`.
#[must_use]
pub fn delay(first: Duration, max: Duration, failures: u32) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(failures)).min(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_doubles_up_to_the_maximum() {
        let of = |failures| delay(Duration::from_millis(100), Duration::from_secs(2), failures).as_millis();
        assert_eq!([0, 1, 2, 4, 5, u32::MAX].map(of), [100, 200, 400, 1600, 2000, 2000]);
    }
}
