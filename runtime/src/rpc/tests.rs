use super::*;
use crate::{memory, serve::GrpcServer};
use std::sync::atomic::{AtomicBool, Ordering};
use tokio_util::sync::CancellationToken;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tower::ServiceExt;

#[tokio::test]
async fn calls_beyond_the_bound_are_refused_but_never_those_about_health() {
    let metrics = Metrics::new("test");
    let layer = RpcLayer::new(Some(RpcMetrics::new(&metrics).unwrap()), &["test.Service"], Some(1), None);
    let first_only = AtomicBool::new(true);
    let service = tower::service_fn(move |_: Request<Body>| {
        let answers = first_only.swap(false, Ordering::Relaxed);
        async move {
            if !answers {
                std::future::pending::<()>().await;
            }
            Ok::<_, Status>(Response::new(Body::empty()))
        }
    });
    let mut service = layer.layer(service);
    let ask = |path: &str| Request::post(path).body(Body::empty()).unwrap();
    drop(service.call(ask("/test.Service/Plan")).await.unwrap());
    let first = service.call(ask("/test.Service/Plan"));
    let refused = service.call(ask("/test.Service/Plan")).await.unwrap();
    assert_eq!(Status::from_header_map(refused.headers()).unwrap().code(), Code::ResourceExhausted);
    let invented = service.call(ask("/test.Service/Invented")).await.unwrap();
    assert_eq!(Status::from_header_map(invented.headers()).unwrap().code(), Code::ResourceExhausted);
    drop(invented);
    let mut health = service.call(ask("/grpc.health.v1.Health/Check"));
    assert!(futures::poll!(&mut health).is_pending());
    drop(first);
    let mut next = service.call(ask("/test.Service/Plan"));
    assert!(futures::poll!(&mut next).is_pending());
    let text = metrics.encode().unwrap();
    for method in ["Plan", "other"] {
        let line = format!("code=\"RESOURCE_EXHAUSTED\",method=\"{method}\",service=\"test.Service\"}} 1\n");
        assert!(text.contains(&line), "{text}");
    }
    assert!(!text.contains("Invented"), "{text}");
}

/// A request body that never comes.
struct Silent;

impl http_body::Body for Silent {
    type Data = bytes::Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Poll::Pending
    }
}

#[tokio::test(start_paused = true)]
async fn a_bounded_call_without_its_request_ends_and_leaves_its_place() {
    let layer = RpcLayer::new(None, &["test.Service"], Some(1), None);
    let mut service = layer.layer(tower::service_fn(|request: Request<Body>| async {
        let mut body = request.into_body();
        let frame = std::future::poll_fn(|context| http_body::Body::poll_frame(Pin::new(&mut body), context)).await;
        Ok::<_, Status>(frame.and_then(Result::err).map_or_else(|| Response::new(Body::empty()), Status::into_http))
    }));
    let silent = || Request::post("/test.Service/Plan").body(Body::new(Silent)).unwrap();
    let began = Instant::now();
    let code = |response: &Response<Body>| Status::from_header_map(response.headers()).map(|status| status.code());
    let call = service.call(silent());
    assert_eq!(code(&service.call(silent()).await.unwrap()), Some(Code::ResourceExhausted));
    assert_eq!(code(&call.await.unwrap()), Some(Code::DeadlineExceeded));
    assert_eq!(began.elapsed().as_secs(), REQUEST_TIMEOUT.as_secs());
    let ask = Request::post("/test.Service/Plan").body(Body::empty()).unwrap();
    assert_eq!(code(&service.call(ask).await.unwrap()), None);
}

/// An inspection by which a request takes as much memory as it has bytes.
fn inspect(_: &str) -> Option<crate::request_body::Inspect> {
    let mut size = 0;
    Some(Box::new(move |bytes: &[u8]| {
        size += bytes.len();
        Ok(size)
    }))
}

