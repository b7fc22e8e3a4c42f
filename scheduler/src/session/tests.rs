mod left_out;
mod skew;

use super::*;
use crate::answer;
use crate::samples::{catalog, catalogs, pod, pool, shape, snapshots, waiting};
use crate::solve::PlanFailure;
use plimsoll_model::plan::Plan;
use plimsoll_model::requirements::{NodeSelectorRequirement, Operator};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{
    CapacityQuota, HostPort, LabelSelector, NodePool, PodAffinityTerm, PodState, TopologySpread,
};
use plimsoll_proto::convert::append_fragment;
use plimsoll_proto::delta::{chunks, diff};
use plimsoll_proto::plan::v1 as plan_wire;
use plimsoll_runtime::metrics::Metrics;
use proptest::prelude::*;
use tonic::Code;

fn request(message: Request) -> wire::SessionRequest {
    wire::SessionRequest { message: Some(message) }
}

fn new(limits: SessionLimits) -> Session {
    let metrics = SchedulerMetrics::new(&Metrics::new("scheduler")).unwrap();
    Session::new(Arc::new(CatalogCache::default()), metrics, limits)
}

/// A session after Hello that has the catalog.
fn started_session(limits: SessionLimits) -> Session {
    let mut session = new(limits);
    let hello = wire::Hello { cluster: "test".into(), client: String::new(), protocol: PROTOCOL };
    send(&mut session, Request::Hello(hello));
    send(&mut session, Request::Catalog((&catalog()).into()));
    session
}

fn send(session: &mut Session, message: Request) -> Vec<Response> {
    let answers = session.handle(request(message)).unwrap();
    answers.into_iter().filter_map(|answer| answer.message).collect()
}

fn error_of(session: &mut Session, message: Request) -> (Code, String) {
    let status = session.handle(request(message)).unwrap_err();
    (status.code(), status.message().to_owned())
}

fn send_all(session: &mut Session, snapshot: &Snapshot, size: usize) {
    for chunk in chunks(snapshot, size) {
        assert_eq!(send(session, Request::SnapshotChunk(chunk)), []);
    }
}

fn plan_now(sequence: u64) -> Request {
    Request::PlanNow(wire::PlanNow { sequence, options: None, cycle_id: "c-1".into() })
}

/// Merges fragments into a plan and expands all shared lists.
fn plan_of_fragments(answers: Vec<Response>) -> plan_wire::Plan {
    let mut plan = plan_wire::Plan::default();
    for answer in answers {
        let Response::PlanFragment(fragment) = answer else { panic!("{answer:?} is no piece of a plan") };
        append_fragment(&mut plan, fragment.part.unwrap());
    }
    plan_wire::Plan::from(&Plan::try_from(plan).unwrap())
}

fn unary(snapshot: &Snapshot) -> plan_wire::Plan {
    let request = plimsoll_proto::scheduler::v1::PlanRequest {
        snapshot: Some(snapshot.into()),
        catalogs: catalogs().values().map(Into::into).collect(),
        ..Default::default()
    };
    answer::plan(&request).unwrap().plan.unwrap()
}

fn is_resync(answers: &[Response], text: &str) -> bool {
    matches!(answers, [Response::ResyncRequired(resync)] if resync.reason.contains(text))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// A warm session must give the same plan as a cold one.
    #[test]
    fn a_session_returns_the_same_bytes_as_a_fresh_replica(steps in proptest::collection::vec(snapshots(), 1..5), size in 1..9_usize) {
        let mut session = started_session(SessionLimits::default());
        let mut previous: Option<Snapshot> = None;
        for (sequence, mut snapshot) in (1..).zip(steps) {
            snapshot.sequence = sequence;
            match &previous {
                None => send_all(&mut session, &snapshot, size),
                Some(previous) => assert_eq!(send(&mut session, Request::Delta(diff(previous, &snapshot))), []),
            }
            let warm = plan_of_fragments(send(&mut session, plan_now(sequence)));
            prop_assert_eq!(warm.encode_to_vec(), unary(&snapshot).encode_to_vec());
            previous = Some(snapshot);
        }
    }
}

