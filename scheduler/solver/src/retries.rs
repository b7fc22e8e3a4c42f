//! How often the steps of a plan try again. Each retry places pods, or plans, once more; the work budgets end them
//! earlier where that takes long.

/// For retries that each cost a plan.
pub(crate) const PLANS: usize = 3;
/// For retries of which the second or third is nearly always the last, such as one per zone, pool or spread.
pub(crate) const FEW: usize = 4;
/// For retries that each improve the result a little: the later ones hardly do.
pub(crate) const SEVERAL: usize = 8;
/// For levels that are tried from the strictest on, such as priorities and preferences: few workloads have more.
pub(crate) const LEVELS: usize = 16;
/// For a search for the most pods that have a place: about this many are needed to halve their number until they fit
/// and then add single pods.
pub(crate) const BY_HALVES: usize = 24;