#[tokio::test]
async fn open_calls_share_a_bound_of_memory() {
    let layer = RpcLayer::new(None, &["test.Service"], None, Some(inspect)).with_max_memory(Some(100));
    let mut service = layer.layer(tower::service_fn(|request: Request<Body>| async {
        let mut body = request.into_body();
        let frame = std::future::poll_fn(|context| http_body::Body::poll_frame(Pin::new(&mut body), context)).await;
        Ok::<_, Status>(
            frame
                .and_then(Result::err)
                .map_or_else(|| Response::new(Body::new("answer".to_owned())), Status::into_http),
        )
    }));
    let ask = |bytes: usize| Request::post("/test.Service/Plan").body(Body::new("x".repeat(bytes))).unwrap();
    let code = |response: &Response<Body>| Status::from_header_map(response.headers()).map(|status| status.code());
    let (first, second) = (service.call(ask(60)).await.unwrap(), service.call(ask(40)).await.unwrap());
    assert_eq!((code(&first), code(&second)), (None, None));
    assert_eq!(code(&service.call(ask(1)).await.unwrap()), Some(Code::ResourceExhausted));
    drop(second);
    assert_eq!(code(&service.call(ask(41)).await.unwrap()), Some(Code::ResourceExhausted));
    for _ in 0..2 {
        assert_eq!(code(&service.call(ask(40)).await.unwrap()), None, "what ended calls had is free");
    }
}

#[tokio::test]
async fn work_that_outlives_its_call_keeps_its_memory() {
    let layer = RpcLayer::new(None, &["test.Service"], None, Some(inspect)).with_max_memory(Some(100));
    let kept: Arc<Mutex<Option<Arc<MemoryShare>>>> = Arc::default();
    let keep = Arc::clone(&kept);
    let mut service = layer.layer(tower::service_fn(move |request: Request<Body>| {
        if keep.lock().is_none() {
            *keep.lock() = request.extensions().get::<Arc<MemoryShare>>().cloned();
        }
        async {
            let mut body = request.into_body();
            let frame = std::future::poll_fn(|context| http_body::Body::poll_frame(Pin::new(&mut body), context)).await;
            Ok::<_, Status>(frame.and_then(Result::err).map_or_else(|| Response::new(Body::empty()), Status::into_http))
        }
    }));
    let ask = |bytes: usize| Request::post("/test.Service/Plan").body(Body::new("x".repeat(bytes))).unwrap();
    let code = |response: &Response<Body>| Status::from_header_map(response.headers()).map(|status| status.code());
    assert_eq!(code(&service.call(ask(60)).await.unwrap()), None);
    assert_eq!(code(&service.call(ask(41)).await.unwrap()), Some(Code::ResourceExhausted));
    *kept.lock() = None;
    assert_eq!(code(&service.call(ask(41)).await.unwrap()), None);
}

async fn until(metrics: &Metrics, line: &str) {
    // The server counts the end of a call a moment after the client sees it.
    for _ in 0..1000 {
        if metrics.encode().unwrap().contains(line) {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("no {line} in {}", metrics.encode().unwrap());
}

#[tokio::test]
async fn calls_are_counted_by_code_and_invented_names_are_not_labels() {
    let metrics = Metrics::new("test");
    let (dialer, listener) = memory::pair();
    let server = GrpcServer::default().with_metrics(RpcMetrics::new(&metrics).unwrap());
    tokio::spawn(server.serve_incoming(listener, CancellationToken::new()));
    let channel = dialer.channel();
    let mut client = HealthClient::new(channel.clone());
    let ask = |service: &str| HealthCheckRequest { service: service.to_owned() };
    client.check(ask("")).await.unwrap();
    assert_eq!(client.check(ask("nobody")).await.unwrap_err().code(), Code::NotFound);
    let watch = client.watch(ask("")).await.unwrap();

    let health = "service=\"grpc.health.v1.Health\"";
    until(&metrics, &format!("{{code=\"OK\",method=\"Check\",{health}}} 1\n")).await;
    until(&metrics, &format!("{{code=\"NOT_FOUND\",method=\"Check\",{health}}} 1\n")).await;
    until(&metrics, &format!("plimsoll_test_rpcs_open{{{health}}} 1\n")).await;
    drop(watch);
    until(&metrics, &format!("{{code=\"CANCELLED\",method=\"Watch\",{health}}} 1\n")).await;

    let made_up = Request::post("http://memory.test/made.up.Service/Name").header("content-type", "application/grpc");
    channel.oneshot(made_up.body(Body::empty()).unwrap()).await.unwrap();
    until(&metrics, "{code=\"UNIMPLEMENTED\",method=\"other\",service=\"other\"} 1\n").await;
}
