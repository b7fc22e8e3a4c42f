//! The order of kube-scheduler's scheduling queue.

use plimsoll_model::snapshot::Pod;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Sort key of pending pods, as in kube-scheduler's PrioritySort: highest priority first, then oldest first. Pods that
/// were created in the same second are ordered by name. A number at the end of a name is compared as a number, so web-2
/// is before web-10.
pub fn key(pod: &Pod, priority: i32) -> impl Ord + '_ {
    (Reverse(priority), pod.created, numbered(&pod.name), &pod.namespace)
}

/// Splits a name into the text before the number at its end, and that number.
fn numbered(name: &str) -> (&str, u64) {
    let plain = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    (plain, name.strip_prefix(plain).and_then(|number| number.parse().ok()).unwrap_or(0))
}

/// The scheduling queue of a run. Time is the number of scheduling attempts.
#[derive(Debug)]
pub struct Queue {
    /// Pods by priority, then the time at which they became active.
    active: BTreeSet<(Reverse<i32>, usize, usize)>,
    /// Rejected pods, by the time at which their backoff ends.
    backing_off: BTreeSet<(usize, usize)>,
    /// Priorities by pod.
    priorities: Vec<i32>,
}

impl Queue {
    /// Creates a queue of all pods in `order`. `priorities` are by pod.
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

    /// Removes the next pod at time `now`. If all pods are backing off, the first whose backoff ends is returned at
    /// once.
    pub fn pop(&mut self, now: usize) -> Option<usize> {
        let soonest = self.backing_off.first().map(|(due, _)| *due);
        let until = if self.active.is_empty() { soonest.unwrap_or(now).max(now) } else { now };
        while let Some((due, pod)) = self.backing_off.first().copied().filter(|(due, _)| *due <= until) {
            self.backing_off.pop_first();
            self.activate(pod, due);
        }
        self.active.pop_first().map(|(_, _, pod)| pod)
    }

    /// Adds a rejected pod, to be tried again at time `until`.
    pub fn back_off(&mut self, pod: usize, until: usize) {
        self.backing_off.insert((until, pod));
    }

    /// Whether no pod can be tried before a backoff ends.
    #[must_use]
    pub fn is_idle(&self, now: usize) -> bool {
        self.active.is_empty() && self.backing_off.first().is_none_or(|(due, _)| *due > now)
    }

    /// Number of pods in the queue.
    #[must_use]
    pub fn len(&self) -> usize {
        self.active.len() + self.backing_off.len()
    }

    /// Whether the queue is empty.
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
        assert_eq!((queue.len(), queue.pop(3)), (2, Some(2)), "still backing off, but the first whose backoff ends");
        assert_eq!(queue.pop(9), Some(0));
        assert!(queue.is_empty() && queue.pop(10).is_none());
    }
}
