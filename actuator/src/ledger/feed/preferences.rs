//! Reports unreadable preference annotations of pods as Events. No other component reports them, and the pods run
//! without these preferences.

use crate::clock::Timestamped;
use crate::events::{Note, object, reason};
use crate::ledger::feed::Sources;
use plimsoll_api::Pod;
use plimsoll_model::time::{Millis, Timestamp};
use std::sync::Arc;

/// Interval between passes over all pods; each pass costs two look-ups per pod.
const CHECK_INTERVAL: Millis = Millis::from_seconds(30);
/// Events per pass. All pods of a Deployment share an error, and other Events need space in the queue.
const MAX_EVENTS: usize = 50;

/// When the pods were last checked.
#[derive(Debug, Default)]
pub(super) struct Preferences(Option<Timestamp>);

impl Preferences {
    pub(super) fn check(&mut self, deps: &Sources) {
        let now = deps.clock.timestamp();
        if self.0.is_some_and(|last| now.since(last) < CHECK_INTERVAL) {
            return;
        }
        self.0 = Some(now);
        let pods: Vec<Arc<Pod>> = deps.stores.pods.state();
        let unread = pods.iter().filter_map(|pod| Some((pod, plimsoll_snapshot::ignored_wish(pod)?)));
        for (pod, problem) in unread.take(MAX_EVENTS) {
            let message = format!("{}: {}; it is ignored", problem.field, problem.message);
            deps.events.publish(Note::warning(object(&**pod), reason::INVALID_ANNOTATION, message).with_long_window());
        }
    }
}
