//! The order in which kube-scheduler takes pods.

use plimsoll_model::snapshot::Pod;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Orders pending pods as kube-scheduler's PrioritySort does: by priority, then the oldest. Pods of the same second are
/// taken by name; a number at the end of a name counts as a number (web-2 is before web-10).
pub fn key(pod: &Pod, priority: i32) -> impl Ord + '_ {
    (Reverse(priority), pod.created, numbered(&pod.name), &pod.namespace)
}

/// A name without the number at its end, and that number.
fn numbered(name: &str) -> (&str, u64) {
    let plain = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    (plain, name.strip_prefix(plain).and_then(|number| number.parse().ok()).unwrap_or(0))
}

/// The scheduling queue of a run. Its clock counts the pods that were tried.
#[derive(Debug)]
pub struct Queue {
    /// By priority, then the time from which they wait.
    active: BTreeSet<(Reverse<i32>, usize, usize)>,
    /// Refused pods, by the time at which they come back.
    backing_off: BTreeSet<(usize, usize)>,
    /// By pod.
    priorities: Vec<i32>,
}

impl Queue {
    /// All pods, first the first of `order`. `priorities` are by pod.
    #[must_use]
    pub fn new(order: impl IntoIterator<Item = usize>, priorities: Vec<i32>) -> Self {
        let mut queue = Self { active: BTreeSet::new(), backing_off: BTreeSet::new(), priorities };
        order.into_iter().enumerate().for_each(|(at, pod)| queue.activate(pod, at));
        queue
    }

    fn activate(&mut self, pod: usize, since: usize) {
        let priority = self.priorities.get(pod).copied().unwrap_or(0);
        self.active.insert((Reverse(priority), since, pod));
    }

    /// The next pod at that time. If only refused pods are left, the first of them comes back at once.
    pub fn pop(&mut self, now: usize) -> Option<usize> {
        let soonest = self.backing_off.first().map(|(due, _)| *due);
        let until = if self.active.is_empty() { soonest.unwrap_or(now).max(now) } else { now };
        while let Some((due, pod)) = self.backing_off.first().copied().filter(|(due, _)| *due <= until) {
            self.backing_off.pop_first();
            self.activate(pod, due);
        }
        self.active.pop_first().map(|(_, _, pod)| pod)
    }

    /// Puts a refused pod back, to be tried again at that time.
    pub fn back_off(&mut self, pod: usize, until: usize) {
        self.backing_off.insert((until, pod));
    }

    /// Whether no pod can be tried before one comes back.
    #[must_use]
    pub fn is_idle(&self, now: usize) -> bool {
        self.active.is_empty() && self.backing_off.first().is_none_or(|(due, _)| *due > now)
    }

    /// Pods that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.active.len() + self.backing_off.len()
    }

    /// Whether no pod waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_at_the_end_of_names_count_as_numbers() {
        let mut names = ["worker-1", "web-10", "web-2", "web"];
        names.sort_by_key(|name| numbered(name));
        assert_eq!(names, ["web", "web-2", "web-10", "worker-1"]);
    }

    #[test]
    fn priority_comes_first_and_refused_pods_come_back_when_they_are_due_or_nobody_else_waits() {
        let mut queue = Queue::new([2, 0, 1], vec![0, 7, 0]);
        assert_eq!(queue.pop(0), Some(1), "the priority");
        assert_eq!(queue.pop(1), Some(2));
        queue.back_off(2, 4);
        assert!(!queue.is_idle(2));
        assert_eq!(queue.pop(2), Some(0));
        assert!(queue.is_idle(3) && !queue.is_idle(4));
        queue.back_off(0, 9);
        assert_eq!((queue.len(), queue.pop(3)), (2, Some(2)), "not due, but the first to come back");
        assert_eq!(queue.pop(9), Some(0));
        assert!(queue.is_empty() && queue.pop(10).is_none());
    }
}
