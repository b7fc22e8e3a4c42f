//! The part of a node's capacity that pods can use. Any sum of requests is a multiple of their greatest common divisor:
//! pods of 500m and 1500m CPU use at most 15.5 of 15.89 CPU.

use crate::input::intern::Amounts;

/// Greatest common divisor of the requests of some pods, by resource; 0 for resources that none of them requests.
pub(super) struct Steps(Amounts);

impl Steps {
    /// Creates the steps of pods with these requests, for `width` resources. No request is negative.
    pub(super) fn of<'r>(width: usize, pods: impl Iterator<Item = &'r Amounts>) -> Self {
        let mut steps = vec![0; width];
        for requests in pods {
            steps.iter_mut().zip(requests).for_each(|(step, amount)| *step = common_divisor(*step, *amount));
        }
        Self(steps)
    }

    /// The part of the capacity that the pods can use.
    pub(super) fn usable(&self, room: &[i64]) -> Amounts {
        let part = |(room, step): (&i64, &i64)| if *step > 0 { room - room.rem_euclid(*step) } else { *room };
        room.iter().zip(&self.0).map(part).collect()
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
        let steps = Steps::of(3, pods.iter());
        // 16 is not a sum of these requests, but a multiple of 2: the rule may leave too much, never too little.
        assert_eq!(steps.usable(&[15_890, 17, 9]), [15_500, 16, 9]);
        assert_eq!(steps.usable(&[15_500, 1, 0]), [15_500, 0, 0]);
        // More is taken up than the node has.
        assert_eq!(steps.usable(&[-1, 5, 0])[0], -500);
    }
}
