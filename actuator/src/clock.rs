//! Converts the clock's time to the model's timestamps.

use plimsoll_model::time::Timestamp;
use plimsoll_runtime::clock::Clock;

/// A source of model timestamps.
pub(crate) trait Timestamped {
    /// The current time.
    fn timestamp(&self) -> Timestamp;
}

impl Timestamped for Clock {
    fn timestamp(&self) -> Timestamp {
        Timestamp(self.now_millis())
    }
}
