//! Request bodies: their bytes can be inspected before they are decoded, may share a bound of memory, and may have to
//! arrive in time.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::Request;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Sleep;
use tonic::{Status, body::Body};

/// Maximum time from the headers of a bounded call to the end of its request. A request of 32 MiB arrives within it at
/// 9 Mbit/s.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Receives the bytes of one request body in order. Returns how much memory the request takes so far, decoded and with
/// these bytes. An error ends the call.
pub type Inspect = Box<dyn FnMut(&[u8]) -> Result<usize, Status> + Send>;

/// Creates the inspection of a request by the path of its method; `None` without one.
pub type InspectRequest = fn(&str) -> Option<Inspect>;

/// Memory that the requests of a port may take together, as far as they are inspected.
#[derive(Clone, Debug)]
pub(crate) struct MemoryBudget(Arc<Mutex<usize>>);

impl MemoryBudget {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Arc::new(Mutex::new(bytes)))
    }

    /// The share of one call, which is empty yet.
    pub(crate) fn share(&self) -> Arc<MemoryShare> {
        Arc::new(MemoryShare { free: Arc::clone(&self.0), taken: Mutex::new(0) })
    }
}

/// What one call takes of the memory of its port, until this is dropped.
#[derive(Debug, Default)]
pub struct MemoryShare {
    free: Arc<Mutex<usize>>,
    taken: Mutex<usize>,
}

impl MemoryShare {
    /// The share of a request, if its port has a bound of memory. Work that may outlive the call holds it as long as it
    /// holds the decoded request.
    pub fn of<T>(request: &tonic::Request<T>) -> Option<Arc<Self>> {
        request.extensions().get::<Arc<Self>>().cloned()
    }

    /// Grows to this size, or fails if the budget has too little.
    fn grow(&self, bytes: usize) -> Result<(), Status> {
        let (mut taken, mut free) = (self.taken.lock(), self.free.lock());
        let more = bytes.saturating_sub(*taken);
        let full =
            || Status::resource_exhausted("the open requests of this port take too much memory: try again later");
        *free = free.checked_sub(more).ok_or_else(full)?;
        *taken += more;
        Ok(())
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        *self.free.lock() += *self.taken.get_mut();
    }
}

/// A request body with an inspection, a share of memory and a deadline.
struct RequestBody {
    inner: Body,
    inspect: Option<Inspect>,
    share: Option<Arc<MemoryShare>>,
    due: Option<Pin<Box<Sleep>>>,
}

/// Adds an inspection, a share of memory and a deadline for its end to the body of a request.
pub(crate) fn bounded(
    request: Request<Body>,
    inspect: Option<Inspect>,
    share: Option<Arc<MemoryShare>>,
    timeout: Option<Duration>,
) -> Request<Body> {
    if inspect.is_none() && timeout.is_none() {
        return request;
    }
    let due = timeout.map(|timeout| Box::pin(tokio::time::sleep(timeout)));
    request.map(|inner| Body::new(RequestBody { inner, inspect, share, due }))
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = &mut *self;
        if this.due.as_mut().is_some_and(|due| due.as_mut().poll(context).is_ready()) {
            let status = Status::deadline_exceeded(format!("the request did not arrive within {REQUEST_TIMEOUT:?}"));
            return Poll::Ready(Some(Err(status)));
        }
        let polled = Pin::new(&mut this.inner).poll_frame(context);
        if let (Poll::Ready(Some(Ok(frame))), Some(inspect)) = (&polled, &mut this.inspect)
            && let Some(bytes) = frame.data_ref()
            && let Err(status) =
                inspect(bytes).and_then(|size| this.share.as_ref().map_or(Ok(()), |share| share.grow(size)))
        {
            return Poll::Ready(Some(Err(status)));
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
