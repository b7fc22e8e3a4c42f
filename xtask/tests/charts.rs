//! Checks of the Helm charts without Helm. `cargo xtask chart` renders them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers fail by panicking")]

mod common;

use common::root;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

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
fn each_custom_resource_can_be_excluded_by_name() {
    let schema = fs::read_to_string(root().join("deploy/helm/plimsoll-crd/values.schema.json")).unwrap();
    let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
    let allowed = schema["properties"]["exclude"]["items"]["enum"].as_array().unwrap();
    let allowed: BTreeSet<_> = allowed.iter().map(|name| name.as_str().unwrap()).collect();
    let definitions = files("deploy/crds");
    let names: BTreeSet<_> = definitions.values().map(|text| value(text, "  name")).collect();
    assert_eq!(allowed, names);
}

#[test]
fn the_plain_manifests_are_all_applied() {
    let mut files = files("deploy/kubernetes");
    let kustomization = files.remove("kustomization.yaml").unwrap();
    let listed: BTreeSet<_> = kustomization.lines().filter_map(|line| line.strip_prefix("- ")).collect();
    for file in files.keys() {
        assert!(listed.contains(&**file), "kustomization.yaml does not list {file}");
    }
}

/// The actuator names it in tags, and the watcher in recordings: those of two clusters must not be taken for one.
#[test]
fn services_know_the_name_of_the_cluster() {
    for service in ["watcher.yaml", "actuator.yaml"] {
        let manifest = &files("deploy/kubernetes")[service];
        for line in ["- --cluster-name=$(CLUSTER_NAME)", "name: plimsoll-settings"] {
            assert!(manifest.lines().any(|other| other.trim() == line), "{service}: {line}");
        }
    }
}

/// A patch by position must name the argument that stands there.
#[test]
fn the_patch_for_another_namespace_of_karpenter_is_for_its_argument() {
    let readme = fs::read_to_string(root().join("deploy/README.md")).unwrap();
    let (_, patch) = readme.split_once("- op: test\n").unwrap();
    let field = |key: &str| patch.lines().find_map(|line| line.trim().strip_prefix(key)).unwrap().trim();
    let position: usize = field("path: ").rsplit('/').next().unwrap().parse().unwrap();
    let manifest = &files("deploy/kubernetes")["actuator.yaml"];
    let arguments = manifest.lines().skip_while(|line| line.trim() != "args:").skip(1);
    assert_eq!(arguments.map(|line| line.trim().trim_start_matches("- ")).nth(position).unwrap(), field("value: "));
}

/// A Lease of another name would not be found, and the actuator would act beside Karpenter.
#[test]
fn the_lease_of_karpenter_may_have_another_name() {
    let templates = files("deploy/helm/plimsoll/templates");
    for (file, line) in [
        ("actuator.yaml", "- --karpenter-lease={{ $settings.karpenterNamespace }}/{{ $settings.karpenterLeaseName }}"),
        ("rbac-actuator.yaml", "resourceNames: [{{ .Values.settings.karpenterLeaseName }}]"),
    ] {
        assert!(templates[file].lines().any(|other| other.trim() == line), "{file}: {line}");
    }
}

#[test]
fn the_chart_has_the_settings_that_the_migration_takes_over() {
    let text = fs::read_to_string(root().join("docs/migration.md")).unwrap();
    let row = text.lines().find(|line| line.ends_with("| the same names in `settings` |")).unwrap();
    let values = fs::read_to_string(root().join("deploy/helm/plimsoll/values.yaml")).unwrap();
    let names: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
    assert!(names.contains(&"vmMemoryOverheadPercent") && names.contains(&"minValuesPolicy"), "{names:?}");
    for name in names {
        let key = format!("{name}:");
        assert!(values.lines().any(|line| line.trim_start().starts_with(&key)), "{name}");
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

/// The policy refuses annotations of NodeClaims that Karpenter copies to Nodes.
#[test]
fn the_admission_policy_ends_before_karpenter_starts() {
    let binding = "plimsoll-reserved-metadata";
    let policy = &files("deploy/helm/plimsoll/templates")["admission-policy.yaml"];
    let (_, object) = policy.split_once("kind: ValidatingAdmissionPolicyBinding\n").unwrap();
    assert!(object.contains(&format!("\"name\" \"{binding}\"")), "{object}");
    let text = fs::read_to_string(root().join("docs/migration.md")).unwrap();
    let (_, section) = text.split_once("\n## Roll back\n").unwrap();
    let (before, _) = section.split_once("kubectl scale deployment karpenter ").unwrap();
    assert!(before.contains(&format!("kubectl delete validatingadmissionpolicybinding {binding} ")), "{before}");
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
