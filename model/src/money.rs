//! Prices as integers, so that sums do not depend on the order of addition.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Millionths of a US dollar per hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct MicroUsdPerHour(pub i64);

impl MicroUsdPerHour {
    /// Rounds to a millionth of a dollar. Returns `None` if the price is not finite, negative or above a million
    /// dollars per hour.
    #[must_use]
    pub fn from_usd(usd: f64) -> Option<Self> {
        if !usd.is_finite() || !(0.0..=1_000_000.0).contains(&usd) {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "checked above: at most 1e12")]
        Some(Self((usd * 1_000_000.0).round() as i64))
    }

    /// Parses dollars per hour, such as `0.0005`.
    ///
    /// # Errors
    /// If the text is not a number from 0 to a million.
    pub fn parse_usd(text: &str) -> Result<Self, String> {
        let price = text.parse().ok().and_then(Self::from_usd);
        price.ok_or_else(|| "must be dollars per hour, such as 0.0005".to_owned())
    }

    /// Value in dollars, for display.
    #[must_use]
    pub fn usd(self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "prices are far below 2^53 millionths")]
        let micro = self.0 as f64;
        micro / 1_000_000.0
    }
}

impl std::ops::Add for MicroUsdPerHour {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl std::ops::Sub for MicroUsdPerHour {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl std::iter::Sum for MicroUsdPerHour {
    fn sum<I: Iterator<Item = Self>>(prices: I) -> Self {
        prices.fold(Self(0), |sum, price| sum + price)
    }
}

impl fmt::Display for MicroUsdPerHour {
    /// Formats dollars with up to six decimals and no trailing zeros, such as `0.0312`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let micro = self.0.unsigned_abs();
        let (whole, rest) = (micro / 1_000_000, micro % 1_000_000);
        if rest == 0 {
            return write!(f, "{sign}{whole}");
        }
        let rest = format!("{rest:06}");
        write!(f, "{sign}{whole}.{}", rest.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_have_at_most_six_decimals_and_no_trailing_zeros() {
        let shown = |micro| MicroUsdPerHour(micro).to_string();
        assert_eq!([shown(0), shown(31_200), shown(1_000_000), shown(-500_001)], ["0", "0.0312", "1", "-0.500001"]);
    }

    #[test]
    fn invalid_prices_are_rejected() {
        assert_eq!(MicroUsdPerHour::from_usd(0.0104), Some(MicroUsdPerHour(10_400)));
        for bad in [f64::NAN, f64::INFINITY, -0.1, 2e6] {
            assert_eq!(MicroUsdPerHour::from_usd(bad), None, "{bad}");
        }
    }
}
