//! Polls a condition with a time limit; the error contains the last observation.

use anyhow::{Result, bail};
use std::thread::park_timeout;
use std::time::{Duration, Instant};

/// Polling interval. Most polls run a kubectl process, which takes about as long.
const EVERY: Duration = Duration::from_millis(100);

/// Result of one poll.
pub(crate) enum Poll<T> {
    /// The condition holds.
    Yes(T),
    /// The condition does not hold yet, with the current state.
    NotYet(String),
}

/// Polls until the condition holds.
///
/// # Errors
/// If the condition does not hold within the limit, with the last observation; or immediately if the poll fails.
pub(crate) fn until<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Result<Poll<T>>) -> Result<T> {
    let begun = Instant::now();
    loop {
        match look()? {
            Poll::Yes(found) => return Ok(found),
            Poll::NotYet(instead) if begun.elapsed() > limit => {
                bail!("not within {} s: {what}; instead: {instead}", limit.as_secs());
            }
            // Nothing unparks this thread: a pause between two polls of another process.
            Poll::NotYet(_) => park_timeout(EVERY),
        }
    }
}

/// As `until`, for a condition without result.
///
/// # Errors
/// As `until`.
pub(crate) fn until_true(what: &str, limit: Duration, mut look: impl FnMut() -> Result<(bool, String)>) -> Result<()> {
    until(what, limit, || {
        let (there, instead) = look()?;
        Ok(if there { Poll::Yes(()) } else { Poll::NotYet(instead) })
    })
}
