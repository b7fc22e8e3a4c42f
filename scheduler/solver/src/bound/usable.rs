//! The part of a node's capacity that pods can use. Any sum of requests is a multiple of their greatest common divisor:
//! pods of 500m and 1500m CPU use at most 15.5 of 15.89 CPU.

use crate::input::intern::Amounts;

/// Greatest common divisor of the requests of some pods, by resource; 0 for resources that none of them requests.
pub(super) struct Granularity(Amounts);

impl Granularity {
    /// Computes the divisors for pods with these requests, for `width` resources. No request is negative.
    pub(super) fn of<'r>(width: usize, pods: impl Iterator<Item = &'r Amounts>) -> Self {
        let mut divisors = vec![0; width];
        for requests in pods {
            let both = divisors.iter_mut().zip(requests);
            both.for_each(|(divisor, amount)| *divisor = common_divisor(*divisor, *amount));
        }
        Self(divisors)
    }

    /// The part of the capacity that the pods can use.
    pub(super) fn usable(&self, room: &[i64]) -> impl Iterator<Item = i64> {
        let part = |(room, divisor): (&i64, &i64)| if *divisor > 0 { room - room.rem_euclid(*divisor) } else { *room };
        room.iter().zip(&self.0).map(part)
    }
}

fn common_divisor(mut a: i64, mut b: i64) -> i64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_sum_of_requests_reaches_is_left_out() {
        let pods = [vec![500, 6, 0], vec![1_500, 10, 0]];
        let granularity = Granularity::of(3, pods.iter());
        let usable = |room: &[i64]| -> Amounts { granularity.usable(room).collect() };
        // 16 is not a sum of these requests, but a multiple of 2: the rule may leave too much, never too little.
        assert_eq!(usable(&[15_890, 17, 9]), [15_500, 16, 9]);
        assert_eq!(usable(&[15_500, 1, 0]), [15_500, 0, 0]);
        // More is taken up than the node has.
        assert_eq!(usable(&[-1, 5, 0])[0], -500);
    }
}
