//! Progress indicator for a terminal; does nothing elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget};
use std::io::IsTerminal;
use std::time::Duration;

/// Update interval of the animation.
const TICK: Duration = Duration::from_millis(100);

/// A line on stderr that disappears when this value is dropped.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    pub(crate) fn start(what: &'static str) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_message(what);
        bar.enable_steady_tick(TICK);
        Self(bar)
    }

    /// Shows how many of `what` are done.
    pub(crate) fn count(&self, what: &str, done: usize) {
        // The animation draws at its own interval.
        self.0.set_message(format!("{done} {what}"));
    }

    /// Shows the next activity.
    pub(crate) fn then(&self, what: &'static str) {
        self.0.set_message(what);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