#[test]
fn early_launches_of_a_burst_come_first_and_are_part_of_the_plan() {
    let snapshot = waiting(20_000);
    let mut session = started_session(SessionLimits::default());
    send_all(&mut session, &snapshot, 7_000);
    let mut early = Vec::new();
    let rest = session.handle_early(request(plan_now(1)), &mut |answer| early.push(answer)).unwrap();
    assert!(!early.is_empty());
    let answers: Vec<Response> = early.into_iter().chain(rest).filter_map(|answer| answer.message).collect();
    let last = |answer: &Response| matches!(answer, Response::PlanFragment(fragment) if fragment.last);
    assert_eq!(answers.iter().position(last), Some(answers.len() - 1));
    assert_eq!(plan_of_fragments(answers).encode_to_vec(), unary(&snapshot).encode_to_vec());
}

#[test]
fn hello_must_come_first_and_only_once() {
    let mut session = new(SessionLimits::default());
    let (code, text) = error_of(&mut session, plan_now(1));
    assert_eq!((code, text.as_str()), (Code::InvalidArgument, "hello: has to come first"));
    let mut session = started_session(SessionLimits::default());
    let (_, text) = error_of(
        &mut session,
        Request::Hello(wire::Hello { cluster: "x".into(), client: String::new(), protocol: PROTOCOL }),
    );
    assert_eq!(text, "hello: came twice");
    let (_, text) = error_of(&mut new(SessionLimits::default()), Request::Hello(wire::Hello::default()));
    assert_eq!(text, "hello.cluster: is empty");
    let status = session.handle(wire::SessionRequest { message: None }).unwrap_err();
    assert_eq!(status.message(), "message: is not set");
}

#[test]
fn a_gap_or_wrong_checksum_requests_one_full_snapshot() {
    let (first, second) = (waiting(2), Snapshot { sequence: 2, ..waiting(3) });
    let third = Snapshot { sequence: 3, ..waiting(4) };
    let mut session = started_session(SessionLimits::default());
    send_all(&mut session, &first, 2);
    let gap = send(&mut session, Request::Delta(diff(&second, &third)));
    assert!(is_resync(&gap, "delta is for snapshot 2"), "{gap:?}");
    // Messages that were sent before the request are ignored.
    assert_eq!(send(&mut session, Request::Delta(diff(&second, &third))), []);
    assert_eq!(send(&mut session, plan_now(3)), []);

    send_all(&mut session, &second, 100);
    let mut wrong = diff(&second, &third);
    wrong.checksum ^= 1;
    let answers = send(&mut session, Request::Delta(wrong));
    assert!(is_resync(&answers, "checksum"), "{answers:?}");
    send_all(&mut session, &third, 1);
    assert_eq!(plan_of_fragments(send(&mut session, plan_now(3))).snapshot_sequence, 3);
}

#[test]
fn a_missing_chunk_requests_a_full_snapshot() {
    let pieces = chunks(&waiting(5), 2);
    let mut session = started_session(SessionLimits::default());
    assert_eq!(send(&mut session, Request::SnapshotChunk(pieces[0].clone())), []);
    let answers = send(&mut session, Request::SnapshotChunk(pieces[2].clone()));
    assert!(is_resync(&answers, "chunk 2 came where 1"), "{answers:?}");
    assert_eq!(send(&mut session, Request::SnapshotChunk(pieces[3].clone())), []);
}

#[test]
fn a_plan_request_for_another_sequence_requests_a_full_snapshot() {
    let mut session = started_session(SessionLimits::default());
    let answers = send(&mut session, plan_now(1));
    assert!(is_resync(&answers, "the mirror has none"), "{answers:?}");
    send_all(&mut session, &waiting(1), 100);
    let answers = send(&mut session, plan_now(2));
    assert!(is_resync(&answers, "snapshot 2, but the mirror has 1"), "{answers:?}");
}

#[test]
fn a_plan_waits_for_missing_catalogs() {
    let mut session = new(SessionLimits::default());
    send(
        &mut session,
        Request::Hello(wire::Hello { cluster: "test".into(), client: String::new(), protocol: PROTOCOL }),
    );
    send_all(&mut session, &waiting(1), 100);
    let id = catalog().id().0;
    let need = Response::NeedCatalog(wire::NeedCatalog { catalog_ids: vec![id.clone()] });
    assert_eq!(send(&mut session, plan_now(1)), std::slice::from_ref(&need));
    // A newer snapshot replaces the pending plan request.
    send_all(&mut session, &Snapshot { sequence: 2, ..waiting(2) }, 100);
    assert_eq!(send(&mut session, plan_now(2)), [need]);
    let plan = plan_of_fragments(send(&mut session, Request::Catalog((&catalog()).into())));
    assert_eq!((plan.snapshot_sequence, plan.launches.len()), (2, 1));
    assert_eq!(send(&mut session, Request::Catalog((&catalog()).into())), []);

    let mut second = Session::new(Arc::clone(&session.shared), session.metrics.clone(), SessionLimits::default());
    let hello = send(
        &mut second,
        Request::Hello(wire::Hello { cluster: "other".into(), client: String::new(), protocol: PROTOCOL }),
    );
    assert_eq!(hello, [Response::Ready(wire::Ready { known_catalog_ids: vec![id], protocol: PROTOCOL })]);
    send_all(&mut second, &waiting(1), 100);
    assert_eq!(plan_of_fragments(send(&mut second, plan_now(1))).launches.len(), 1);
}

