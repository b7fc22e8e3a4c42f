//! The interruption queue: a message is deleted only once its effects are durable.

use super::claims_by_instance;
use super::mark::{self, Urgency};
use super::messages::{Message, NoticeKind, event_time, parse};
use crate::clock::Timestamped;
use crate::fencing::CLOUD_CALL;
use crate::interruption::Interruptions;
use crate::io::WriteError;
use crate::pacing::until;
use crate::ports::QueueMessage;
use crate::stores::WatchedKind;
use futures::future::{join, join_all};
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use plimsoll_model::time::{Millis, Timestamp};
use plimsoll_runtime::backoff;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Concurrent readers of a queue with messages. Rules without a filter on the instances may send 70 messages a second
/// in a large account. If receiving and deleting a batch of ten take half a second each, ten readers process 100 a
/// second.
const READERS: usize = 10;
/// Messages processed concurrently by a reader: as many as one receive call returns.
const CONCURRENT_MESSAGES: usize = 10;
/// Timeout of a receive call: a long poll of up to 20 s, and the response.
const RECEIVE: Duration = Duration::from_secs(30);
/// First pause after an error. Doubles up to [`LAST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Maximum pause. A Spot notice gives two minutes, which a longer pause would waste.
const LAST_PAUSE: Duration = Duration::from_secs(10);
/// How long a notice is deferred for an instance of ours whose claim does not know it yet. A Spot notice has taken
/// effect by then.
const DEFERRED_FOR: Millis = Millis::from_seconds(120);
/// Maximum number of deferred notices. Beyond it, messages are dropped: most are about instances of others, and their
/// redelivery would delay our own.
const MAX_DEFERRED: usize = 1000;
/// Maximum number of deferred notices beyond which changes of state are dropped: most are about instances of others.
const MAX_DEFERRED_STATE_CHANGES: usize = MAX_DEFERRED / 2;

/// What happens to a processed message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Delete the message.
    Done,
    /// Leave the message for redelivery.
    Keep,
}

/// A notice about instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Notice {
    kind: NoticeKind,
    /// When it was sent, if known.
    sent: Option<Timestamp>,
    /// When the instances stop, if known.
    ends: Option<Timestamp>,
}

/// A notice for an instance of ours that has no known claim yet.
#[derive(Debug, Clone, Copy)]
struct DeferredNotice {
    notice: Notice,
    until: Timestamp,
}

#[derive(Debug, Default)]
struct QueueState {
    deferred: Mutex<BTreeMap<String, DeferredNotice>>,
}

pub(super) async fn run(deps: &Interruptions, stop: &CancellationToken) {
    if !deps.cloud_reads.has_queue() {
        return;
    }
    let state = QueueState::default();
    until(stop, join(read(deps, &state), process_deferred(deps, &state))).await;
}

/// Reads the queue, except while paused: then the messages are for another autoscaler.
async fn read(deps: &Interruptions, state: &QueueState) {
    let mut fence = deps.fence.clone();
    loop {
        if fence.paused().is_some() {
            deps.metrics.interruption.forget();
            fence.pause_changed().await;
            continue;
        }
        deps.metrics.interruption.begin(deps.clock.now());
        tokio::select! {
            biased;
            () = fence.pause_changed() => {}
            () = read_unpaused(deps, state) => {}
        }
    }
}

/// The first reader always waits for messages; the others read only while there are some, because each call costs
/// money.
async fn read_unpaused(deps: &Interruptions, state: &QueueState) {
    let received = Notify::new();
    join_all((0..READERS).map(|number| read_alone(deps, state, &received, number == 0))).await;
}

