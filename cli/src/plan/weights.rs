//! Cost of NodePool weights: a pool of higher weight is used even if another pool would be cheaper.

use crate::ask;
use crate::input::Question;
use plimsoll_model::plan::Plan;
use std::collections::BTreeSet;

/// Maximum number of pods for which a second plan is made: it takes as long as the first.
const MAX_PODS: usize = 20_000;
/// Minimum additional cost of weights for a hint, in per cent. Smaller differences are the purpose of weights.
const WORTH_A_HINT: i64 = 10;

/// Cost of the launches by price alone, if it is much lower. `None` if this cannot be determined.
pub(super) fn hint(question: &mut Question, plan: &Plan, server: &ask::ServerArguments) -> Option<String> {
    let weights: BTreeSet<i32> = question.snapshot.node_pools.iter().map(|pool| pool.weight).collect();
    let is_small = question.snapshot.pods.len() <= MAX_PODS;
    if weights.len() < 2 || plan.launches.is_empty() || !plan.terminations.is_empty() || !is_small {
        return None;
    }
    let mut equal = question.snapshot.clone();
    equal.node_pools.iter_mut().for_each(|pool| pool.weight = 1);
    let snapshot = std::mem::replace(&mut question.snapshot, equal);
    let other = ask::plan(question, server);
    question.snapshot = snapshot;
    let (other, _) = other.ok()?;
    let comparable = other.terminations.is_empty() && other.unschedulable.len() <= plan.unschedulable.len();
    let (with, without) = (plan.hourly, other.hourly);
    let saving = with.0.saturating_sub(without.0);
    let is_worth_it = comparable && saving.saturating_mul(100) >= with.0.saturating_mul(WORTH_A_HINT);
    is_worth_it.then(|| {
        format!("the weights of the NodePools cost {saving} USD per hour: with equal weights, the launches would cost {without} instead of {with}",
            saving = plimsoll_model::money::MicroUsdPerHour(saving))
    })
}
