//! The commands of `cargo xtask ci` compile each dependency with the same features, so that cargo compiles it once and
//! not once per command: almost all crates depend on serde's macros, tokio or rustls.

#![allow(clippy::unwrap_used, reason = "test helpers fail by panicking")]

mod common;

use common::root;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// What xtask, the step `aws` and the step `e2e` select, as arguments of `cargo tree`.
const COMMANDS: [&[&str]; 3] = [
    &["--edges", "normal,build", "--package", "xtask"],
    &["--package", "plimsoll-actuator-aws"],
    &[
        "--edges",
        "normal,build",
        "--package",
        "plimsoll-watcher",
        "--package",
        "plimsoll-objects",
        "--package",
        "plimsoll-actuator-aws",
        "--package",
        "plimsoll-cli",
    ],
];
/// xtask uses only a few functions of this crate, and compiles it without the demo.
const DIFFERENT: &str = "plimsoll-cli";

/// The sets of features with which each package is compiled.
fn features(selection: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root()).args(["tree", "--locked", "--prefix", "none", "--format", "{p}|{f}"]).args(selection);
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "{cargo:?}: {}", String::from_utf8_lossy(&output.stderr));
    let mut features: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let Some((package, set)) = line.split_once('|') else { continue };
        // `name vVERSION (proc-macro)|features (*)`, where (*) stands for dependencies that were printed above.
        let package = package.split(' ').take(2).collect::<Vec<_>>().join(" ");
        features.entry(package).or_default().insert(set.trim_end_matches(" (*)").to_owned());
    }
    features
}

#[test]
fn dependencies_are_compiled_once() {
    let tests = features(&[]);
    assert!(tests.len() > 200, "only {} packages", tests.len());
    for command in COMMANDS {
        for (package, sets) in features(command) {
            let Some(known) = tests.get(&package) else { continue };
            assert!(
                sets.is_subset(known) || package.starts_with(DIFFERENT),
                "{package}: `cargo test` compiles it with the features {known:?} and {command:?} with {sets:?}: add \
                 the missing features to workspace-hack/Cargo.toml"
            );
        }
    }
}
