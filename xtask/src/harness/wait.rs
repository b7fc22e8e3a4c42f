//! Waiting for something to become true, with a limit and with the last thing seen in the error.

use anyhow::{Result, bail};
use std::thread::park_timeout;
use std::time::{Duration, Instant};

/// How often a condition is looked at. A look is most often a kubectl process, which takes about as long.
const EVERY: Duration = Duration::from_millis(100);

/// What a look found.
pub(crate) enum Seen<T> {
    /// It is there.
    Yes(T),
    /// Not yet; this is what there is instead.
    NotYet(String),
}

/// Looks until the answer is yes.
///
/// # Errors
/// If it is not there within the limit, with what was seen last; or at once if the look itself fails.
pub(crate) fn until<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Result<Seen<T>>) -> Result<T> {
    let begun = Instant::now();
    loop {
        match look()? {
            Seen::Yes(found) => return Ok(found),
            Seen::NotYet(instead) if begun.elapsed() > limit => {
                bail!("not within {} s: {what}; instead: {instead}", limit.as_secs());
            }
            // Nobody unparks this thread: a pause between two looks at another process.
            Seen::NotYet(_) => park_timeout(EVERY),
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
        Ok(if there { Seen::Yes(()) } else { Seen::NotYet(instead) })
    })
}
