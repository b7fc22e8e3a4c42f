//! The admin ports: `/livez` and `/readyz` for the kubelet, `/metrics` and `/log-level` for users and Prometheus.
//!
//! Liveness only means that the process responds. It never depends on a peer; otherwise one broken service would
//! restart others.

use std::{collections::BTreeMap, convert::Infallible, future::IntoFuture, io, sync::Arc};

use axum::{
    Router,
    body::Body,
    extract::{ConnectInfo, DefaultBodyLimit, State},
    http::{
        HeaderMap, StatusCode,
        header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE},
    },
    response::IntoResponse,
    routing::get,
};
use bytes::Bytes;
use futures::stream;
use parking_lot::Mutex;
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_util::sync::CancellationToken;

use crate::{
    metrics::{Metrics, scrape::Part},
    telemetry::LogLevel,
};
use bounded::{BoundedListener, Caller};

mod bounded;

/// Maximum body size of `PUT /log-level`, in bytes; a filter is one line.
const MAX_LEVEL_BYTES: usize = 4096;

/// Maximum number of concurrent scrapes: two replicas of Prometheus, and as many other readers. Metrics are computed
/// one scrape at a time, so that more would only occupy threads.
const MAX_SCRAPES: usize = 4;

/// Whether the process can accept work: ready after every handle has been released, until the drain begins.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    state: Arc<Mutex<ReadinessState>>,
}

#[derive(Debug, Default)]
struct ReadinessState {
    /// Number of unreleased handles by name.
    held: BTreeMap<&'static str, usize>,
    draining: bool,
}

/// One condition of readiness, such as "pods listed". If it is dropped without [`ReadinessHandle::release`], the
/// process never becomes ready, because no task is left to fulfil the condition.
#[derive(Debug)]
#[must_use = "the process is not ready until this is released"]
pub struct ReadinessHandle {
    name: &'static str,
    state: Arc<Mutex<ReadinessState>>,
}

impl Readiness {
    /// Adds a condition. Create all handles before the first is released; otherwise the process is ready in between.
    pub fn handle(&self, name: &'static str) -> ReadinessHandle {
        *self.state.lock().held.entry(name).or_default() += 1;
        ReadinessHandle { name, state: Arc::clone(&self.state) }
    }

    /// Marks the process as not ready from now on, because it is stopping.
    pub fn drain(&self) {
        self.state.lock().draining = true;
    }

    /// Whether no condition is outstanding.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.waiting_for().is_empty()
    }

    /// Outstanding conditions, sorted by name.
    #[must_use]
    pub fn waiting_for(&self) -> Vec<&'static str> {
        let state = self.state.lock();
        let mut names: Vec<_> = state.held.keys().copied().collect();
        if state.draining {
            names.push("shutdown");
        }
        names
    }
}

impl ReadinessHandle {
    /// Marks the condition as fulfilled.
    pub fn release(self) {
        let mut state = self.state.lock();
        if let Some(count) = state.held.get_mut(self.name) {
            *count -= 1;
            if *count == 0 {
                state.held.remove(self.name);
            }
        }
    }
}

/// Routes `/livez` and `/readyz`.
pub fn health_router(readiness: Readiness) -> Router {
    Router::new().route("/livez", get(|| async { "ok\n" })).route("/readyz", get(readyz)).with_state(readiness)
}

/// Routes `/metrics` and `/log-level`. GET shows the directives. PUT replaces them, but only from this machine or
/// through a port-forward.
pub fn metrics_router(metrics: Metrics, level: LogLevel) -> Router {
    let scrapes = Arc::new(Semaphore::new(MAX_SCRAPES));
    let metrics = Router::new().route("/metrics", get(text)).with_state((metrics, scrapes));
    let level = Router::new()
        .route("/log-level", get(show_level).put(set_level))
        .layer(DefaultBodyLimit::max(MAX_LEVEL_BYTES))
        .with_state(level);
    metrics.merge(level)
}

/// Serves a router over plain HTTP until `stop`, with bounded connections. This is not the token of the drain: probes
/// are answered during the drain.
///
/// # Errors
/// If the listener fails.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) -> io::Result<()> {
    // No graceful shutdown of axum, because no response here is worth a delay.
    let listener = BoundedListener::new(listener);
    tokio::select! {
        result = axum::serve(listener, router.into_make_service_with_connect_info::<Caller>()).into_future() => result,
        () = stop.cancelled_owned() => Ok(()),
    }
}

async fn readyz(State(readiness): State<Readiness>) -> (StatusCode, String) {
    let waiting = readiness.waiting_for();
    if waiting.is_empty() {
        return (StatusCode::OK, "ok\n".to_owned());
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("waiting for: {}\n", waiting.join(", ")))
}

