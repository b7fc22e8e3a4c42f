//! The clock in the model's terms.

use plimsoll_model::time::Timestamp;
use plimsoll_runtime::clock::Clock;

/// A clock that tells the model's timestamps.
pub(crate) trait Timestamped {
    /// The time.
    fn timestamp(&self) -> Timestamp;
}

impl Timestamped for Clock {
    fn timestamp(&self) -> Timestamp {
        Timestamp(self.now_millis())
    }
}
