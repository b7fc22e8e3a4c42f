//! Maximum numbers of retries. Each retry places pods or computes a plan once more. Work budgets end the retries
//! earlier if they take long.

/// For retries that each compute a plan.
pub(crate) const PLANS: usize = 3;
/// For retries that rarely need more than two or three attempts, such as one per zone, pool or spread.
pub(crate) const FEW: usize = 4;
/// For retries that each improve the result a little. Further retries rarely improve it.
pub(crate) const SEVERAL: usize = 8;
/// For levels that are tried from the strictest on, such as priorities and preferences. Few workloads have more.
pub(crate) const LEVELS: usize = 16;
/// For a binary search of the maximum number of pods that can be placed. About this many steps halve the number until
/// the pods fit, and then add single pods.
pub(crate) const BY_HALVES: usize = 24;
