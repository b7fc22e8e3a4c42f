//! On-demand ratios: the minimum number of pods on On-Demand capacity, regardless of Spot prices.

use serde::{Deserialize, Serialize};

/// Minimum number of On-Demand pods as a function of the number of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct OnDemandMix {
    /// Number of pods that run On-Demand first.
    pub base: u32,
    /// Percentage of the remaining pods, 0 to 100; rounded up.
    pub percentage: u32,
}

impl OnDemandMix {
    /// Minimum number of On-Demand pods out of `pods`.
    #[must_use]
    pub fn least(self, pods: usize) -> usize {
        let base = usize::try_from(self.base).unwrap_or(usize::MAX).min(pods);
        let percentage = usize::try_from(self.percentage).unwrap_or(100).min(100);
        base + (pods - base).saturating_mul(percentage).div_ceil(100)
    }
}

/// On-demand ratio of a workload.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OnDemandRatio {
    /// The workload within its namespace, such as `Deployment/web`. Its pods are counted together.
    pub workload: String,
    /// The ratio.
    pub mix: OnDemandMix,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_is_counted_first_and_the_percentage_rounds_up() {
        let table = [
            ((0, 0), 10, 0),
            ((2, 0), 10, 2),
            ((2, 0), 1, 1),
            ((0, 30), 10, 3),
            ((0, 30), 1, 1),
            ((2, 50), 10, 6),
            ((2, 50), 3, 3),
            ((0, 100), 7, 7),
            ((5, 100), 0, 0),
            ((u32::MAX, u32::MAX), 4, 4),
        ];
        for ((base, percentage), pods, least) in table {
            assert_eq!(OnDemandMix { base, percentage }.least(pods), least, "{base} and {percentage} % of {pods}");
        }
    }
}
