//! Writing to the terminal: the answer through a lock, without colours where nobody sees them.

use crate::CommandError;
use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use comfy_table::{Table, presets};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::time::Duration;

/// Headings of a table or of its parts.
pub(crate) const HEADING: Style = Style::new().bold();

/// Bytes that are written at once: fewer calls than pages of memory, far less than an answer.
const STREAM_BUFFER: usize = 1 << 16;

/// How an answer is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Tables for people.
    Table,
    /// JSON for programs.
    Json,
    /// The same in YAML.
    Yaml,
}

/// Indented, with a line break at the end.
pub(crate) fn json(value: &Value) -> Result<String, CommandError> {
    let text = serde_json::to_string_pretty(value).map_err(|error| CommandError::Failed(error.to_string()))?;
    Ok(text + "\n")
}

/// The same as YAML.
pub(crate) fn yaml(value: &Value) -> Result<String, CommandError> {
    serde_saphyr::to_string(value).map_err(|error| CommandError::Failed(error.to_string()))
}

/// What a command answers with.
pub enum Answer {
    /// For people, or short.
    Text(String),
    /// Too long for one text, and without colours.
    Stream(Stream),
}

/// How a command ends: its answer, and the exit status once that is written.
pub struct Outcome {
    /// What goes to stdout.
    pub answer: Answer,
    /// Exit status of the process.
    pub status: u8,
}

impl From<Answer> for Outcome {
    fn from(answer: Answer) -> Self {
        Self { answer, status: 0 }
    }
}

/// Writes an answer bit by bit.
pub type Stream = Box<dyn FnOnce(&mut dyn Write) -> io::Result<()>>;

/// Writes an answer to stdout. A reader that has seen enough, such as `head`, is no error.
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

/// Writes what may be wrong to stderr.
pub(crate) fn warn(text: &str) {
    say("warning", AnsiColor::Yellow, text);
}

/// Writes what may help to stderr.
pub(crate) fn hint(text: &str) {
    say("hint", AnsiColor::Cyan, text);
}

/// Tells which kinds of the input are treated so, once.
pub(crate) fn note(what: &str, kinds: &BTreeMap<String, usize>) {
    if kinds.is_empty() {
        return;
    }
    let list: Vec<String> = kinds.iter().map(|(kind, count)| format!("{kind} ({count})")).collect();
    say(what, AnsiColor::Cyan, &list.join(", "));
}

/// Writes to stderr how long the parts of a plan took, in seconds, for scripts.
pub(crate) fn timings(read: Duration, plan: Duration, check: Duration) {
    /// So many decimals are beyond what a clock of the system measures reliably.
    const MICROS: f64 = 1e6;
    let seconds = |took: Duration| (took.as_secs_f64() * MICROS).round() / MICROS;
    let line = json!({"timings": {"read": seconds(read), "plan": seconds(plan), "check": seconds(check)}});
    let _ = writeln!(anstream::stderr().lock(), "{line}");
}

/// If not even stderr can be written to, there is nobody left to tell.
fn say(what: &str, color: AnsiColor, text: &str) {
    let style = Style::new().bold().fg_color(Some(color.into()));
    let _ = writeln!(anstream::stderr().lock(), "{style}{what}:{style:#} {text}");
}

/// A table without lines, with these headings.
pub(crate) fn table(headings: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(headings);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}

/// The table as text with bold headings, without blanks at the ends of lines.
pub(crate) fn render(table: &Table) -> String {
    let mut text = String::new();
    for (index, line) in table.lines().enumerate() {
        let line = line.trim_end();
        text += &if index == 0 { format!("{HEADING}{line}{HEADING:#}\n") } else { format!("{line}\n") };
    }
    text
}
