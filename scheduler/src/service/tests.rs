mod certificates;

use super::*;
use crate::samples::{catalog, catalogs, waiting};
use futures::StreamExt;
use plimsoll_proto::delta::{chunks, diff};
use plimsoll_proto::protocol::PROTOCOL;
use plimsoll_proto::scheduler::v1::explain_request::Subject;
use plimsoll_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use plimsoll_proto::scheduler::v1::session_request::Message as Ask;
use plimsoll_proto::scheduler::v1::session_response::Message as Answer;
use plimsoll_proto::scheduler::v1::supposition::Change;
use plimsoll_proto::scheduler::v1::{
    ExplainRequest, Hello, MorePods, PlanNow, PlanRequest, SessionRequest, Supposition, WhatIfRequest,
};
use plimsoll_runtime::memory;
use prost::Message as _;
use prost::bytes::BufMut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codec::{EncodeBody, EncodeBuf, Encoder};
use tonic::codegen::http;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};
use tonic_types::StatusExt;
use tower::ServiceExt;

type Client = SchedulerServiceClient<Channel>;

/// The service on in-memory listeners.
struct Running {
    closed: Client,
    open: Client,
    open_channel: Channel,
    metrics: Metrics,
    shutdown: Shutdown,
    serving: JoinHandle<Result<(), ServiceError>>,
}

fn client(channel: Channel) -> Client {
    SchedulerServiceClient::new(channel).max_encoding_message_size(2 * MAX_REQUEST_BYTES)
}

fn start(change: impl FnOnce(&mut Settings)) -> Running {
    let mut settings = Settings::for_cores(NonZeroUsize::MIN);
    change(&mut settings);
    let ((closed_dialer, closed), (open_dialer, open)) = (memory::pair(), memory::pair());
    let (metrics, shutdown) = (Metrics::new("scheduler"), Shutdown::default());
    let parts = Parts {
        closed: Listener::Memory(closed),
        open: Some(Listener::Memory(open)),
        metrics: metrics.clone(),
        readiness: Readiness::default(),
        settings,
    };
    let serving = tokio::spawn(run(parts, shutdown.clone()));
    let (closed, open_channel) = (client(closed_dialer.channel()), open_dialer.channel());
    Running { closed, open: client(open_channel.clone()), open_channel, metrics, shutdown, serving }
}

fn plan_request(pods: usize) -> PlanRequest {
    PlanRequest {
        snapshot: Some((&waiting(pods)).into()),
        catalogs: catalogs().values().map(Into::into).collect(),
        ..PlanRequest::default()
    }
}

/// Client side of a session.
struct SessionClient {
    requests: mpsc::Sender<SessionRequest>,
    answers: Streaming<plimsoll_proto::scheduler::v1::SessionResponse>,
}

impl SessionClient {
    async fn open(client: &Client, cluster: &str) -> Self {
        let (requests, receiver) = mpsc::channel(16);
        let answers = client.clone().session(ReceiverStream::new(receiver)).await.unwrap().into_inner();
        let mut client = Self { requests, answers };
        client.send(Ask::Hello(Hello { cluster: cluster.into(), client: "test".into(), protocol: PROTOCOL })).await;
        assert!(matches!(client.receive().await, Ok(Answer::Ready(_))));
        client
    }

    async fn send(&self, message: Ask) {
        self.requests.send(SessionRequest { message: Some(message) }).await.unwrap();
    }

    async fn receive(&mut self) -> Result<Answer, Status> {
        self.answers.message().await.map(|answer| answer.and_then(|answer| answer.message).expect("an answer"))
    }

