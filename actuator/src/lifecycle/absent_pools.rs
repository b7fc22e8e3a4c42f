//! NodePools that live claims name and plans do not know. Such a claim expires without a plan, so its node is drained
//! before it is replaced. A NodePool that is mended or created again soon must not cost all its expired nodes at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// How long a NodePool is absent before its claims expire without a plan. Enough time to mend it, and little compared
/// with the hours and days of an `expireAfter`.
const ABSENT_FOR: Duration = Duration::from_secs(600);

/// Since when the NodePools are absent, by name. Only those of live claims are kept. A new leader counts anew.
#[derive(Debug, Default)]
pub(super) struct AbsentPools(BTreeMap<String, Instant>);

impl AbsentPools {
    /// Records which of the NodePools that live claims name are not `known`.
    pub(super) fn observe<'a>(&mut self, named: impl Iterator<Item = &'a str>, known: &BTreeSet<String>) {
        let (now, absent) = (Instant::now(), named.filter(|pool| !known.contains(*pool)).collect::<BTreeSet<_>>());
        let since = |pool: &str| self.0.get(pool).copied().unwrap_or(now);
        self.0 = absent.into_iter().map(|pool| (pool.to_owned(), since(pool))).collect();
    }

    /// Whether the NodePool has been absent for so long that its claims expire.
    pub(super) fn is_gone(&self, pool: &str) -> bool {
        self.0.get(pool).is_some_and(|since| since.elapsed() >= ABSENT_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pool_is_gone_once_it_has_been_absent_for_ten_minutes() {
        let known = |pools: &[&str]| pools.iter().map(|pool| (*pool).to_owned()).collect::<BTreeSet<_>>();
        let mut pools = AbsentPools::default();
        pools.observe(["a", "b"].into_iter(), &known(&["b"]));
        tokio::time::advance(ABSENT_FOR - Duration::from_secs(1)).await;
        pools.observe(["a", "b"].into_iter(), &known(&["b"]));
        assert!(!pools.is_gone("a"));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(pools.is_gone("a") && !pools.is_gone("b"));
        pools.observe(["a"].into_iter(), &known(&["a"]));
        assert!(pools.0.is_empty(), "it has come back");
        pools.observe(["a"].into_iter(), &known(&[]));
        assert!(!pools.is_gone("a"), "the time counts anew");
        pools.observe(std::iter::empty(), &known(&[]));
        assert!(pools.0.is_empty(), "no claim names it");
    }
}
