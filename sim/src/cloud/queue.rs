//! A queue as SQS keeps it: delivered at least once, hidden for a while after each delivery.

use crate::seed::Rng;
use plimsoll_actuator::ports::QueueMessage;
use plimsoll_model::time::{Millis, Timestamp};
use std::collections::BTreeMap;

/// How long a delivered message stays hidden, as the port says.
const VISIBILITY: Millis = Millis::from_seconds(20);
/// Messages per delivery, as SQS limits them.
const BATCH: usize = 10;

#[derive(Debug, Clone)]
struct Entry {
    body: String,
    about: String,
    visible_from: Timestamp,
    deliveries: u32,
}

/// How a queue delays, reorders and duplicates messages, as standard queues of SQS may.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Disorder {
    /// Maximum additional time until a message is visible.
    pub delay: Millis,
    /// Of 1000 messages, how many are sent twice.
    pub twice: u32,
}

/// The queue.
#[derive(Debug, Clone, Default)]
pub struct Queue {
    /// How messages are delayed and duplicated.
    pub disorder: Disorder,
    entries: BTreeMap<u64, Entry>,
    last: u64,
    rng: Rng,
}

impl Queue {
    /// Adds a message about an instance, to be seen from a time on.
    pub fn send(&mut self, about: &str, body: &str, visible_from: Timestamp) {
        let Disorder { delay, twice } = self.disorder;
        let copies = if twice > 0 && self.rng.chance(twice) { 2 } else { 1 };
        for _ in 0..copies {
            let visible_from = visible_from.plus(Millis(self.rng.below(delay.0)));
            self.last += 1;
            let entry = Entry { body: body.to_owned(), about: about.to_owned(), visible_from, deliveries: 0 };
            self.entries.insert(self.last, entry);
        }
    }

    /// Takes back what was never delivered about an instance and would only be seen later: it will not come to pass.
    pub(super) fn retract(&mut self, about: &str, now: Timestamp) {
        self.entries.retain(|_, entry| entry.about != about || entry.visible_from <= now || entry.deliveries > 0);
    }

    /// Up to 10 messages, oldest first, which are then hidden for 20 s.
    pub fn receive(&mut self, now: Timestamp) -> Vec<QueueMessage> {
        let visible = self.entries.iter_mut().filter(|(_, entry)| entry.visible_from <= now).take(BATCH);
        visible
            .map(|(number, entry)| {
                entry.deliveries += 1;
                entry.visible_from = now.plus(VISIBILITY);
                QueueMessage { receipt: format!("{number}-{}", entry.deliveries), body: entry.body.clone() }
            })
            .collect()
    }

    /// Deletes by the receipt of the latest delivery; an older receipt, or one that is unknown, does nothing.
    pub fn delete(&mut self, receipt: &str) {
        self.entries.retain(|number, entry| format!("{number}-{}", entry.deliveries) != receipt);
    }

    /// When the next message can be seen.
    #[must_use]
    pub fn next_visible(&self) -> Option<Timestamp> {
        self.entries.values().map(|entry| entry.visible_from).min()
    }

    /// Messages that are not deleted.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether all messages are deleted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
