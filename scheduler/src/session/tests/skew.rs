//! Sessions of clients of other versions.

use super::*;
use crate::samples::{node, pod, shape};
use plimsoll_model::names::label;
use plimsoll_model::snapshot::{PodDisruptionBudget, PodState};
use plimsoll_proto::known;
use plimsoll_proto::protocol::{PROTOCOL, SHARED_REASONS};

/// A session that a watcher of protocol 1 sends: Hello, catalog, snapshot, a plan, a change, and a plan. Each message
/// is preceded by its length. `PLIMSOLL_UPDATE=1` writes it again, which is right only if the test data changes.
const RECORDED: &[u8] = include_bytes!("recorded/protocol-1.bin");

/// Key and value of a field that nobody knows: number 15,000, a varint.
const UNKNOWN_FIELD: [u8; 4] = [0xc0, 0xa9, 0x07, 0x01];

fn first() -> Snapshot {
    let mut snapshot = waiting(5);
    let mut zonal = shape("zonal", 1500);
    zonal.node_selector = [(label::ZONE.to_owned(), "b".to_owned())].into();
    snapshot.shapes.push(zonal);
    snapshot.pods.push(pod("zonal-0", "zonal", PodState::Pending));
    let mut bound = pod("old-0", "web", PodState::Bound("n".into()));
    bound.pod_disruption_budgets = vec!["default/old".to_owned()];
    snapshot.pods.push(bound);
    snapshot.pod_disruption_budgets =
        vec![PodDisruptionBudget { name: "default/old".to_owned(), disruptions_allowed: 1, fully_blocking: false }];
    snapshot.nodes.push(node("n", "default"));
    snapshot.sort();
    snapshot
}

fn second() -> Snapshot {
    let mut snapshot = Snapshot { sequence: 2, ..first() };
    snapshot.pods.retain(|pod| pod.name != "web-1");
    snapshot.pods.push(pod("web-9", "web", PodState::Pending));
    snapshot.sort();
    snapshot
}

fn sent() -> Vec<Request> {
    let hello = wire::Hello { cluster: "test".into(), client: "plimsoll-watcher".into(), protocol: 0 };
    let chunks = chunks(&first(), 4).into_iter().map(Request::SnapshotChunk);
    let rest = [plan_now(1), Request::Delta(diff(&first(), &second())), plan_now(2)];
    [Request::Hello(hello), Request::Catalog((&catalog()).into())].into_iter().chain(chunks).chain(rest).collect()
}

#[test]
fn record() {
    if std::env::var_os("PLIMSOLL_UPDATE").is_some() {
        let bytes: Vec<u8> = sent().into_iter().flat_map(|it| request(it).encode_length_delimited_to_vec()).collect();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/session/tests/recorded/protocol-1.bin");
        std::fs::write(path, bytes).unwrap();
    }
}

/// Plays a recorded session, each message changed by `change`, and returns its plans.
fn play(change: impl Fn(&[u8]) -> Vec<u8>) -> Vec<plan_wire::Plan> {
    let (mut rest, mut session, mut plans) = (RECORDED, new(SessionLimits::default()), Vec::new());
    while !rest.is_empty() {
        let length = prost::decode_length_delimiter(&mut rest).unwrap();
        let (message, tail) = rest.split_at(length);
        rest = tail;
        let request = wire::SessionRequest::decode(&*change(message)).unwrap();
        let answers: Vec<Response> = session.handle(request).unwrap().into_iter().filter_map(|it| it.message).collect();
        match answers.first() {
            None => {}
            Some(Response::Ready(ready)) => assert_eq!(ready.protocol, PROTOCOL),
            Some(_) => plans.push(plan_of_fragments(answers)),
        }
    }
    plans
}

/// Adds an unknown field to a message and to all messages in it.
fn with_unknown_fields(bytes: &[u8], message: &str) -> Vec<u8> {
    known::rewrite(bytes, message, &|_, _| true, &UNKNOWN_FIELD).unwrap()
}

#[test]
fn a_recorded_session_of_the_former_version_is_answered() {
    let plans = play(<[u8]>::to_vec);
    assert_eq!(plans, [first(), second()].map(|snapshot| unary(&snapshot)));
    assert!(!plans[1].launches.is_empty() && !plans[1].placements.is_empty());
}

