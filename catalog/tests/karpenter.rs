//! Compares instance types of every kind with the values that Karpenter's AWS provider computes.

#![expect(clippy::expect_used, reason = "helpers that fail the test")]

use plimsoll_catalog::{NodeClassSettings, builtin};
use plimsoll_model::quantity::format_amount;
use plimsoll_model::resources::Resources;
use std::collections::BTreeMap;

const EXPECTED: &str = include_str!("data/karpenter.tsv");
/// Instance types newer than the provider that produced the table.
const NEWER_LABELS: [&str; 1] = ["karpenter.k8s.aws/nitro-sandbox"];

#[test]
fn capacity_overhead_and_labels_match_karpenter() {
    let regions = ["us-east-1", "ap-northeast-2"];
    let catalogs = regions.map(|region| builtin::catalog(region, &NodeClassSettings::default()).unwrap());
    let mut compared = 0;
    for line in EXPECTED.lines().filter(|line| !line.starts_with('#')) {
        let [name, architecture, capacity, overhead, labels] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("a row has five cells: {line}");
        };
        let instance_type = catalogs.iter().find_map(|catalog| catalog.get(name)).expect(name);
        let mut actual = instance_type.labels.clone();
        actual.retain(|key, _| !NEWER_LABELS.contains(&key.as_str()));
        let expected = entries(labels, "karpenter.k8s.aws/instance-");
        assert_eq!(instance_type.architecture, architecture, "{name}");
        assert_eq!(actual, expected, "{name}");
        assert_eq!(texts(&instance_type.capacity), entries(capacity, ""), "{name}: capacity");
        assert_eq!(texts(&instance_type.overhead), entries(overhead, ""), "{name}: overhead");
        compared += 1;
    }
    assert_eq!(compared, 49);
}

fn entries(text: &str, prefix: &str) -> BTreeMap<String, String> {
    let pairs = text.split(' ').map(|entry| entry.split_once('=').expect(entry));
    pairs.map(|(key, value)| (format!("{prefix}{key}"), value.to_owned())).collect()
}

fn texts(resources: &Resources) -> BTreeMap<String, String> {
    resources.iter().map(|(name, amount)| (name.to_owned(), format_amount(name, amount))).collect()
}
