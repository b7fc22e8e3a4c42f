//! Pods whose wishes cannot be read are told so: nobody else looks at the annotations, and the pods run without.

use crate::clock::Timestamped;
use crate::events::{Note, object, reason};
use crate::ledger::feed::Sources;
use k8s_openapi::api::core::v1::Pod;
use plimsoll_model::time::{Millis, Timestamp};
use std::sync::Arc;

/// All pods are looked at so often; each look costs two look-ups a pod.
const EVERY: Millis = Millis::from_seconds(30);
/// Pods that are told at one look: a Deployment has the same fault in all of its pods, and other Events need room in the queue.
const AT_ONCE: usize = 50;

/// When pods were looked at.
#[derive(Debug, Default)]
pub(super) struct Wishes(Option<Timestamp>);

impl Wishes {
    pub(super) fn look(&mut self, deps: &Sources, pods: &[Arc<Pod>]) {
        let now = deps.clock.timestamp();
        if self.0.is_some_and(|last| now.since(last) < EVERY) {
            return;
        }
        self.0 = Some(now);
        let unread = pods.iter().filter_map(|pod| Some((pod, plimsoll_snapshot::ignored_wish(pod)?)));
        for (pod, problem) in unread.take(AT_ONCE) {
            let message = format!("{}: {}; it is ignored", problem.field, problem.message);
            deps.events.publish(Note::warning(object(&**pod), reason::INVALID_ANNOTATION, message).seldom());
        }
    }
}
