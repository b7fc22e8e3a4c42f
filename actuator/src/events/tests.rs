use super::queue::{EventCache, MAX_REMEMBERED, Publication, event, event_name};
use super::{MAX_MESSAGE, Note, Recorder, unschedulable_text};
use crate::io::RateLimiter;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use plimsoll_model::identity::PodUid;
use plimsoll_model::plan::{PodRef, Reason, ReasonCode};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

fn node() -> ObjectReference {
    ObjectReference {
        kind: Some("Node".to_owned()),
        name: Some("n".to_owned()),
        uid: Some("u".to_owned()),
        ..ObjectReference::default()
    }
}

#[tokio::test(start_paused = true)]
async fn repeated_causes_are_suppressed_within_the_window_and_counted() {
    let (mut cache, window) = (EventCache::default(), Duration::from_secs(120));
    let (start, time) = (Instant::now(), Timestamp::UNIX_EPOCH);
    let note = Note::normal(node(), "Evicted", "two pods left").with_cause("draining");
    let name = event_name(&note);
    let first = Publication::Publish { count: 1, first: time };
    assert_eq!(cache.next(&name, start, time), first);
    assert_eq!(cache.next(&name, start, time), first, "nothing was written, so nothing is suppressed");
    cache.written(name.clone(), window, start, 1, time);
    assert_eq!(cache.next(&name, start + Duration::from_secs(119), time), Publication::Suppress);
    let later = Timestamp::from_second(120).unwrap();
    assert_eq!(cache.next(&name, start + window, later), Publication::Publish { count: 2, first: time });
    cache.written(name.clone(), window, start + window, 2, time);
    assert_eq!(cache.next(&name, start + window, later), Publication::Suppress);
    let other_figures = Note::normal(node(), "Evicted", "one pod left").with_cause("draining");
    assert_eq!(event_name(&other_figures), name, "the cause names it, not the message");
    assert_ne!(event_name(&Note::normal(node(), "Evicted", "one pod left")), name);
}

#[tokio::test(start_paused = true)]
async fn beyond_the_causes_that_are_remembered_no_event_is_written_again_and_again() {
    let (mut cache, window) = (EventCache::default(), Duration::from_secs(120));
    let (start, time) = (Instant::now(), Timestamp::UNIX_EPOCH);
    let round = |cache: &mut EventCache, now: Instant| {
        let mut written = 0;
        for cause in 0..=MAX_REMEMBERED {
            let name = format!("pod-{cause}");
            if let Publication::Publish { count, first } = cache.next(&name, now, time) {
                cache.written(name, window, now, count, first);
                written += 1;
            }
        }
        written
    };
    assert_eq!([round(&mut cache, start), round(&mut cache, start)], [MAX_REMEMBERED, 0]);
    let new = |cache: &mut EventCache, seconds: u64| cache.next("new", start + Duration::from_secs(seconds), time);
    assert_eq!(new(&mut cache, 119), Publication::Suppress);
    assert_eq!(new(&mut cache, 120), Publication::Publish { count: 1, first: time }, "the windows are over");
}

#[test]
fn an_event_about_a_node_is_in_the_default_namespace_and_its_text_is_bounded() {
    let note = Note::warning(node(), "FailedDraining", "ü".repeat(MAX_MESSAGE));
    let event = event(&note, "n.1", 3, Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
    assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert_eq!(event.count, Some(3));
    let message = event.message.unwrap();
    assert!(message.len() <= MAX_MESSAGE && message.ends_with("..."), "{}", message.len());
}

fn reason(pool: &str, code: ReasonCode, message: &str) -> Reason {
    Reason { node_pool: pool.to_owned(), code, message: message.to_owned() }
}

#[test]
fn unschedulable_event_names_pool_and_cause() {
    let text = unschedulable_text(&[
        reason("default", ReasonCode::LimitReached, "limit of cpu is 10, 10 are used"),
        reason("", ReasonCode::InvalidPod, "no containers"),
    ]);
    assert_eq!(
        text,
        "no node can be launched for this pod: NodePool \"default\": LimitReached: limit of cpu is 10, 10 are used; \
         InvalidPod: no containers"
    );
}

#[test]
fn reasons_that_matter_come_first_and_pools_that_do_not_fit_are_counted() {
    let taint = |team: usize| reason(&format!("team-{team}"), ReasonCode::TaintNotTolerated, &"taint ".repeat(25));
    let mut reasons: Vec<Reason> = (0..8).map(taint).collect();
    reasons.push(reason("fixed", ReasonCode::NodePoolNotReady, "the NodePool is static"));
    reasons.push(reason("gpu", ReasonCode::RequirementsIncompatible, "no offering has arm64"));
    reasons.push(reason("web", ReasonCode::LimitReached, "spec.limits.cpu is 9, 9 in use"));
    reasons.push(reason("", ReasonCode::NoExistingNode, "0 of 9 nodes fit: insufficient cpu"));
    let head = "no node can be launched for this pod: NodePool \"web\": LimitReached: spec.limits.cpu is 9, 9 in use; \
                NoExistingNode: 0 of 9 nodes fit: insufficient cpu; \
                NodePool \"fixed\": NodePoolNotReady: the NodePool is static; \
                NodePool \"gpu\": RequirementsIncompatible: no offering has arm64; NodePool \"team-";
    let text = unschedulable_text(&reasons);
    assert!(text.starts_with(head) && text.ends_with("; 6 more NodePools: TaintNotTolerated"), "{text}");
    assert!(text.contains("\"team-1\"") && text.len() <= MAX_MESSAGE, "{text}");
    // All reasons that fit are shown.
    let few = unschedulable_text(&reasons[6..]);
    assert!(few.starts_with(head) && few.contains("\"team-7\"") && !few.contains("more"), "{few}");
    let limits: Vec<Reason> =
        (0..60).map(|pool| reason(&format!("pool-{pool:02}"), ReasonCode::LimitReached, &"x".repeat(900))).collect();
    let text = unschedulable_text(&limits);
    assert!(text.contains("\"pool-00\"") && text.ends_with("; 59 more NodePools: LimitReached"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_nominated_pods_does_not_fill_the_queue() {
    let (queue, mut notes) = mpsc::channel(100);
    let recorder = Recorder { queue, rate_limiter: RateLimiter::default() };
    let pod = PodRef { uid: PodUid("u".to_owned()), name: "apps/web-1".to_owned() };
    let published = (0..50).filter(|_| recorder.nominated(&pod, "nodeclaim/default-1")).count();
    assert_eq!((published, notes.len()), (10, 10));
    tokio::time::advance(Duration::from_millis(200)).await;
    assert!(recorder.nominated(&pod, "node/a") && !recorder.nominated(&pod, "node/a"), "five per second");
    let note = notes.recv().await.unwrap();
    assert_eq!((note.reason, note.message.as_str()), ("Nominated", "planned for nodeclaim/default-1"));
    assert_eq!((note.object.namespace.as_deref(), note.object.name.as_deref()), (Some("apps"), Some("web-1")));
}
