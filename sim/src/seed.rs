//! The only source of randomness in the simulation: a small generator, fully determined by its seed.

/// Alphabet of generated name suffixes in Kubernetes: no vowels, no look-alikes.
const NAME_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A seeded generator (SplitMix64). Generators with equal seeds yield equal sequences.
#[derive(Debug, Clone, Default)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// Creates a generator from a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, or 0 if `bound` is 0. The slight modulo bias does not matter here.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.bits() % bound }
    }

    /// Returns true with probability `per_mille` / 1000.
    pub fn chance(&mut self, per_mille: u32) -> bool {
        self.below(1000) < u64::from(per_mille)
    }

    /// A string in the format of a random UUID.
    pub fn uid(&mut self) -> String {
        let (high, low) = (self.bits(), self.bits());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            0x8000 | (low >> 50),
            low & 0xffff_ffff_ffff
        )
    }

    /// A suffix for a generated name: `length` characters of the alphabet of Kubernetes.
    pub fn suffix(&mut self, length: usize) -> String {
        let bound = NAME_ALPHABET.len() as u64;
        (0..length)
            .filter_map(|_| NAME_ALPHABET.get(usize::try_from(self.below(bound)).unwrap_or(0)))
            .map(|byte| char::from(*byte))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn one_seed_one_future() {
        let (mut one, mut two, mut other) = (Rng::new(7), Rng::new(7), Rng::new(8));
        assert_eq!(one.uid(), two.uid());
        assert_eq!(one.suffix(5), two.suffix(5));
        assert_ne!(one.bits(), other.bits());
    }

    #[test]
    fn uid_has_the_shape_of_a_random_uuid() {
        let uid = Rng::new(1).uid();
        let lengths: Vec<_> = uid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert_eq!(uid.as_bytes()[14], b'4');
        assert!(matches!(uid.as_bytes()[19], b'8' | b'9' | b'a' | b'b'));
    }

    #[test]
    fn chance_ends_are_never_and_always() {
        let mut rng = Rng::new(3);
        assert!((0..100).all(|_| !rng.chance(0)));
        assert!((0..100).all(|_| rng.chance(1000)));
    }
}
