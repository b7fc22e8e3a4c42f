//! Writes to the terminal: output through a lock, and colours only in a terminal.

use crate::CommandError;
use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use comfy_table::{Table, presets};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::time::Duration;

/// Style of table headings.
pub(crate) const HEADING: Style = Style::new().bold();

/// Buffer size of streamed output: few writes, and much less memory than the whole output.
const STREAM_BUFFER: usize = 1 << 16;

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Tables.
    Table,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// Indented JSON with a trailing newline.
pub(crate) fn json(value: &Value) -> Result<String, CommandError> {
    let text = serde_json::to_string_pretty(value).map_err(|error| CommandError::Failed(error.to_string()))?;
    Ok(text + "\n")
}

/// YAML.
pub(crate) fn yaml(value: &Value) -> Result<String, CommandError> {
    serde_saphyr::to_string(value).map_err(|error| CommandError::Failed(error.to_string()))
}

/// Output of a command.
pub enum Answer {
    /// Short or readable output.
    Text(String),
    /// Output that is too long for a string, without colours.
    Stream(Stream),
}

/// Result of a command: its output, and the exit status after the output is written.
pub struct Outcome {
    /// Output on stdout.
    pub answer: Answer,
    /// Exit status of the process.
    pub status: u8,
}

impl From<Answer> for Outcome {
    fn from(answer: Answer) -> Self {
        Self { answer, status: 0 }
    }
}

/// Writes output in parts.
pub type Stream = Box<dyn FnOnce(&mut dyn Write) -> io::Result<()>>;

/// Writes output to stdout. A reader that closes the pipe, such as `head`, is not an error.
pub(crate) fn write(answer: Answer) -> Result<(), CommandError> {
    let written = match answer {
        Answer::Text(text) => {
            let mut stdout = anstream::stdout().lock();
            stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
        }
        Answer::Stream(stream) => {
            let mut stdout = BufWriter::with_capacity(STREAM_BUFFER, io::stdout().lock());
            stream(&mut stdout).and_then(|()| stdout.flush())
        }
    };
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CommandError::Failed(format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes an error to stderr.
pub(crate) fn report(error: &CommandError) {
    say("error", AnsiColor::Red, &error.to_string());
}

/// Writes a warning to stderr.
pub(crate) fn warn(text: &str) {
    say("warning", AnsiColor::Yellow, text);
}

/// Writes a hint to stderr.
pub(crate) fn hint(text: &str) {
    say("hint", AnsiColor::Cyan, text);
}

/// Lists kinds of the input with a note, once.
pub(crate) fn note(what: &str, kinds: &BTreeMap<String, usize>) {
    if kinds.is_empty() {
        return;
    }
    let list: Vec<String> = kinds.iter().map(|(kind, count)| format!("{kind} ({count})")).collect();
    say(what, AnsiColor::Cyan, &list.join(", "));
}

/// Writes the durations of the parts of a plan to stderr, in seconds, for scripts.
pub(crate) fn timings(read: Duration, plan: Duration, check: Duration) {
    /// More decimals are beyond the precision of the system clock.
    const MICROS: f64 = 1e6;
    let seconds = |took: Duration| (took.as_secs_f64() * MICROS).round() / MICROS;
    let line = json!({"timings": {"read": seconds(read), "plan": seconds(plan), "check": seconds(check)}});
    let _ = writeln!(anstream::stderr().lock(), "{line}");
}

/// If stderr is closed, the message is lost.
fn say(what: &str, color: AnsiColor, text: &str) {
    let style = Style::new().bold().fg_color(Some(color.into()));
    let _ = writeln!(anstream::stderr().lock(), "{style}{what}:{style:#} {text}");
}

/// A table without borders, with these headings.
pub(crate) fn table(headings: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(headings);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}

/// The table with bold headings, without trailing spaces.
pub(crate) fn render(table: &Table) -> String {
    let mut text = String::new();
    for (index, line) in table.lines().enumerate() {
        let line = line.trim_end();
        text += &if index == 0 { format!("{HEADING}{line}{HEADING:#}\n") } else { format!("{line}\n") };
    }
    text
}