async fn read_alone(deps: &Interruptions, state: &QueueState, received: &Notify, is_first: bool) {
    let mut failures = 0_u32;
    let mut is_empty = true;
    loop {
        if is_empty && !is_first {
            received.notified().await;
        }
        let result = async {
            deps.fence.check(CLOUD_CALL).map_err(|error| error.to_string())?;
            let messages = receive_batch(deps, received).await?;
            is_empty = messages.is_empty();
            process(deps, state, messages).await
        };
        match result.await {
            Ok(()) => failures = 0,
            Err(error) => {
                let pause = backoff::delay(FIRST_PAUSE, LAST_PAUSE, failures);
                failures = failures.saturating_add(1);
                tracing::warn!(error, ?pause, "interruption queue not read, retrying");
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// Receives one batch, and wakes the other readers if it has messages.
async fn receive_batch(deps: &Interruptions, received: &Notify) -> Result<Vec<QueueMessage>, String> {
    let answer = tokio::time::timeout(RECEIVE, deps.cloud_reads.receive()).await;
    let messages = answer.map_err(|_| "no answer to receive".to_owned())?.map_err(|error| error.to_string())?;
    if !messages.is_empty() {
        received.notify_waiters();
    }
    let oldest = messages.iter().filter_map(|message| event_time(&message.body)).min();
    deps.metrics.interruption.batch(oldest, deps.clock.now());
    Ok(messages)
}

/// Processes a batch. Deletes the messages whose effects are durable, also if other messages fail.
async fn process(deps: &Interruptions, state: &QueueState, messages: Vec<QueueMessage>) -> Result<(), String> {
    let work = messages.into_iter().map(|message| async move {
        let verdict = handle(deps, state, &message).await;
        (message, verdict)
    });
    let results: Vec<_> = stream::iter(work).buffer_unordered(CONCURRENT_MESSAGES).collect().await;
    let mut done = Vec::new();
    let mut failure = None;
    for (message, verdict) in results {
        match verdict {
            Ok(Verdict::Done) => done.push(message),
            Ok(Verdict::Keep) => {}
            Err(error) => failure = Some(error.to_string()),
        }
    }
    if !done.is_empty() {
        let receipts: Vec<String> = done.iter().map(|message| message.receipt.clone()).collect();
        deps.cloud.delete_messages(&receipts).await.map_err(|error| error.to_string())?;
        let now = deps.clock.now();
        done.iter().for_each(|message| deps.metrics.interruption.deleted(event_time(&message.body), now));
    }
    failure.map_or(Ok(()), Err)
}

async fn handle(deps: &Interruptions, state: &QueueState, message: &QueueMessage) -> Result<Verdict, WriteError> {
    let count = |kind: &str, result: &str| deps.metrics.interruptions.with_label_values(&[kind, result]).inc();
    let (notice, ids) = match parse(&message.body) {
        Ok(Message::Notice { kind, instance_ids, sent, starts }) => {
            let ends = starts.or_else(|| kind.ends(sent, deps.clock.timestamp()));
            (Notice { kind, sent, ends }, instance_ids)
        }
        Ok(Message::NotForUs) => {
            count("no_op", "ignored");
            deps.metrics.interruption.received("no_op");
            return Ok(Verdict::Done);
        }
        Err(error) => {
            // A redelivery would fail in the same way.
            tracing::warn!(%error, "deleting unreadable message of the interruption queue");
            count("unreadable", "deleted");
            return Ok(Verdict::Done);
        }
    };
    let kind = notice.kind;
    deps.metrics.interruption.received(kind.as_str());
    let claims = claims_by_instance(deps);
    let (mut unknown, mut failure) = (Vec::new(), None);
    for id in ids {
        match claims.get(&id) {
            Some(claim) => {
                count(kind.as_str(), "handled");
                // The others must not wait for the redelivery.
                if let Err(error) = act_on_notice(deps, claim, notice).await {
                    failure.get_or_insert(error);
                }
            }
            None => unknown.push(id),
        }
    }
    let mut verdict = Verdict::Done;
    if !unknown.is_empty() {
        verdict = defer(deps, state, notice, &unknown);
        count(kind.as_str(), if verdict == Verdict::Keep { "kept" } else { "foreign" });
    }
    failure.map_or(Ok(verdict), Err)
}

async fn act_on_notice(
    deps: &Interruptions,
    claim: &plimsoll_api::NodeClaim,
    notice: Notice,
) -> Result<(), WriteError> {
    let Notice { kind, ends, .. } = notice;
    mark::learn(deps, claim, kind);
    mark::publish_notice(deps, claim, kind);
    if kind.drains() || deps.settings.act_on_rebalance {
        mark::mark_and_delete(deps, claim, kind.as_str(), ends, Urgency::Drain).await?;
    }
    Ok(())
}

/// Decides about instances without a known claim. The claim of an instance is written before its launch. Therefore the
/// notice can only be about a claim that awaits its instance, and is deferred until the claim has one. EC2 is not
/// asked: thousands of foreign instances may be interrupted within a minute, and looking up each one would delay our
/// notices.
fn defer(deps: &Interruptions, state: &QueueState, notice: Notice, ids: &[String]) -> Verdict {
    let Notice { kind, sent, .. } = notice;
    if !(kind.drains() || deps.settings.act_on_rebalance) || !is_any_launching(deps) {
        return Verdict::Done;
    }
    let now = deps.clock.timestamp();
    if kind.is_state_change() {
        // Most are about instances of others. What is missed here, the garbage collector finds.
        ids.iter().for_each(|id| state.defer_state_change(id, notice, now));
        return Verdict::Done;
    }
    let is_deferred = ids.iter().filter(|id| state.defer(id, notice, now)).count() > 0;
    // The queue brings the message again, for a new leader.
    let is_recent = sent.is_some_and(|sent| now.since(sent) < DEFERRED_FOR);
    if is_deferred && is_recent { Verdict::Keep } else { Verdict::Done }
}

/// Whether a claim awaits its instance.
fn is_any_launching(deps: &Interruptions) -> bool {
    deps.stores.claims.state().iter().any(|claim| claim.provider_id().is_none())
}

impl QueueState {
    /// Whether the notice is deferred, now or before.
    fn defer(&self, id: &str, notice: Notice, now: Timestamp) -> bool {
        let mut deferred = self.deferred.lock();
        deferred.retain(|_, deferred| deferred.until > now);
        if deferred.len() < MAX_DEFERRED {
            deferred.entry(id.to_owned()).or_insert(DeferredNotice { notice, until: now.plus(DEFERRED_FOR) });
        }
        deferred.contains_key(id)
    }

    fn defer_state_change(&self, id: &str, notice: Notice, now: Timestamp) {
        if self.deferred.lock().len() < MAX_DEFERRED_STATE_CHANGES {
            let _deferred = self.defer(id, notice, now);
        }
    }
}

/// Processes deferred notices whose claims are now known. The message stays in the queue and is deleted on its
/// redelivery.
async fn process_deferred(deps: &Interruptions, state: &QueueState) {
    let mut changes = deps.stores.changes(&[WatchedKind::NodeClaim]);
    let mut has_failed = false;
    loop {
        tokio::select! {
            biased;
            () = changes.next() => {}
            () = tokio::time::sleep(LAST_PAUSE), if has_failed => {}
        }
        has_failed = false;
        if state.deferred.lock().is_empty() {
            continue;
        }
        let now = deps.clock.timestamp();
        let ready: Vec<(Arc<plimsoll_api::NodeClaim>, Notice)> = {
            let claims = claims_by_instance(deps);
            let mut deferred = state.deferred.lock();
            deferred.retain(|_, deferred| deferred.until > now);
            deferred.iter().filter_map(|(id, deferred)| Some((Arc::clone(claims.get(id)?), deferred.notice))).collect()
        };
        for (claim, notice) in ready {
            match act_on_notice(deps, &claim, notice).await {
                Ok(()) => {
                    let id = claim.instance_id();
                    state.deferred.lock().remove(id.unwrap_or_default());
                }
                Err(error) => {
                    has_failed = true;
                    tracing::warn!(%error, "kept notice not processed, retrying");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deferred_notice_keeps_its_first_kind_for_two_minutes() {
        let state = QueueState::default();
        let notice = |kind| Notice { kind, sent: None, ends: None };
        assert!(state.defer("i-1", notice(NoticeKind::SpotInterrupted), Timestamp(0)));
        assert!(state.defer("i-1", notice(NoticeKind::InstanceStopped), Timestamp(1000)));
        assert_eq!(state.deferred.lock()["i-1"].notice.kind, NoticeKind::SpotInterrupted);
        assert!(state.defer("i-2", notice(NoticeKind::InstanceStopped), Timestamp(120_000)));
        assert_eq!(state.deferred.lock().keys().collect::<Vec<_>>(), ["i-2"]);
    }

    #[test]
    fn a_thousand_notices_are_deferred_and_changes_of_state_take_half_of_them() {
        let (state, now) = (QueueState::default(), Timestamp(0));
        let notice = |kind| Notice { kind, sent: None, ends: None };
        for number in 0..=500 {
            state.defer_state_change(&format!("i-stopped-{number}"), notice(NoticeKind::InstanceStopped), now);
        }
        assert_eq!(state.deferred.lock().len(), 500);
        let defer = |number: u32| state.defer(&format!("i-{number}"), notice(NoticeKind::SpotInterrupted), now);
        assert!((0..500).all(defer), "the other half is left");
        assert!(!defer(500), "the 1001st notice is dropped");
        assert!(defer(499), "it is among the deferred ones");
        assert_eq!(state.deferred.lock().len(), 1000);
    }
}
