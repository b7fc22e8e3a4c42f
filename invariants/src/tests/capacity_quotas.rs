//! Tests of CapacityQuotas.

use super::*;
use plimsoll_model::snapshot::CapacityQuota;

fn limited(case: &mut Case, selector: &[NodeSelectorRequirement], limits: &[(&str, i64)]) {
    let limits = limits.iter().copied().collect();
    case.snapshot.capacity_quotas = vec![CapacityQuota { name: "q".into(), selector: selector.to_vec(), limits }];
}

/// CPU of all nodes of the case that have the label team=blue.
fn used(case: &Case) -> i64 {
    let blue = |node: &&Node| node.labels.get("team").is_some_and(|team| team == "blue");
    case.snapshot.nodes.iter().filter(blue).map(|node| node.limit_usage.get("cpu")).sum()
}

#[test]
fn nodes_and_launches_stay_within_a_quota() {
    let blue = || vec![requirement("team", Operator::In, &["blue"], None)];
    let exceeded = "CapacityQuota q is exceeded: cpu";
    for node_has_label in [false, true] {
        let label = |case: &mut Case| {
            if node_has_label {
                case.node("n1").labels.insert("team".to_owned(), "blue".to_owned());
            }
        };
        // The launch lists types of 2 cores.
        accepted(|case| {
            label(case);
            let limit = used(case) + 2000;
            limited(case, &blue(), &[("cpu", limit)]);
        });
        rejected(exceeded, |case| {
            label(case);
            let limit = used(case) + 1999;
            limited(case, &blue(), &[("cpu", limit)]);
        });
    }
    rejected("CapacityQuota q is exceeded: nodes", |case| limited(case, &[], &[("nodes", 0)]));
}

#[test]
fn a_quota_counts_only_nodes_that_its_selector_matches() {
    for selector in [
        requirement("team", Operator::In, &["green"], None),
        requirement("team", Operator::DoesNotExist, &[], None),
        requirement(label::CAPACITY_TYPE, Operator::NotIn, &["on-demand"], None),
        // The new node will have a hostname.
        requirement(label::HOSTNAME, Operator::DoesNotExist, &[], None),
        requirement(label::HOSTNAME, Operator::In, &["n1"], None),
    ] {
        accepted(|case| limited(case, std::slice::from_ref(&selector), &[("nodes", 0)]));
    }
    for selector in [
        // The launch lists offerings of this zone, among others.
        requirement(label::ZONE, Operator::In, &["zone-b"], None),
        requirement(label::HOSTNAME, Operator::Exists, &[], None),
    ] {
        let selector = std::slice::from_ref(&selector);
        rejected("CapacityQuota q is exceeded: nodes", |case| limited(case, selector, &[("nodes", 0)]));
    }
}