#[test]
fn missing_catalogs_are_requested_once() {
    let other = Catalog { region: "other".into(), ..catalog() };
    let mut snapshot = waiting(1);
    snapshot.node_pools.push(NodePool { catalog: Some(other.id()), ..pool("other") });
    let mut session = new(SessionLimits::default());
    send(
        &mut session,
        Request::Hello(wire::Hello { cluster: "test".into(), client: String::new(), protocol: PROTOCOL }),
    );
    send_all(&mut session, &snapshot, 100);
    let answers = send(&mut session, plan_now(1));
    assert!(matches!(&answers[..], [Response::NeedCatalog(need)] if need.catalog_ids.len() == 2), "{answers:?}");
    assert_eq!(send(&mut session, Request::Catalog((&other).into())), []);
    assert_eq!(plan_of_fragments(send(&mut session, Request::Catalog((&catalog()).into()))).launches.len(), 1);
}

#[test]
fn an_invalid_message_ends_the_session_with_its_path() {
    let mut dangling = chunks(&waiting(1), 100).remove(0);
    dangling.part.as_mut().unwrap().pods[0].shape = "x".into();
    let refused = error_of(&mut started_session(SessionLimits::default()), Request::SnapshotChunk(dangling));
    assert_eq!(refused, (Code::InvalidArgument, "snapshot.pods[0].shape: no shape \"x\"".to_owned()));

    let mut negative = chunks(&waiting(1), 100).remove(0);
    negative.part.as_mut().unwrap().shapes[0].requests[0].amount = -1;
    let (_, text) = error_of(&mut started_session(SessionLimits::default()), Request::SnapshotChunk(negative));
    assert_eq!(text, "snapshot_chunk.part.shapes[0].requests[0].amount: is negative: -1");

    let mut session = started_session(SessionLimits::default());
    send_all(&mut session, &waiting(1), 100);
    let options = Some(plan_wire::PlanOptions { disruption: true, work_budget: u64::MAX, ..Default::default() });
    let (code, text) =
        error_of(&mut session, Request::PlanNow(wire::PlanNow { sequence: 1, options, cycle_id: String::new() }));
    assert_eq!(code, Code::InvalidArgument);
    assert!(text.starts_with("plan_now.options.work_budget: is "), "{text}");

    let wrong = plimsoll_proto::catalog::v1::Catalog { id: "x".into(), ..(&catalog()).into() };
    let (_, text) = error_of(&mut started_session(SessionLimits::default()), Request::Catalog(wrong));
    assert!(text.starts_with("catalog.id: is x, but"), "{text}");
}

/// A request of any caller is refused for such a pod. A session would end for all pods of its cluster.
#[test]
fn a_pod_that_an_api_server_should_not_have_accepted_does_not_end_the_session() {
    let selects_nothing = || LabelSelector {
        match_expressions: vec![NodeSelectorRequirement::new("app", Operator::In, [""; 0])],
        ..LabelSelector::default()
    };
    let mut odd = shape("odd", 500);
    odd.host_ports = vec![HostPort { ip: "0.0.0.0".into(), port: 80, protocol: String::new() }];
    odd.topology_spread = vec![TopologySpread {
        topology_key: "topology.kubernetes.io/zone".into(),
        max_skew: 1,
        min_domains: Some(0),
        required: true,
        selector: Some(selects_nothing()),
        honor_node_affinity: true,
        honor_node_taints: false,
    }];
    odd.pod_affinity = vec![PodAffinityTerm {
        anti: true,
        weight: None,
        topology_key: "topology.kubernetes.io/zone".into(),
        selector: Some(selects_nothing()),
        namespaces: vec!["default".into()],
    }];
    let mut snapshot = waiting(2);
    snapshot.shapes.push(odd);
    snapshot.pods.push(pod("z-odd", "odd", PodState::Pending));
    snapshot.sort();
    let mut session = started_session(SessionLimits::default());
    send_all(&mut session, &snapshot, 100);
    let plan = plan_of_fragments(send(&mut session, plan_now(1)));
    let launched = plan.launches.iter().flat_map(|launch| &launch.pods).filter(|pod| pod.name.contains("web-"));
    assert_eq!(launched.count(), 2);
}

