use super::*;
use crate::connection_age::{ANSWER_TIMEOUT, PREFACE_TIMEOUT};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedSender;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tower::ServiceExt;

/// An in-memory server, a client, and the result of the server.
fn in_memory(shutdown: CancellationToken) -> (HealthClient<Channel>, tokio::task::JoinHandle<Result<(), ServeError>>) {
    let (client, _, serving) = counted(GrpcServer::default(), shutdown);
    (client, serving)
}

/// As [`in_memory`], with the number of connections.
fn counted(
    server: GrpcServer,
    shutdown: CancellationToken,
) -> (HealthClient<Channel>, Arc<AtomicUsize>, tokio::task::JoinHandle<Result<(), ServeError>>) {
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel::<io::Result<Connection>>();
    let incoming = stream::unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) })
        .chain(stream::pending());
    let serving = tokio::spawn(server.serve_incoming(incoming, shutdown));
    let connector = tower::service_fn(move |_: http::Uri| {
        count.fetch_add(1, Ordering::Relaxed);
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let sent = sender.send(Ok(Connection::Memory(theirs, None))).map_err(io::Error::other);
        async move { sent.map(|()| TokioIo::new(ours)) }
    });
    let channel = Endpoint::from_static("http://memory.test").connect_with_connector_lazy(connector);
    (HealthClient::new(channel), connections, serving)
}

/// A server with only the health service. Connections are sent to it.
fn listening() -> UnboundedSender<io::Result<Connection>> {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel::<io::Result<Connection>>();
    let incoming = stream::unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) })
        .chain(stream::pending());
    tokio::spawn(GrpcServer::default().serve_incoming(incoming, CancellationToken::new()));
    sender
}

/// A new connection to the server.
fn connect(server: &UnboundedSender<io::Result<Connection>>) -> DuplexStream {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    server.send(Ok(Connection::Memory(theirs, None))).unwrap();
    ours
}

fn whole_server() -> HealthCheckRequest {
    HealthCheckRequest { service: String::new() }
}

#[tokio::test(start_paused = true)]
async fn not_serving_is_said_before_the_end_and_the_end_is_bounded() {
    let shutdown = CancellationToken::new();
    let (mut client, serving) = in_memory(shutdown.clone());
    let mut changes = client.watch(whole_server()).await.unwrap().into_inner();
    let status = |message: Option<tonic_health::pb::HealthCheckResponse>| message.unwrap().status();
    use tonic_health::pb::health_check_response::ServingStatus as Wire;
    assert_eq!(status(changes.message().await.unwrap()), Wire::Serving);

    let began = tokio::time::Instant::now();
    shutdown.cancel();
    assert_eq!(status(changes.message().await.unwrap()), Wire::NotServing);
    assert!(began.elapsed() < DRAIN_NOTICE, "said while the port is still open");
    // The watch call never ends on its own.
    serving.await.unwrap().unwrap();
    assert_eq!(began.elapsed().as_millis() / 100, (DRAIN_NOTICE + DRAIN_GRACE).as_millis() / 100);
}

