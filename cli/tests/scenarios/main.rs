//! Runs the scenarios in `tests/scenarios`: clusters in YAML with expectations of their plans. The README there
//! describes the format. Each scenario is a separate test:
//! `cargo test --package plimsoll-cli --test scenarios -- taints/` runs a topic.
#![expect(clippy::unwrap_used, reason = "tests and their helpers fail by panicking")]

mod check;
mod domains;
mod format;
mod launches;
mod pods;
mod removals;
mod scenario;
mod selftest;
mod view;

use libtest_mimic::{Arguments, Trial};
use scenario::{Scenario, root};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = selftest::trials();
    for path in files(&root()) {
        let name = path.strip_prefix(root()).unwrap().with_extension("").display().to_string();
        trials.push(Trial::test(name, move || Ok(Scenario::read(&path).and_then(|it| it.run())?)));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Scenarios in `folder`, by name. `common` contains shared files.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect();
    entries.sort();
    let mut scenarios = Vec::new();
    for path in entries {
        if path.is_dir() && path.file_name().is_some_and(|name| name != "common") {
            scenarios.extend(files(&path));
        } else if path.extension().is_some_and(|it| it == "yaml") {
            scenarios.push(path);
        }
    }
    scenarios
}
