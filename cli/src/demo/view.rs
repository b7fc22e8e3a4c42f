//! Output of the demo: a frame that is redrawn in a terminal, plain lines elsewhere.

use anstyle::{AnsiColor, Style};
use std::io::Write;
use std::time::{Duration, Instant};

const HEADING: Style = Style::new().bold();
const SEEN: Style = AnsiColor::Green.on_default().bold();
const MISSED: Style = AnsiColor::Red.on_default().bold();
const QUIET: Style = Style::new().dimmed();

/// The output.
pub(super) struct View {
    out: Box<dyn Write + Send>,
    live: bool,
    /// Simulated seconds per second; 0 for no delay.
    speed: f64,
    /// Number of lines of the current frame.
    drawn: usize,
    last: Vec<String>,
    /// When the last frame was shown, in real time.
    shown: Instant,
}

impl View {
    pub(super) fn new(live: bool, speed: f64) -> Self {
        Self::to(Box::new(anstream::stdout()), live, speed)
    }

    /// A view with another output.
    pub(super) fn to(out: Box<dyn Write + Send>, live: bool, speed: f64) -> Self {
        Self { out, live, speed, drawn: 0, last: Vec::new(), shown: Instant::now() }
    }

    /// Starts a step.
    pub(super) fn heading(&mut self, text: &str) {
        self.lines(&[String::new(), format!("{HEADING}{text}{HEADING:#}")]);
    }

    /// Prints a met expectation.
    pub(super) fn seen(&mut self, time: &str, text: &str) {
        self.lines(&[format!("{QUIET}{time}{QUIET:#}  {SEEN}seen{SEEN:#}  {text}")]);
    }

    /// Prints a failed expectation.
    pub(super) fn missed(&mut self, time: &str, text: &str) {
        self.lines(&[format!("{QUIET}{time}{QUIET:#}  {MISSED}MISSING{MISSED:#}  {text}")]);
    }

    /// Prints an event.
    pub(super) fn note(&mut self, time: &str, text: &str) {
        self.lines(&[format!("{QUIET}{time}{QUIET:#}        {text}")]);
    }

    /// Shows a frame for the time that `simulated` takes.
    pub(super) fn picture(&mut self, lines: Vec<String>, simulated: Duration) {
        if self.live {
            self.erase();
            self.last = lines;
            self.draw();
        }
        if self.speed > 0.0 {
            let pace = simulated.div_f64(self.speed.max(f64::MIN_POSITIVE));
            // The runtime has nothing else to do, and its time is virtual. Waking early does no harm.
            std::thread::park_timeout(pace.saturating_sub(self.shown.elapsed()));
        }
        self.shown = Instant::now();
    }

    /// Removes the frame.
    pub(super) fn close(&mut self) {
        self.erase();
        self.last.clear();
    }

    fn lines(&mut self, lines: &[String]) {
        self.erase();
        for line in lines {
            self.print(&format!("{line}\n"));
        }
        self.draw();
    }

    fn draw(&mut self) {
        if self.live {
            let text: String = self.last.iter().map(|line| format!("{line}\n")).collect();
            self.print(&text);
            self.drawn = self.last.len();
        }
    }

    fn erase(&mut self) {
        if self.drawn > 0 {
            // Moves to the first line of the frame, and clears the rest.
            self.print(&format!("\x1b[{}A\x1b[J", self.drawn));
            self.drawn = 0;
        }
    }

    /// Prints text. A closed output does not stop the demo: the exit status still shows whether all expectations were
    /// met.
    fn print(&mut self, text: &str) {
        let _ = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
    }
}
