//! Stable random numbers.

/// A seeded generator (SplitMix64). The generator is part of this crate because ranges and shuffles of external crates
/// may change between versions, while a recorded seed must always give the same case.
#[derive(Debug, Clone)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// A generator with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut it = self.state;
        it = (it ^ (it >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        it = (it ^ (it >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        it ^ (it >> 31)
    }

    /// A number from `least` to `most`, inclusive; `least` if `most` is lower.
    pub fn range(&mut self, least: usize, most: usize) -> usize {
        let span = most.saturating_sub(least) as u128 + 1;
        // The upper half of a wide product: without the bias of a remainder, and always below `span`.
        least + usize::try_from((u128::from(self.bits()) * span) >> 64).unwrap_or(0)
    }

    /// True with a probability of `percent`.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.range(1, 100) <= percent
    }

    /// A random item of `from`; `None` if it is empty.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() {
            return None;
        }
        let index = self.range(0, from.len() - 1);
        from.get(index)
    }

    /// A random string of the list; empty if the list is empty.
    pub fn text<'a>(&mut self, from: &[&'a str]) -> &'a str {
        self.pick(from).copied().unwrap_or_default()
    }

    /// Random items of `from` in their order, at least `least` if there are as many.
    pub fn some<T: Clone>(&mut self, from: &[T], least: usize) -> Vec<T> {
        let mut chosen: Vec<usize> = (0..from.len()).filter(|_| self.chance(50)).collect();
        let mut rest: Vec<usize> = (0..from.len()).filter(|index| !chosen.contains(index)).collect();
        while chosen.len() < least && !rest.is_empty() {
            chosen.push(rest.remove(self.range(0, rest.len() - 1)));
        }
        chosen.sort_unstable();
        chosen.iter().filter_map(|index| from.get(*index)).cloned().collect()
    }
}