#[test]
fn a_snapshot_beyond_the_limits_is_rejected() {
    let few = SessionLimits { objects: 4, bytes: 1 << 20 };
    let mut session = started_session(few);
    // Two pods, a shape and a pool.
    send_all(&mut session, &waiting(2), 100);
    let more = Snapshot { sequence: 2, ..waiting(3) };
    let (code, text) = error_of(&mut session, Request::Delta(diff(&waiting(2), &more)));
    assert_eq!(code, Code::ResourceExhausted);
    assert!(text.ends_with("5 objects, more than 4"), "{text}");

    let quota = CapacityQuota { name: "q".to_owned(), selector: Vec::new(), limits: Resources::new() };
    let with_quota = Snapshot { capacity_quotas: vec![quota], ..waiting(2) };
    let (_, text) = error_of(&mut started_session(few), Request::SnapshotChunk(chunks(&with_quota, 100).remove(0)));
    assert!(text.ends_with("5 objects, more than 4"), "{text}");

    // A snapshot that is never complete.
    let [first, second, ..] = &chunks(&waiting(4), 3)[..] else { panic!("too few chunks") };
    let mut session = started_session(few);
    assert_eq!(send(&mut session, Request::SnapshotChunk(first.clone())), []);
    let incomplete = plimsoll_proto::snapshot::v1::SnapshotChunk { last: false, ..second.clone() };
    let (code, text) = error_of(&mut session, Request::SnapshotChunk(incomplete));
    assert_eq!(code, Code::ResourceExhausted);
    assert!(text.ends_with("6 objects, more than 4"), "{text}");

    let size = chunks(&waiting(2), 100)[0].encoded_len();
    let small = SessionLimits { objects: 100, bytes: size };
    let mut session = started_session(small);
    send_all(&mut session, &waiting(2), 100);
    let mut previous = waiting(2);
    let mut answers = Vec::new();
    for sequence in 2..100 {
        let next = Snapshot { sequence, ..waiting(2 + usize::try_from(sequence % 2).unwrap()) };
        answers = send(&mut session, Request::Delta(diff(&previous, &next)));
        previous = next;
        if !answers.is_empty() {
            break;
        }
    }
    assert!(is_resync(&answers, "changes of more than"), "{answers:?}");
    let (code, _) = error_of(
        &mut started_session(SessionLimits { bytes: size - 1, ..small }),
        Request::SnapshotChunk(chunks(&waiting(2), 100).remove(0)),
    );
    assert_eq!(code, Code::ResourceExhausted);
}

/// A cluster may have a node class with other kubelet settings for each team.
#[test]
fn the_number_of_catalogs_of_a_snapshot_has_no_limit() {
    let of = |number: usize| Catalog { region: number.to_string(), ..catalog() };
    let count = session_catalogs::MAX_OTHERS + 1;
    let mut snapshot = waiting(1);
    let named = |number| NodePool { catalog: Some(of(number).id()), ..pool(&format!("p{number:02}")) };
    snapshot.node_pools = (0..count).map(named).collect();
    // Watchers send the snapshot before its catalogs. Earlier ones send the catalogs first.
    for snapshot_first in [true, false] {
        let mut session = started_session(SessionLimits::default());
        if snapshot_first {
            send_all(&mut session, &snapshot, 100);
        }
        for number in 0..count {
            assert_eq!(send(&mut session, Request::Catalog((&of(number)).into())), []);
        }
        if !snapshot_first {
            send_all(&mut session, &snapshot, 100);
        }
        assert_eq!(plan_of_fragments(send(&mut session, plan_now(1))).launches.len(), 1);
    }

    let mut session = started_session(SessionLimits::default());
    send_all(&mut session, &snapshot, 100);
    let answers = send(&mut session, plan_now(1));
    assert!(matches!(&answers[..], [Response::NeedCatalog(need)] if need.catalog_ids.len() == count), "{answers:?}");
    for number in 1..count {
        assert_eq!(send(&mut session, Request::Catalog((&of(number)).into())), []);
    }
    assert_eq!(plan_of_fragments(send(&mut session, Request::Catalog((&of(0)).into()))).launches.len(), 1);
}