#[test]
fn fields_that_nobody_knows_change_nothing() {
    let change = |message: &[u8]| {
        let changed = with_unknown_fields(message, "plimsoll.scheduler.v1.SessionRequest");
        // In the message, in its kind, and in what that contains.
        assert!(changed.len() >= message.len() + 2 * UNKNOWN_FIELD.len());
        changed
    };
    assert_eq!(play(change), play(<[u8]>::to_vec));
}

#[test]
fn the_client_reads_answers_with_fields_that_nobody_knows() {
    let mut session = started_session(SessionLimits::default());
    send_all(&mut session, &first(), 100);
    for answer in session.handle(request(plan_now(1))).unwrap() {
        let changed = with_unknown_fields(&answer.encode_to_vec(), "plimsoll.scheduler.v1.SessionResponse");
        assert!(changed.len() > answer.encoded_len() + 10 * UNKNOWN_FIELD.len());
        assert_eq!(wire::SessionResponse::decode(&*changed).unwrap(), answer);
    }
}

fn hello(protocol: u32) -> Request {
    Request::Hello(wire::Hello { cluster: "test".into(), client: String::new(), protocol })
}

#[test]
fn a_client_that_is_too_old_is_refused_with_both_numbers() {
    for (number, theirs) in [(0, 1), (1, 1), (2, 2)] {
        let mut session = new(SessionLimits::default());
        session.oldest_protocol = 3;
        let (code, text) = error_of(&mut session, hello(number));
        let expected =
            format!("the watcher has protocol {theirs}, but this version ({PROTOCOL}) works with 3 and later");
        assert!(code == Code::FailedPrecondition && text.starts_with(&expected), "{text}");
    }
    let mut session = new(SessionLimits::default());
    session.oldest_protocol = 3;
    assert_eq!(send(&mut session, hello(3)).len(), 1);
}

#[test]
fn a_client_of_another_version_may_send_catalogs_whose_id_covers_other_fields() {
    let other = plimsoll_proto::catalog::v1::Catalog { id: "other".into(), ..(&catalog()).into() };
    let mut snapshot = waiting(2);
    snapshot.node_pools[0].catalog = Some("other".into());
    for protocol in [PROTOCOL - 1, PROTOCOL + 1] {
        let mut session = new(SessionLimits::default());
        send(&mut session, hello(protocol));
        send_all(&mut session, &snapshot, 100);
        assert!(matches!(&send(&mut session, plan_now(1))[..], [Response::NeedCatalog(_)]));
        let plan = plan_of_fragments(send(&mut session, Request::Catalog(other.clone())));
        assert_eq!(plan.launches.len(), 1);
        assert_eq!(session.shared.ids(), [], "only this session has it");
    }
    let mut session = new(SessionLimits::default());
    send(&mut session, hello(PROTOCOL));
    let (code, text) = error_of(&mut session, Request::Catalog(other));
    assert!(code == Code::InvalidArgument && text.starts_with("catalog.id: is other, but"), "{text}");
}

#[test]
fn only_a_client_that_knows_it_is_referred_to_the_reasons_of_another_pod() {
    let mut snapshot = waiting(3);
    snapshot.shapes = vec![shape("web", 96_000)];
    for (protocol, likes) in [(SHARED_REASONS - 1, [None; 3]), (SHARED_REASONS, [None, Some(0), Some(0)])] {
        let mut session = new(SessionLimits::default());
        send(&mut session, hello(protocol));
        send(&mut session, Request::Catalog((&catalog()).into()));
        send_all(&mut session, &snapshot, 100);
        let answers = send(&mut session, plan_now(1));
        let [Response::PlanFragment(fragment)] = &answers[..] else { panic!("not one fragment") };
        let pods = &fragment.part.as_ref().unwrap().unschedulable;
        assert_eq!(pods.iter().map(|pod| pod.like).collect::<Vec<_>>(), likes);
        assert_eq!(plan_of_fragments(answers), unary(&snapshot));
    }
}

#[test]
fn kinds_of_messages_of_a_later_client_are_ignored() {
    let unknown = || wire::SessionRequest { message: None };
    let mut session = new(SessionLimits::default());
    send(&mut session, hello(PROTOCOL + 1));
    assert_eq!(session.handle(unknown()).unwrap(), []);
    let mut session = new(SessionLimits::default());
    send(&mut session, hello(PROTOCOL));
    assert_eq!(session.handle(unknown()).unwrap_err().message(), "message: is not set");
}
