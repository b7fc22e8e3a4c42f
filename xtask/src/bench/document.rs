//! The file with the figures: a header that describes the method, and a section for each table.

use super::table::Table;
use anyhow::{Context as _, Result};
use std::fmt;
use std::path::Path;

const TITLE: &str = "# Benchmarks";

/// Prefix of the headings of tables.
const HEADING: &str = "## ";

/// A table with its date.
pub(super) struct Section {
    heading: String,
    text: String,
}

impl Section {
    pub(super) fn new(table: &Table, stamp: &str) -> Self {
        Self { heading: table.heading().to_owned(), text: format!("{stamp}\n\n{}", table.render()) }
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{HEADING}{}\n\n{}", self.heading, self.text.trim_end())
    }
}

/// Writes the header and the new sections; other sections of the file stay unchanged.
pub(super) fn write(path: &Path, method: &str, sections: &[Section]) -> Result<()> {
    let before = std::fs::read_to_string(path).unwrap_or_default();
    std::fs::write(path, merged(&before, method, sections)).with_context(|| format!("writing {}", path.display()))
}

fn merged(before: &str, method: &str, sections: &[Section]) -> String {
    let mut all: Vec<(String, String)> = Vec::new();
    for part in format!("\n{before}").split(&format!("\n{HEADING}")).skip(1) {
        let (heading, text) = part.split_once('\n').unwrap_or((part, ""));
        all.push((heading.to_owned(), text.trim().to_owned()));
    }
    for section in sections {
        let text = section.text.trim().to_owned();
        match all.iter_mut().find(|(heading, _)| *heading == section.heading) {
            Some(known) => known.1 = text,
            None => all.push((section.heading.clone(), text)),
        }
    }
    let mut text = format!("{TITLE}\n\n{}", method.trim_end());
    for (heading, part) in all {
        text.push_str(&format!("\n\n{HEADING}{heading}\n\n{part}"));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(heading: &str, text: &str) -> Section {
        Section { heading: heading.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn sections_that_are_not_measured_stay_where_they_are() {
        let first = merged("", "How.", &[section("One", "| 1 |"), section("Two", "| 2 |\n\nNote.")]);
        assert_eq!(first, "# Benchmarks\n\nHow.\n\n## One\n\n| 1 |\n\n## Two\n\n| 2 |\n\nNote.\n");
        let second = merged(&first, "How else.", &[section("Three", "| 3 |"), section("One", "| 4 |")]);
        let expected =
            "# Benchmarks\n\nHow else.\n\n## One\n\n| 4 |\n\n## Two\n\n| 2 |\n\nNote.\n\n## Three\n\n| 3 |\n";
        assert_eq!(second, expected);
        assert_eq!(merged(&second, "How else.", &[]), expected);
    }
}