#[tokio::test(start_paused = true)]
async fn without_calls_the_end_comes_at_once() {
    let shutdown = CancellationToken::new();
    let (mut client, serving) = in_memory(shutdown.clone());
    client.check(whole_server()).await.unwrap();
    let began = tokio::time::Instant::now();
    shutdown.cancel();
    serving.await.unwrap().unwrap();
    assert!(began.elapsed() < DRAIN_NOTICE + Duration::from_secs(1));
    assert!(client.check(whole_server()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn an_old_connection_takes_no_calls_and_its_last_call_ends_after_the_grace_period() {
    let server = GrpcServer::default().with_max_calls(1);
    let health = server.health();
    let (mut client, connections, _serving) = counted(server, CancellationToken::new());
    let began = tokio::time::Instant::now();
    let mut changes = client.watch(whole_server()).await.unwrap().into_inner();
    changes.message().await.unwrap().unwrap();
    client.check(whole_server()).await.unwrap();
    assert_eq!(connections.load(Ordering::Relaxed), 1);

    let age = MAX_CONNECTION_AGE + Duration::from_secs(1);
    tokio::time::timeout(age, changes.message()).await.unwrap_err();
    let unsent = client.check(whole_server()).await.unwrap_err();
    assert_eq!(unsent.code(), tonic::Code::Cancelled, "hyper's client notices only now: {unsent}");
    client.check(whole_server()).await.unwrap();
    assert_eq!(connections.load(Ordering::Relaxed), 2, "a new call has a new connection");
    health.set_service_status("", ServingStatus::NotServing).await;
    assert!(changes.message().await.unwrap().is_some(), "the call of the old connection goes on");

    assert!(changes.message().await.is_err());
    assert_eq!(began.elapsed().as_secs(), (MAX_CONNECTION_AGE + MAX_CONNECTION_AGE_GRACE).as_secs());
}

/// A service whose answers are larger than what a client receives before it reads.
#[derive(Clone)]
struct Large;

impl NamedService for Large {
    const NAME: &'static str = "test.Large";
}

impl Service<http::Request<Body>> for Large {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<Body>) -> Self::Future {
        let parts = (0..16).map(|_| Ok::<_, Infallible>(bytes::Bytes::from(vec![0; 1 << 20])));
        let body = axum::body::Body::from_stream(stream::iter(parts));
        std::future::ready(Ok(http::Response::new(Body::new(body))))
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_read_holds_its_place_for_a_minute_at_most() {
    let (dialer, listener) = crate::memory::pair();
    let server = GrpcServer::default().add_service(Large).with_max_calls(1);
    tokio::spawn(server.serve_incoming(listener, CancellationToken::new()));
    let channel = dialer.channel();
    let ask = || http::Request::post("http://memory.test/test.Large/Get").body(Body::empty()).unwrap();
    let refusal = |answer: &http::Response<Body>| tonic::Status::from_header_map(answer.headers()).map(|it| it.code());
    let began = tokio::time::Instant::now();
    let unread = channel.clone().oneshot(ask()).await.unwrap();
    assert_eq!(refusal(&unread), None);
    let second = channel.clone().oneshot(ask()).await.unwrap();
    assert_eq!(refusal(&second), Some(tonic::Code::ResourceExhausted));
    // The first call on a connection that has just ended may fail.
    while !channel.clone().oneshot(ask()).await.is_ok_and(|answer| refusal(&answer).is_none()) {
        assert!(began.elapsed() < 2 * ANSWER_TIMEOUT, "it still has its place");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(began.elapsed() >= ANSWER_TIMEOUT, "{:?}", began.elapsed());
    drop(unread);
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_preface_is_closed() {
    let server = listening();
    for sent in [&PREFACE[..0], &PREFACE[..10]] {
        let mut connection = connect(&server);
        let began = tokio::time::Instant::now();
        connection.write_all(sent).await.unwrap();
        let _end = connection.read_to_end(&mut Vec::new()).await;
        assert_eq!(began.elapsed().as_secs(), PREFACE_TIMEOUT.as_secs());
    }
}

#[tokio::test(start_paused = true)]
async fn connections_are_bounded() {
    let server = listening();
    let mut others = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        let mut connection = connect(&server);
        connection.write_all(PREFACE).await.unwrap();
        others.push(connection);
    }
    let connector = tower::service_fn(move |_: http::Uri| {
        let ours = connect(&server);
        async move { Ok::<_, io::Error>(TokioIo::new(ours)) }
    });
    let channel = Endpoint::from_static("http://memory.test").connect_with_connector_lazy(connector);
    let mut client = HealthClient::new(channel);
    let check = client.check(whole_server());
    tokio::pin!(check);
    tokio::time::timeout(Duration::from_secs(1), check.as_mut()).await.unwrap_err();
    drop(others.pop());
    tokio::time::timeout(Duration::from_secs(1), check).await.unwrap().unwrap();
}

#[tokio::test]
async fn connections_of_an_open_port_are_bounded_by_peer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(GrpcServer::default().serve_on(Listener::Open(listener), CancellationToken::new()));
    let mut connections = Vec::new();
    for _ in 0..MAX_CONNECTIONS_PER_PEER {
        connections.push(TcpStream::connect(address).await.unwrap());
    }
    let mut refused = TcpStream::connect(address).await.unwrap();
    assert_eq!(refused.read(&mut [0; 1]).await.unwrap_or(0), 0, "closed at once");
    drop(connections);
    // The server notices the end of the others soon.
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy();
    let mut client = HealthClient::new(channel);
    let served = async {
        while client.check(whole_server()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), served).await.unwrap();
}
