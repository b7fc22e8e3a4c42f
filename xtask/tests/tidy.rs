//! Checks of the repository: directions of dependencies, unused files, sizes, lints.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers fail by panicking")]

mod common;

use common::{members, root, rust_files};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Maximum length of a file; generated files are excluded.
const FILE_LINES_MAX: usize = 400;

/// The crates of Plimsoll that each crate may depend on, also in tests. A crate that is missing here fails the test.
const ARROWS: &[(&str, &str)] = &[
    ("workspace-hack", ""),
    ("model", ""),
    ("proto", "model"),
    ("api", "model"),
    ("snapshot", "api kubesched model"),
    ("catalog", "api model"),
    ("manifests", "api catalog model snapshot"),
    ("invariants", "model"),
    ("kubesched", "invariants model"),
    ("runtime", ""),
    ("scheduler/solver", "invariants kubesched model"),
    ("scheduler", "invariants model proto runtime solver"),
    // Assembles the scheduler's binary; the only part of the scheduler that depends on Kubernetes types.
    ("scheduler/objects", "catalog manifests model proto runtime scheduler solver"),
    ("recording", "model proto"),
    ("recording/replay", "kubesched model proto recording solver"),
    ("watcher", "api model proto recording runtime snapshot"),
    ("actuator", "api catalog kubesched model proto runtime snapshot"),
    ("actuator/aws", "actuator catalog model runtime"),
    ("sim", "actuator api catalog kubesched model runtime scheduler watcher"),
    (
        "cli",
        "actuator api catalog invariants manifests model objects proto recording replay runtime scheduler sim snapshot",
    ),
    ("tests", "actuator api model proto replay runtime scheduler sim watcher"),
    ("tests/fuzz", "cli model proto snapshot"),
    (
        "tests/measure",
        "api invariants kubesched model proto recording replay runtime scheduler snapshot solver workloads",
    ),
    ("tests/workloads", "api catalog cli model snapshot"),
    ("xtask", "api catalog cli invariants kubesched model recording snapshot solver workloads"),
];

fn manifest(folder: &Path) -> toml::Table {
    let path = folder.join("Cargo.toml");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).parse().unwrap()
}

fn dependencies(member: &str) -> BTreeSet<String> {
    let manifest = manifest(&root().join(member));
    let tables = ["dependencies", "dev-dependencies", "build-dependencies"];
    tables.iter().filter_map(|table| manifest.get(*table)?.as_table()).flat_map(|table| table.keys().cloned()).collect()
}

#[test]
fn crates_depend_only_inward() {
    let arrows: BTreeMap<_, _> = ARROWS.iter().copied().collect();
    for member in members() {
        let allowed = arrows.get(member.as_str()).unwrap_or_else(|| panic!("{member}: say what it may depend on"));
        for dependency in dependencies(&member) {
            let Some(name) = dependency.strip_prefix("plimsoll-") else { continue };
            // `workspace-hack` has no code.
            let is_allowed = name == "workspace-hack" || allowed.split(' ').any(|one| one == name);
            assert!(is_allowed, "{member} may not depend on {name}");
        }
    }
}

#[test]
fn only_the_adapter_names_an_aws_sdk() {
    for member in members().iter().filter(|member| *member != "actuator/aws") {
        let aws: Vec<_> = dependencies(member).into_iter().filter(|name| name.starts_with("aws-")).collect();
        assert!(aws.is_empty(), "{member} depends on {aws:?}");
    }
}

#[test]
fn the_scheduler_knows_no_kubernetes() {
    let kubernetes =
        ["k8s-openapi", "kube", "plimsoll-api", "plimsoll-catalog", "plimsoll-manifests", "plimsoll-snapshot"];
    for member in ["model", "proto", "invariants", "kubesched", "scheduler", "scheduler/solver"] {
        let found: Vec<_> =
            dependencies(member).into_iter().filter(|name| kubernetes.contains(&name.as_str())).collect();
        assert!(found.is_empty(), "{member} depends on {found:?}");
    }
}

#[test]
fn pure_crates_do_no_io() {
    let io = ["tokio", "tonic", "kube", "tracing", "axum", "hyper", "reqwest", "rand"];
    for member in ["model", "catalog", "snapshot", "manifests", "invariants", "kubesched", "scheduler/solver"] {
        let manifest = manifest(&root().join(member));
        let Some(table) = manifest.get("dependencies").and_then(toml::Value::as_table) else { continue };
        let io_crates: Vec<_> = table.keys().filter(|name| io.contains(&name.as_str())).collect();
        assert!(io_crates.is_empty(), "{member} depends on {io_crates:?}");
    }
}

#[test]
fn every_crate_takes_the_workspace_lints() {
    for member in members() {
        let manifest = manifest(&root().join(&member));
        let inherited = manifest.get("lints").and_then(|lints| lints.get("workspace")).and_then(toml::Value::as_bool);
        assert_eq!(inherited, Some(true), "{member}/Cargo.toml lacks [lints] workspace = true");
    }
}

#[test]
fn no_file_is_forgotten() {
    let mut forgotten = Vec::new();
    for member in members() {
        let source = root().join(&member).join("src");
        for file in rust_files(&source) {
            if !["lib.rs", "main.rs"].contains(&file.file_name().unwrap().to_str().unwrap()) && !is_declared(&file) {
                forgotten.push(file.strip_prefix(root()).unwrap().to_owned());
            }
        }
    }
    assert!(forgotten.is_empty(), "no module declares {forgotten:?}");
}

/// Whether the parent module declares `file`.
fn is_declared(file: &Path) -> bool {
    let name = file.file_stem().unwrap().to_str().unwrap();
    let folder = file.parent().unwrap();
    let parents = [folder.with_extension("rs"), folder.join("lib.rs"), folder.join("main.rs")];
    parents.iter().filter_map(|parent| fs::read_to_string(parent).ok()).any(|text| {
        text.lines().any(|line| {
            let line = line.trim();
            line.ends_with(&format!("mod {name};"))
        })
    })
}

#[test]
fn files_stay_short() {
    let files = rust_files(&root());
    assert!(files.len() > 20, "looked in the wrong place");
    let long: Vec<_> = files
        .iter()
        .map(|file| (fs::read_to_string(file).unwrap().lines().count(), file.strip_prefix(root()).unwrap()))
        .filter(|(lines, _)| *lines > FILE_LINES_MAX)
        .collect();
    assert!(long.is_empty(), "over {FILE_LINES_MAX} lines: {long:?}");
}

#[test]
fn tests_neither_sleep_nor_hide() {
    // Split in two, so that this file does not match.
    let banned = [concat!("#[ig", "nore"), concat!("#[should", "_panic"), concat!("thread::", "sleep")];
    for file in rust_files(&root()) {
        let text = fs::read_to_string(&file).unwrap();
        for word in banned {
            assert!(!text.contains(word), "{} has {word}", file.display());
        }
    }
}
