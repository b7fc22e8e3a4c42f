//! How many pods are to run On-Demand, whatever Spot costs.

use serde::{Deserialize, Serialize};

/// Of how many pods how many run On-Demand at the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct OnDemandMix {
    /// So many first of all.
    pub base: u32,
    /// So many per cent of the rest, 0 to 100; fractions of a pod round up.
    pub percentage: u32,
}

impl OnDemandMix {
    /// How many of `pods` at the least.
    #[must_use]
    pub fn least(self, pods: usize) -> usize {
        let base = usize::try_from(self.base).unwrap_or(usize::MAX).min(pods);
        let percentage = usize::try_from(self.percentage).unwrap_or(100).min(100);
        base + (pods - base).saturating_mul(percentage).div_ceil(100)
    }
}

/// What a workload wants of its pods together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OnDemandWish {
    /// The workload within its namespace, `Deployment/web`: its pods count together.
    pub workload: String,
    /// How many of them.
    pub mix: OnDemandMix,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_comes_first_and_the_rest_rounds_up() {
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
