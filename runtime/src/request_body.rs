//! Request bodies: their bytes can be inspected before they are decoded, and may have to arrive in time.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::Request;
use http_body::{Frame, SizeHint};
use tokio::time::Sleep;
use tonic::{Status, body::Body};

/// Maximum time from the headers of a bounded call to the end of its request. A request of 32 MiB arrives within it at
/// 9 Mbit/s.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Receives the bytes of one request body in order. An error ends the call.
pub type Inspect = Box<dyn FnMut(&[u8]) -> Result<(), Status> + Send>;

/// Creates the inspection of a request by the path of its method; `None` without one.
pub type InspectRequest = fn(&str) -> Option<Inspect>;

/// A request body with an inspection and a deadline.
struct RequestBody {
    inner: Body,
    inspect: Option<Inspect>,
    due: Option<Pin<Box<Sleep>>>,
}

/// Adds an inspection and a deadline for its end to the body of a request.
pub(crate) fn bounded(request: Request<Body>, inspect: Option<Inspect>, timeout: Option<Duration>) -> Request<Body> {
    if inspect.is_none() && timeout.is_none() {
        return request;
    }
    let due = timeout.map(|timeout| Box::pin(tokio::time::sleep(timeout)));
    request.map(|inner| Body::new(RequestBody { inner, inspect, due }))
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
            && let Err(status) = inspect(bytes)
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
