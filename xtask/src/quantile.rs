//! Quantiles of measurements.

use anyhow::{Context as _, Result};

/// The nearest-rank quantile of a sorted list.
pub(crate) fn nearest_rank(sorted: &[f64], share: f64) -> Result<f64> {
    // Truncation is intended: the list is far shorter than the exact range of f64.
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().context("nothing was measured")
}

#[cfg(test)]
mod tests {
    use super::nearest_rank;

    #[test]
    fn quantiles_by_nearest_rank() -> anyhow::Result<()> {
        let sorted: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(
            (nearest_rank(&sorted, 0.5)?, nearest_rank(&sorted, 0.99)?, nearest_rank(&sorted, 1.0)?),
            (50.0, 99.0, 100.0)
        );
        assert_eq!((nearest_rank(&[7.0], 0.5)?, nearest_rank(&[7.0], 0.99)?), (7.0, 7.0));
        assert!(nearest_rank(&[], 0.5).is_err());
        Ok(())
    }
}