    async fn plan(&mut self, sequence: u64) -> plimsoll_proto::plan::v1::Plan {
        self.send(Ask::PlanNow(PlanNow { sequence, options: None, cycle_id: "c".into() })).await;
        let Ok(Answer::PlanFragment(fragment)) = self.receive().await else { panic!("no plan") };
        assert!(fragment.last);
        fragment.part.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn sessions_and_plan_calls_return_the_same_plan() {
    let running = start(|_| ());
    let (mut first, mut second) =
        tokio::join!(SessionClient::open(&running.closed, "one"), SessionClient::open(&running.closed, "two"));
    first.send(Ask::Catalog((&catalog()).into())).await;
    for chunk in chunks(&waiting(3), 2) {
        first.send(Ask::SnapshotChunk(chunk)).await;
    }
    let small = first.plan(1).await;
    for chunk in chunks(&waiting(9), 4) {
        second.send(Ask::SnapshotChunk(chunk)).await;
    }
    let next = plimsoll_model::snapshot::Snapshot { sequence: 2, ..waiting(9) };
    first.send(Ask::Delta(diff(&waiting(3), &next))).await;
    let (of_first, of_second) = tokio::join!(first.plan(2), second.plan(1));
    assert_eq!(of_first.launches, of_second.launches);
    let placed = |plan: &plimsoll_proto::plan::v1::Plan| plan.launches.iter().map(|one| one.pods.len()).sum::<usize>();
    assert_eq!((placed(&small), placed(&of_first)), (3, 9));
    for mut door in [running.closed.clone(), running.open.clone()] {
        assert_eq!(door.plan(plan_request(3)).await.unwrap().into_inner().plan, Some(small.clone()));
    }
    let text = running.metrics.encode().unwrap();
    assert!(text.contains("plimsoll_scheduler_sessions 2\n"), "{text}");
    assert!(text.contains("plimsoll_scheduler_plans_total{caller=\"outside\"} 2\n"), "{text}");
    assert!(text.contains("plimsoll_scheduler_plans_total{caller=\"session\"} 3\n"), "{text}");
}

/// A planner that does not end for the first snapshot, unless it is cancelled.
const ENDLESS_FIRST: PlanFn = PlanFn(|planner, snapshot, index, catalogs, options, early| {
    while snapshot.sequence == 1 && !planner.is_cancelled() {
        std::thread::yield_now();
    }
    planner.solve_early(snapshot, index, catalogs, options, early)
});

// With one thread, a solve would keep the session from reading the next message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_snapshot_ends_a_plan_and_the_session_goes_on() {
    let running = start(|settings| settings.plan = ENDLESS_FIRST);
    let mut client = SessionClient::open(&running.closed, "one").await;
    client.send(Ask::Catalog((&catalog()).into())).await;
    for chunk in chunks(&waiting(3), 100) {
        client.send(Ask::SnapshotChunk(chunk)).await;
    }
    client.send(Ask::PlanNow(PlanNow { sequence: 1, options: None, cycle_id: "c".into() })).await;
    let next = plimsoll_model::snapshot::Snapshot { sequence: 2, ..waiting(9) };
    client.send(Ask::Delta(diff(&waiting(3), &next))).await;
    let plan = client.plan(2).await;
    assert_eq!(plan.snapshot_sequence, 2, "nothing comes of the first plan");
    assert_eq!(plan.launches.iter().map(|one| one.pods.len()).sum::<usize>(), 9);
    assert!(running.metrics.encode().unwrap().contains("plimsoll_scheduler_abandoned_plans_total 1\n"));
}

static SOLVE_BEGAN: AtomicBool = AtomicBool::new(false);
static SOLVE_CANCELLED: AtomicBool = AtomicBool::new(false);

/// A planner that does not end unless it is cancelled.
const ENDLESS: PlanFn = PlanFn(|planner, snapshot, index, catalogs, options, early| {
    SOLVE_BEGAN.store(true, Ordering::SeqCst);
    while !planner.is_cancelled() {
        std::thread::yield_now();
    }
    SOLVE_CANCELLED.store(true, Ordering::SeqCst);
    planner.solve_early(snapshot, index, catalogs, options, early)
});

#[test]
fn the_end_of_the_process_ends_a_plan_of_a_session() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    // The client stays connected until the process has ended.
    let _client = runtime.block_on(async {
        let running = start(|settings| settings.plan = ENDLESS);
        let client = SessionClient::open(&running.closed, "one").await;
        client.send(Ask::Catalog((&catalog()).into())).await;
        for chunk in chunks(&waiting(3), 100) {
            client.send(Ask::SnapshotChunk(chunk)).await;
        }
        client.send(Ask::PlanNow(PlanNow { sequence: 1, options: None, cycle_id: "c".into() })).await;
        while !SOLVE_BEGAN.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        (running, client)
    });
    // Less than the time limit of a plan.
    runtime.shutdown_timeout(Duration::from_secs(5));
    assert!(SOLVE_CANCELLED.load(Ordering::SeqCst));
}

