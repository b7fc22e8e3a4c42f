//! All side effects on the cluster and the cloud.
//!
//! [`Writes`] and [`CloudCalls`] own the clients of one term of leadership. Their fields are private, and every
//! mutating method passes the [fence](crate::fencing). [`Reads`] and [`CloudReads`] change nothing and need no
//! leadership.

mod cloud_calls;
mod cloud_reads;
mod kinds;
mod patch;
mod rate_limiter;
mod reads;
mod terminate;
mod writes;

pub use cloud_calls::CloudCalls;
pub(crate) use cloud_calls::delete_each;
pub use cloud_reads::CloudReads;
pub(crate) use rate_limiter::Action;
pub use rate_limiter::RateLimiter;
pub use reads::{ReadError, Reads};
pub(crate) use terminate::TerminateResult;
pub(crate) use writes::{ObjectPart, add_finalizer, has_finalizer, may_have_happened};
pub use writes::{UpdateResult, WriteError, Writes};

use crate::fencing::Fence;
use crate::metrics::ActuatorMetrics;
use crate::ports::Cloud;

/// The clients of the process, from which each term derives its fenced clients. Clones share them.
#[derive(Clone)]
pub struct Connections {
    client: kube::Client,
    cloud: Cloud,
    rate_limiter: RateLimiter,
    metrics: ActuatorMetrics,
}

impl Connections {
    /// `client` must not retry on its own.
    #[must_use]
    pub fn new(client: kube::Client, cloud: Cloud, metrics: ActuatorMetrics) -> Self {
        Self { client, cloud, rate_limiter: RateLimiter::default(), metrics }
    }

    /// Live reads of the cluster.
    #[must_use]
    pub fn reads(&self) -> Reads {
        Reads::new(self.client.clone())
    }

    /// Reads of the cloud.
    #[must_use]
    pub fn cloud_reads(&self) -> CloudReads {
        CloudReads::new(self.cloud.clone(), self.rate_limiter.clone(), self.metrics.clone())
    }

    /// Writes to the cluster during the term of `fence`.
    #[must_use]
    pub fn writes(&self, fence: Fence) -> Writes {
        Writes::new(self.client.clone(), fence, self.rate_limiter.clone())
    }

    /// Calls to the cloud during the term of `fence`.
    #[must_use]
    pub fn cloud_calls(&self, fence: Fence) -> CloudCalls {
        CloudCalls::new(self.cloud.clone(), fence, self.rate_limiter.clone(), self.metrics.clone())
    }
}
