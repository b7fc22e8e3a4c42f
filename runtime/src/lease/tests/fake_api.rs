//! An API server with one Lease.

use super::*;
use kube::client::Body;
use serde_json::json;
use std::convert::Infallible;

/// One Lease with the rules of the API: create once, replace only with the current UID and resource version. A
/// replacement without a UID creates a Lease that does not exist.
#[derive(Clone, Default)]
pub(super) struct FakeApi {
    pub(super) state: Arc<Mutex<FakeState>>,
}

#[derive(Default)]
pub(super) struct FakeState {
    pub(super) lease: Option<Lease>,
    pub(super) version: u64,
    /// Whether requests fail.
    pub(super) down: bool,
    /// Whether another writer updates the Lease before the next replace.
    pub(super) overtake: bool,
    pub(super) conflicts: usize,
    /// Delay of the response to a replace.
    pub(super) delay: Duration,
    /// Delay of the response to a read.
    pub(super) read_delay: Duration,
    pub(super) reads: usize,
}

impl FakeApi {
    pub(super) fn client(&self) -> Client {
        let fake = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let fake = fake.clone();
            async move {
                let (parts, body) = request.into_parts();
                let bytes = body.collect_bytes().await.unwrap();
                let (code, value) = fake.answer(parts.method.as_str(), &bytes);
                let (delay, read_delay) = {
                    let state = fake.state.lock();
                    (state.delay, state.read_delay)
                };
                if parts.method == http::Method::PUT {
                    tokio::time::sleep(delay).await;
                } else {
                    tokio::time::sleep(read_delay).await;
                }
                let body = Body::from(serde_json::to_vec(&value).unwrap());
                Ok::<_, Infallible>(http::Response::builder().status(code).body(body).unwrap())
            }
        });
        Client::new(service, "plimsoll-test")
    }

    fn answer(&self, method: &str, body: &[u8]) -> (u16, serde_json::Value) {
        let mut state = self.state.lock();
        let failure = |code: u16, reason: &str| {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": reason,
                "reason": reason, "code": code});
            (code, status)
        };
        if state.down {
            return failure(500, "InternalError");
        }
        if method == "GET" {
            state.reads += 1;
            return match &state.lease {
                Some(lease) => (200, serde_json::to_value(lease).unwrap()),
                None => failure(404, "NotFound"),
            };
        }
        if method == "PUT" && state.overtake {
            state.overtake = false;
            state.version += 1;
            let version = state.version.to_string();
            state.lease.as_mut().unwrap().metadata.resource_version = Some(version);
        }
        let mut lease: Lease = serde_json::from_slice(body).unwrap();
        let sent = &lease.metadata;
        let refused = match &state.lease {
            Some(Lease { metadata: present, .. }) => {
                method == "POST" || sent.uid != present.uid || sent.resource_version != present.resource_version
            }
            None => method == "PUT" && sent.uid.is_some(),
        };
        if refused {
            state.conflicts += 1;
            return failure(409, "Conflict");
        }
        state.version += 1;
        let uid = state.lease.as_ref().and_then(|lease| lease.metadata.uid.clone());
        lease.metadata.uid = Some(uid.unwrap_or_else(|| format!("uid-{}", state.version)));
        lease.metadata.resource_version = Some(state.version.to_string());
        state.lease = Some(lease.clone());
        (200, serde_json::to_value(lease).unwrap())
    }

    pub(super) fn down(&self, down: bool) {
        self.state.lock().down = down;
    }

    pub(super) fn holder(&self) -> Option<String> {
        self.state.lock().lease.as_ref()?.spec.as_ref()?.holder_identity.clone()
    }

    pub(super) fn transitions(&self) -> Option<i32> {
        self.state.lock().lease.as_ref()?.spec.as_ref()?.lease_transitions
    }
}
