//! Progress indicator for a terminal; does nothing elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
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
        let bar = spinner(ProgressDrawTarget::stderr(), what);
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

/// The default style of a bar shows counts, which are not set here, and no message.
fn spinner(target: ProgressDrawTarget, what: &'static str) -> ProgressBar {
    ProgressBar::with_draw_target(None, target).with_style(ProgressStyle::default_spinner()).with_message(what)
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::TermLike;
    use parking_lot::Mutex;
    use std::io;
    use std::sync::Arc;

    /// A terminal that keeps all that is written to it.
    #[derive(Debug, Clone, Default)]
    struct Screen(Arc<Mutex<String>>);

    impl TermLike for Screen {
        fn width(&self) -> u16 {
            80
        }

        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().push_str(text);
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_terminal_shows_what_is_done() {
        let screen = Screen::default();
        let progress = Progress(spinner(ProgressDrawTarget::term_like(Box::new(screen.clone())), "reading manifests"));
        progress.0.tick();
        progress.count("plans", 7);
        progress.0.tick();
        let shown = screen.0.lock().clone();
        assert!(
            shown.contains("reading manifests") && shown.contains("7 plans") && !shown.contains("0/0"),
            "{shown:?}"
        );
    }
}
