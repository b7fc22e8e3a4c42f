//! Layer of every gRPC server: counts calls (by method and code, duration, open calls), rejects calls above a limit,
//! and bounds their requests and how long their answers may stay unread.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{HeaderMap, Request, Response};
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use prometheus::{HistogramVec, IntCounterVec, IntGaugeVec};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};
use tokio_util::sync::DropGuard;
use tonic::{Code, Status, body::Body};
use tower::{Layer, Service};

use crate::{
    connection_age::ConnectionHandle,
    metrics::{Metrics, MetricsError},
    request_body::{InspectRequest, MemoryBudget, MemoryShare, REQUEST_TIMEOUT, bounded},
};

/// The health service of every port.
const HEALTH_SERVICE: &str = "grpc.health.v1.Health";

/// Label of unknown services and methods: callers must not be able to create label values.
const OTHER: &str = "other";

/// The metrics of all gRPC ports of a process. Clones share them.
#[derive(Clone, Debug)]
pub struct RpcMetrics {
    calls: IntCounterVec,
    seconds: HistogramVec,
    open: IntGaugeVec,
    /// Methods that a service has answered, by service. Other names may be invented by callers.
    methods: Arc<Mutex<BTreeMap<&'static str, BTreeSet<String>>>>,
}

impl RpcMetrics {
    /// Registers the metrics, once per process.
    ///
    /// # Errors
    /// If they are registered already.
    pub fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        Ok(Self {
            calls: metrics.counters("rpcs_total", "Calls that ended, by code.", &["service", "method", "code"])?,
            seconds: metrics.latencies(
                "rpc_seconds",
                "Time from a call's headers to its end; a stream lasts as long as it is open.",
                &["service", "method"],
            )?,
            open: metrics.gauges("rpcs_open", "Calls that have not ended.", &["service"])?,
            methods: Arc::default(),
        })
    }
}

/// Counts and limits the calls of a server.
#[derive(Clone, Debug)]
pub(crate) struct RpcLayer {
    metrics: Option<RpcMetrics>,
    /// Excludes the health service, which is counted but never rejected.
    services: Arc<[&'static str]>,
    calls: Option<Arc<Semaphore>>,
    inspect: Option<InspectRequest>,
    memory: Option<MemoryBudget>,
}

impl RpcLayer {
    /// For a server with these services; at most `max_calls` of their calls may be open.
    pub(crate) fn new(
        metrics: Option<RpcMetrics>,
        services: &[&'static str],
        max_calls: Option<usize>,
        inspect: Option<InspectRequest>,
    ) -> Self {
        let calls = max_calls.map(|calls| Arc::new(Semaphore::new(calls.min(Semaphore::MAX_PERMITS))));
        Self { metrics, services: services.into(), calls, inspect, memory: None }
    }

    /// The inspected requests of open calls may take this much memory together.
    pub(crate) fn with_max_memory(self, bytes: Option<usize>) -> Self {
        Self { memory: bytes.map(MemoryBudget::new), ..self }
    }

    /// Starts the call, or fails if too many are open.
    fn begin(&self, path: &str) -> Result<Call, Call> {
        let (service, method) = path.trim_start_matches('/').split_once('/').unwrap_or_default();
        let bounded = self.services.contains(&service);
        let known = self.services.iter().copied().chain([HEALTH_SERVICE]).find(|known| *known == service);
        let (service, method) = known.map_or((OTHER, OTHER), |known| (known, method));
        if let Some(metrics) = &self.metrics {
            metrics.open.with_label_values(&[service]).inc();
        }
        let (metrics, method) = (self.metrics.clone(), method.to_owned());
        let mut call = Call { metrics, service, method, started: Instant::now(), code: Code::Cancelled, place: None };
        if let Some(calls) = self.calls.as_ref().filter(|_| bounded) {
            match Arc::clone(calls).try_acquire_owned() {
                Ok(place) => call.place = Some(place),
                Err(_full) => return Err(call),
            }
        }
        Ok(call)
    }
}

impl<S> Layer<S> for RpcLayer {
    type Service = RpcService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        RpcService { inner, layer: self.clone() }
    }
}

/// Service of [`RpcLayer`].
#[derive(Clone, Debug)]
pub(crate) struct RpcService<S> {
    inner: S,
    layer: RpcLayer,
}

impl<S> Service<Request<Body>> for RpcService<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let connection = request.extensions_mut().remove::<ConnectionHandle>();
        if let Some(connection) = &connection {
            request.extensions_mut().insert(connection.peer.clone());
        }
        let mut call = match self.layer.begin(request.uri().path()) {
            Ok(call) => call,
            Err(mut refused) => {
                let status = Status::resource_exhausted("too many calls are open on this port: try again later");
                refused.code = status.code();
                return Box::pin(async move { Ok(status.into_http()) });
            }
        };
        let inspect = self.layer.inspect.and_then(|inspect| inspect(request.uri().path()));
        let timeout = call.place.is_some().then_some(REQUEST_TIMEOUT);
        let connection = connection.filter(|_| call.place.is_some());
        let share = self.layer.memory.as_ref().map(MemoryBudget::share);
        if let Some(share) = &share {
            request.extensions_mut().insert(Arc::clone(share));
        }
        let answer = self.inner.call(bounded(request, inspect, share.clone(), timeout));
        Box::pin(async move {
            let answer = answer.await?;
            // An error before the first message is in the headers.
            call.note(answer.headers());
            call.learn_method();
            let unread = connection.map(ConnectionHandle::end_unless_read);
            Ok(answer.map(|inner| Body::new(Counted { inner, call, _unread: unread, _share: share })))
        })
    }
}

/// A call that is counted when it is dropped, with the last seen code.
struct Call {
    metrics: Option<RpcMetrics>,
    service: &'static str,
    method: String,
    started: Instant,
    code: Code,
    place: Option<OwnedSemaphorePermit>,
}

impl Call {
    fn note(&mut self, headers: &HeaderMap) {
        if let Some(status) = Status::from_header_map(headers) {
            self.code = status.code();
        }
    }

    /// Remembers the method, unless the service does not have it.
    fn learn_method(&self) {
        if let Some(metrics) = self.metrics.as_ref().filter(|_| self.code != Code::Unimplemented) {
            let mut methods = metrics.methods.lock();
            let methods = methods.entry(self.service).or_default();
            if !methods.contains(&self.method) {
                methods.insert(self.method.clone());
            }
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.place = None;
        let Self { metrics: Some(metrics), service, method, started, .. } = self else { return };
        let known = metrics.methods.lock().get(service).is_some_and(|methods| methods.contains(method));
        let method = if known { method } else { OTHER };
        metrics.open.with_label_values(&[*service]).dec();
        metrics.calls.with_label_values(&[*service, method, code_name(self.code)]).inc();
        metrics.seconds.with_label_values(&[*service, method]).observe(started.elapsed().as_secs_f64());
    }
}

/// A response body that holds its call until the trailers.
struct Counted {
    inner: Body,
    call: Call,
    /// Ends the connection unless it is dropped in time.
    _unread: Option<DropGuard>,
    /// Given back with the end of the call, and of the work that outlives it.
    _share: Option<Arc<MemoryShare>>,
}

impl http_body::Body for Counted {
    type Data = bytes::Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(trailers) = frame.trailers_ref() {
                    self.call.note(trailers);
                }
            }
            Poll::Ready(Some(Err(status))) => self.call.code = status.code(),
            Poll::Ready(None) | Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Name of a code in gRPC.
fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests;