#[tokio::test]
async fn in_process_and_grpc_callers_get_the_same_bytes() {
    let mut running = start(|_| ());
    let request = plan_request(7);
    let near = crate::answer::plan(&request).unwrap();
    let far = running.open.plan(request.clone()).await.unwrap().into_inner();
    assert_eq!(near.encode_to_vec(), far.encode_to_vec());

    let subject = Some(Subject::Pod("default/web-3".into()));
    let why = ExplainRequest {
        snapshot: request.snapshot.clone(),
        catalogs: request.catalogs.clone(),
        subject,
        options: None,
    };
    let near = crate::answer::explain(&why).unwrap();
    assert_eq!(running.open.explain(why).await.unwrap().into_inner(), near);

    let more = MorePods { like: "default/web-3".into(), count: 4 };
    let suppositions = vec![Supposition { change: Some(Change::MorePods(more)) }];
    let PlanRequest { snapshot, catalogs, options, shared_lists } = request;
    let what_if = WhatIfRequest { snapshot, catalogs, options, suppositions, shared_lists };
    let near = crate::answer::what_if(&what_if).unwrap();
    assert_eq!(running.open.what_if(what_if).await.unwrap().into_inner(), near);
}

#[tokio::test]
async fn the_open_port_rejects_sessions() {
    let mut running = start(|_| ());
    let (_asks, receiver) = mpsc::channel(1);
    let refused = running.open.session(ReceiverStream::new(receiver)).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn invalid_requests_are_rejected_with_the_path() {
    let mut running = start(|_| ());
    let mut bad = plan_request(1);
    bad.snapshot.as_mut().unwrap().pods[0].shape = "x".into();
    let refused = running.open.plan(bad).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, "snapshot.pods[0].shape: no shape \"x\""));
    let violations = refused.get_details_bad_request().unwrap().field_violations;
    assert_eq!(violations[0].field, "snapshot.pods[0].shape");
}

#[tokio::test]
async fn a_too_large_message_is_rejected_and_the_next_is_answered() {
    let mut running = start(|_| ());
    let mut large = plan_request(1);
    large.snapshot.as_mut().unwrap().pods[0].name = "x".repeat(MAX_REQUEST_BYTES);
    let refused = running.open.plan(large).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "{refused:?}");
    assert!(running.open.plan(plan_request(1)).await.is_ok());
}

#[tokio::test]
async fn a_too_large_response_is_refused_with_the_limit_and_what_to_do() {
    let mut running = start(|_| ());
    let mut request = plan_request(1);
    // The plan contains the name of the pod.
    request.snapshot.as_mut().unwrap().pods[0].name = "x".repeat(MAX_ENCODING_BYTES);
    let refused = running.open.plan(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "{refused:?}");
    let text = "bytes, more than the limit of 16777216: set shared_lists in the request if it is not set, or ask for \
                fewer pods at once";
    assert!(refused.message().starts_with("the response takes ") && refused.message().ends_with(text), "{refused:?}");
}

#[tokio::test]
async fn a_request_that_is_large_only_when_decoded_is_rejected() {
    let running = start(|_| ());
    // Snapshots of 63 pods, all of them empty, as one message of 2 MiB. All bytes are ASCII.
    let snapshot = format!("\x0a\x7e{}", "*\0".repeat(63));
    let body = format!("\0\0\x20\0\0{}", snapshot.repeat((2 << 20) / snapshot.len()));
    let uri = "http://memory.test/plimsoll.scheduler.v1.SchedulerService/Plan";
    let request = http::Request::post(uri).header("content-type", "application/grpc");
    let response = running.open_channel.oneshot(request.body(tonic::body::Body::new(body)).unwrap()).await.unwrap();
    let status = Status::from_header_map(response.headers()).unwrap();
    assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
}

/// Sends the bytes of a message as they are.
struct Raw;

