//! Progress lines on stderr.

use std::io::Write as _;

/// Prints the progress of the task with this name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reporter(pub(crate) &'static str);

impl Reporter {
    /// Prints one line.
    pub(crate) fn say(self, text: &str) {
        // If stderr is closed, the message is lost.
        let _ = writeln!(std::io::stderr().lock(), "{}: {text}", self.0);
    }
}
