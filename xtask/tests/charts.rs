//! Checks of the Helm charts without Helm. `cargo xtask chart` renders them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers fail by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn files(folder: &str) -> BTreeMap<String, String> {
    let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(path).unwrap()))
        .collect()
}

fn value<'a>(text: &'a str, key: &str) -> &'a str {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": ")).unwrap()
}

#[test]
fn the_crd_chart_has_the_custom_resources_of_deploy() {
    let (chart, deploy) = (files("deploy/helm/plimsoll-crd/files"), files("deploy/crds"));
    assert!(deploy.len() >= 5);
    assert_eq!(chart.keys().collect::<Vec<_>>(), deploy.keys().collect::<Vec<_>>());
    for (name, text) in &deploy {
        assert!(chart[name] == *text, "{name} is stale: run `cargo xtask chart --write`");
    }
}

#[test]
fn charts_have_the_version_of_the_workspace() {
    let manifest: toml::Table = fs::read_to_string(root().join("Cargo.toml")).unwrap().parse().unwrap();
    let version = manifest["workspace"]["package"]["version"].as_str().unwrap().to_owned();
    for chart in ["plimsoll", "plimsoll-crd"] {
        let text = fs::read_to_string(root().join("deploy/helm").join(chart).join("Chart.yaml")).unwrap();
        assert_eq!((value(&text, "version"), value(&text, "appVersion")), (&*version, &*version), "{chart}");
    }
}

#[test]
fn getting_started_takes_at_most_ten_commands() {
    let text = fs::read_to_string(root().join("docs/getting-started.md")).unwrap();
    let install = text.split("\n## Install\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let blocks: Vec<&str> = install.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    // A backslash at the end continues the line.
    let of_block = |block: &&str| block.replace("\\\n", " ").lines().filter(|line| !line.trim().is_empty()).count();
    let commands: usize = blocks.iter().map(of_block).sum();
    assert!((5..=10).contains(&commands), "{commands} commands");
    assert!(blocks.last().unwrap().contains("kubectl get nodeclaims"), "the last one shows the node");
}

#[test]
fn every_value_has_a_comment() {
    for chart in ["plimsoll", "plimsoll-crd"] {
        let text = fs::read_to_string(root().join("deploy/helm").join(chart).join("values.yaml")).unwrap();
        let mut before = "";
        for line in text.lines() {
            // Top-level values and those in settings, networkPolicies and so on; groups of values need no comment.
            let top = line.split(':').next().unwrap();
            let is_value = !line.starts_with([' ', '#', '-']) && line.contains(": ") && !top.is_empty();
            assert!(!is_value || before.starts_with('#'), "{chart}: {line}");
            before = line;
        }
    }
}