impl Encoder for Raw {
    type Item = String;
    type Error = Status;

    fn encode(&mut self, message: String, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(message.as_bytes());
        Ok(())
    }
}

#[tokio::test]
async fn the_requests_on_the_open_port_share_a_bound_of_memory() {
    let running = start(|_| ());
    // 600,000 snapshots, all of them empty: by the estimate 190 MiB, and next to nothing, since they are merged.
    let ask = |goes_on: bool| {
        let message = futures::stream::iter([Ok::<_, Status>("\x0a\0".repeat(600_000))]);
        let rest = futures::stream::pending().take_until(async move {
            if goes_on {
                std::future::pending::<()>().await;
            }
        });
        let body = tonic::body::Body::new(EncodeBody::new_client(Raw, message.chain(rest), None, None));
        let uri = "http://memory.test/plimsoll.scheduler.v1.SchedulerService/Plan";
        let request = http::Request::post(uri).header("content-type", "application/grpc").body(body).unwrap();
        let answer = running.open_channel.clone().oneshot(request);
        Box::pin(async move { Status::from_header_map(answer.await.unwrap().headers()).map(|status| status.code()) })
    };
    // Only a refused call has an answer, since the requests do not end.
    let (code, _, others) = futures::future::select_all((0..3).map(|_| ask(true))).await;
    assert_eq!(code, Some(Code::ResourceExhausted));
    drop(others);
    // The server notices the end with the next frames, within milliseconds.
    let given_back = async { while ask(false).await == Some(Code::ResourceExhausted) {} };
    tokio::time::timeout(Duration::from_secs(60), given_back).await.unwrap();
}

#[tokio::test]
async fn outside_callers_are_limited_while_sessions_have_capacity() {
    let running = start(|settings| {
        settings.workers = Bounds { running: 2, outside_running: 1, outside_waiting: 1 };
    });
    let mut client = SessionClient::open(&running.closed, "one").await;
    client.send(Ask::Catalog((&catalog()).into())).await;
    let requests = (0..60).map(|_| {
        let mut client = running.closed.clone();
        tokio::spawn(async move { client.plan(plan_request(3000)).await })
    });
    let requests: Vec<_> = requests.collect();
    for chunk in chunks(&waiting(3), 100) {
        client.send(Ask::SnapshotChunk(chunk)).await;
    }
    assert_eq!(client.plan(1).await.launches.len(), 1);
    let mut refused = 0_usize;
    for ask in requests {
        if let Err(status) = ask.await.unwrap() {
            assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
            assert!(status.get_details_retry_info().is_some());
            refused += 1;
        }
    }
    assert!((1..60).contains(&refused), "{refused}");
    assert!(running.metrics.encode().unwrap().contains(&format!("outside_refused_total {refused}\n")));
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_sessions_and_the_service() {
    let running = start(|_| ());
    let mut client = SessionClient::open(&running.closed, "one").await;
    running.shutdown.start();
    assert_eq!(client.receive().await.unwrap_err().code(), Code::Unavailable);
    drop(client);
    running.serving.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_session_without_hello_times_out() {
    let mut running = start(|_| ());
    let (_asks, receiver) = mpsc::channel(1);
    let mut answers = running.closed.session(ReceiverStream::new(receiver)).await.unwrap().into_inner();
    let began = tokio::time::Instant::now();
    assert_eq!(answers.message().await.unwrap_err().code(), Code::DeadlineExceeded);
    assert_eq!(began.elapsed().as_secs(), Duration::from_secs(10).as_secs());
}

#[tokio::test(start_paused = true)]
async fn ending_a_session_releases_its_permit() {
    let running = start(|_| ());
    let talks =
        futures::future::join_all((0..crate::server::MAX_SESSIONS).map(|_| SessionClient::open(&running.closed, "x")));
    let mut talks = talks.await;
    let (_asks, receiver) = mpsc::channel(1);
    let refused = running.closed.clone().session(ReceiverStream::new(receiver)).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    talks.pop();
    // The server notices the end with the next frames.
    while running.metrics.encode().unwrap().contains("plimsoll_scheduler_sessions 64\n") {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    SessionClient::open(&running.closed, "x").await;
}