async fn text(State((metrics, scrapes)): State<(Metrics, Arc<Semaphore>)>, request: HeaderMap) -> impl IntoResponse {
    let Ok(permit) = scrapes.try_acquire_owned() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many scrapes at once\n").into_response();
    };
    let encode = move || {
        // Held by the thread: it goes on if the caller goes away.
        let _permit = permit;
        metrics.encode_parts()
    };
    // At 100,000 pods this takes a large part of a second, so it does not run on a thread that serves other tasks.
    let parts = tokio::task::spawn_blocking(encode).await;
    let parts = parts.map_err(|error| error.to_string());
    match parts.and_then(|parts| parts.map_err(|error| error.to_string())) {
        Ok(parts) => {
            let gzip = accepts_gzip(&request);
            let size = if gzip { Part::gzip_bytes } else { Part::text_bytes };
            let bytes: usize = parts.iter().map(size).sum();
            let encoding = gzip.then_some([(CONTENT_ENCODING, "gzip")]);
            let headers = [(CONTENT_TYPE, prometheus::TEXT_FORMAT.to_owned()), (CONTENT_LENGTH, bytes.to_string())];
            // Each part is freed once it is sent. A text is uncompressed only then.
            let sent = move |part: Part| if gzip { Bytes::from(part.into_gzip()) } else { Bytes::from(part.text()) };
            let parts = parts.into_iter().map(move |part| Ok::<_, Infallible>(sent(part)));
            (encoding, headers, Body::from_stream(stream::iter(parts))).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

/// Whether the caller reads gzip, as Prometheus does.
fn accepts_gzip(request: &HeaderMap) -> bool {
    let lists = request.get_all(ACCEPT_ENCODING).iter().filter_map(|list| list.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|coding| {
        let mut words = coding.split(';').map(str::trim);
        let is_gzip = words.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        // A weight of 0, such as `q=0.0`, is a refusal.
        let is_zero = |weight: &str| weight.trim_matches(['0', '.']).is_empty();
        is_gzip && !words.any(|word| word.strip_prefix("q=").is_some_and(is_zero))
    })
}

async fn show_level(State(level): State<LogLevel>) -> String {
    format!("{}\n", level.current().unwrap_or_default())
}

async fn set_level(
    State(level): State<LogLevel>,
    ConnectInfo(Caller(peer)): ConnectInfo<Caller>,
    directives: String,
) -> (StatusCode, String) {
    // Anyone may scrape the port, but only local callers may change the level.
    if !peer.ip().is_loopback() {
        return (StatusCode::FORBIDDEN, "only from loopback, for example by a port-forward\n".to_owned());
    }
    match level.set(directives.trim()) {
        Ok(()) => (StatusCode::OK, format!("{}\n", directives.trim())),
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::scrape::Labels;
    use crate::telemetry::{LogFormat, subscriber};
    use axum::http::{HeaderName, Request};
    use flate2::read::MultiGzDecoder;
    use futures::FutureExt;
    use std::io::Read as _;
    use std::net::SocketAddr;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
    };
    use tower::ServiceExt;

    async fn ask(router: &Router, method: &str, path: &str, body: &str, peer: &str) -> (u16, String) {
        let peer: SocketAddr = peer.parse().unwrap();
        let request = Request::builder().method(method).uri(path).extension(ConnectInfo(Caller(peer)));
        let request = request.body(Body::from(body.to_owned()));
        let response = router.clone().oneshot(request.unwrap()).await.unwrap();
        let status = response.status().as_u16();
        let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn ready_when_every_handle_is_released() {
        let readiness = Readiness::default();
        let router = health_router(readiness.clone());
        let (pods, nodes) = (readiness.handle("pods"), readiness.handle("nodes"));
        let second_pods = readiness.handle("pods");
        assert_eq!(ask(&router, "GET", "/livez", "", "127.0.0.1:1").await.0, 200);
        let waiting = ask(&router, "GET", "/readyz", "", "127.0.0.1:1").await;
        assert_eq!(waiting, (503, "waiting for: nodes, pods\n".to_owned()));

        nodes.release();
        pods.release();
        assert_eq!(readiness.waiting_for(), ["pods"]);
        second_pods.release();
        assert_eq!(ask(&router, "GET", "/readyz", "", "127.0.0.1:1").await.0, 200);

        drop(readiness.handle("catalog"));
        assert!(!readiness.is_ready(), "a dropped handle does not make the process ready");
    }

    #[tokio::test]
    async fn not_ready_while_draining() {
        let readiness = Readiness::default();
        assert!(readiness.is_ready());
        readiness.drain();
        assert_eq!(readiness.waiting_for(), ["shutdown"]);
    }

    #[tokio::test]
    async fn metrics_and_log_level() {
        let (_subscriber, level) = subscriber(LogFormat::Text, "warn", io::sink).unwrap();
        let metrics = Metrics::new("actuator");
        metrics.gauge("claims", "Claims.").unwrap().set(4);
        let router = metrics_router(metrics, level.clone());
        let local = "127.0.0.1:1";
        assert!(ask(&router, "GET", "/metrics", "", local).await.1.contains("plimsoll_actuator_claims 4\n"));
        assert_eq!(ask(&router, "GET", "/log-level", "", local).await.1, "warn\n");
        assert_eq!(ask(&router, "PUT", "/log-level", "debug", "10.0.0.9:1").await.0, 403);
        assert_eq!(ask(&router, "PUT", "/log-level", "x=noise", local).await.0, 400);
        assert_eq!(level.current().as_deref(), Some("warn"));
        assert_eq!(ask(&router, "PUT", "/log-level", "debug\n", local).await.0, 200);
        assert_eq!(level.current().as_deref(), Some("debug"));
    }

    #[tokio::test]
    async fn a_scrape_is_compressed_for_callers_who_read_gzip() {
        let (_subscriber, level) = subscriber(LogFormat::Text, "warn", io::sink).unwrap();
        let metrics = Metrics::new("actuator");
        let pods = metrics.scraped("pods", "Pods.", &["name"]).unwrap();
        metrics.add_source(move |samples| {
            (0..10_000).for_each(|name| samples.put(&pods, &Labels::of(&[("name", &format!("{name}"))]), 1.0));
        });
        let expected = metrics.encode().unwrap();
        assert_eq!(expected.lines().count(), 10_002);
        let router = metrics_router(metrics, level);
        let scrape = async |accepted: &str| {
            let request = Request::builder().uri("/metrics").header(ACCEPT_ENCODING, accepted);
            let response = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
            let header = |name: HeaderName| Some(response.headers().get(name)?.to_str().unwrap().to_owned());
            let (encoding, length) = (header(CONTENT_ENCODING), header(CONTENT_LENGTH).unwrap());
            let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
            assert_eq!(length, body.len().to_string());
            (encoding, body)
        };
        for accepted in ["gzip", "deflate, GZIP;q=0.5"] {
            let (encoding, body) = scrape(accepted).await;
            assert_eq!(encoding.as_deref(), Some("gzip"), "{accepted}");
            assert!(body.len() < expected.len() / 5, "{} of {}", body.len(), expected.len());
            let mut text = String::new();
            MultiGzDecoder::new(&body[..]).read_to_string(&mut text).unwrap();
            assert!(text == expected, "{accepted}");
        }
        for accepted in ["identity", "gzip;q=0, deflate", "gzip; q=0.0"] {
            let (encoding, body) = scrape(accepted).await;
            assert!(encoding.is_none() && body == expected.as_bytes(), "{accepted}");
        }
    }

    #[tokio::test]
    async fn a_probe_is_answered_although_somebody_holds_many_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, health_router(Readiness::default()), CancellationToken::new()));
        let mut connections = Vec::new();
        for _ in 0..bounded::MAX_CONNECTIONS {
            connections.push(TcpStream::connect(address).await.unwrap());
        }
        let mut probe = TcpStream::connect(address).await.unwrap();
        let mut answer = [0; 12];
        probe.write_all(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        probe.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        assert_eq!(connections[0].read(&mut [0; 1]).await.unwrap_or(0), 0, "the oldest one is closed");
    }

    #[tokio::test]
    async fn concurrent_scrapes_are_bounded_also_after_their_callers_have_gone() {
        let (_subscriber, level) = subscriber(LogFormat::Text, "warn", io::sink).unwrap();
        let metrics = Metrics::new("actuator");
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let held = Mutex::new(held);
        metrics.add_source(move |_| {
            let _ended = held.lock().recv();
        });
        let router = metrics_router(metrics, level);
        let scrape = || Box::pin(ask(&router, "GET", "/metrics", "", "127.0.0.1:1"));
        let mut scrapes: Vec<_> = (0..MAX_SCRAPES).map(|_| scrape()).collect();
        for scrape in &mut scrapes {
            assert!(futures::poll!(scrape).is_pending());
        }
        assert_eq!(scrape().now_or_never().unwrap().0, 503);
        scrapes.pop();
        assert_eq!(scrape().now_or_never().unwrap().0, 503);
        drop(hold);
        for scrape in scrapes {
            assert_eq!(scrape.await.0, 200);
        }
    }
}
