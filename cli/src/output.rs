//! Writing to the terminal: the whole answer at once, through a lock, without colours where nobody sees them.

use crate::CommandError;
use anstyle::{AnsiColor, Style};
use comfy_table::{Table, presets};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};

/// Writes an answer to stdout. A reader that has seen enough, such as `head`, is no error.
pub(crate) fn write(text: &str) -> Result<(), CommandError> {
    let mut stdout = anstream::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CommandError::Failed(format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes an error to stderr. If even that fails, there is nobody left to tell.
pub(crate) fn report(error: &CommandError) {
    let style = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
    let mut stderr = anstream::stderr().lock();
    let _ = writeln!(stderr, "{style}error:{style:#} {error}");
}

/// Tells which kinds of the input mean nothing here, once.
pub(crate) fn note_ignored(kinds: &BTreeMap<String, usize>) {
    if kinds.is_empty() {
        return;
    }
    let list: Vec<String> = kinds.iter().map(|(kind, count)| format!("{kind} ({count})")).collect();
    let _ = writeln!(anstream::stderr().lock(), "ignored: {}", list.join(", "));
}

/// A table without lines, with these headings.
pub(crate) fn table(headings: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(headings);
    table
}

/// The table as text, without blanks at the ends of lines.
pub(crate) fn render(table: &Table) -> String {
    let lines = table.lines().map(|line| line.trim_end().to_owned() + "\n");
    lines.collect()
}
