//! Documented exceptions: the rows of the tables below one heading of docs/agreement.md.

use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// The heading whose tables are read, up to the next heading of the same or a higher level.
const HEADING: &str = "### Exceptions";

/// Reasons by seed: the last cell of a row whose first cell lists seeds (`78, 118`).
///
/// # Errors
/// If the file cannot be read, or lists a seed twice.
pub(super) fn read(root: &Path) -> Result<BTreeMap<u64, String>> {
    let path = root.join("docs/agreement.md");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    rows(&text).with_context(|| format!("the exceptions in {}", path.display()))
}

fn rows(text: &str) -> Result<BTreeMap<u64, String>> {
    let mut reasons = BTreeMap::new();
    let section = text.lines().skip_while(|line| !line.starts_with(HEADING)).skip(1);
    for line in section.take_while(|line| !["### ", "## ", "# "].iter().any(|start| line.starts_with(start))) {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let [first, .., reason] = cells.as_slice() else { continue };
        // Rows without a list of seeds are headings or separators.
        let Some(seeds) = first.split(',').map(|seed| seed.trim().parse().ok()).collect::<Option<Vec<u64>>>() else {
            continue;
        };
        for seed in seeds {
            anyhow::ensure!(reasons.insert(seed, (*reason).to_owned()).is_none(), "seed {seed} is listed twice");
        }
    }
    Ok(reasons)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn seeds_of_the_tables_below_the_heading_have_the_last_cell_as_their_reason() {
        let text = "# A\n\n| 1 | not here |\n\n### Exceptions\n\n| seeds | more | why |\n|---|---|---|\n| 78, 118 | 3 % | ports |\n\nText.\n\n| 5 | - | limits |\n\n## B\n\n| 9 | not here |\n";
        let reasons = rows(text).unwrap();
        let expected = [(5, "limits"), (78, "ports"), (118, "ports")];
        assert_eq!(reasons, expected.map(|(seed, why)| (seed, why.to_owned())).into());
    }

    #[test]
    fn a_seed_that_is_listed_twice_is_an_error() {
        assert!(rows("### Exceptions\n| 1, 2 | a |\n| 2 | b |\n").is_err());
    }
}
