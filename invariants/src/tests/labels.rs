//! Tests of labels of new nodes: empty values, and several requirements of the pool on one label.

use super::*;

fn select(case: &mut Case, wanted: NodeSelectorRequirement) {
    let term = NodeSelectorTerm { expressions: vec![wanted], fields: Vec::new() };
    case.reshape("new", |shape| shape.required_node_affinity = vec![term]);
}

#[test]
fn a_label_of_the_template_may_be_empty() {
    let labelled = |case: &mut Case| {
        let labels = BTreeMap::from([("worker".to_owned(), String::new())]);
        case.snapshot.node_pools[0].labels = labels.clone();
        case.plan.launches[0].labels = labels;
    };
    accepted(|case| {
        labelled(case);
        case.reshape("new", |shape| drop(shape.node_selector.insert("worker".into(), String::new())));
    });
    accepted(|case| {
        labelled(case);
        select(case, requirement("worker", Operator::Exists, &[], None));
    });
    rejected("required node affinity", |case| {
        labelled(case);
        select(case, requirement("worker", Operator::DoesNotExist, &[], None));
    });
    rejected("node selector worker=x", |case| {
        labelled(case);
        // Not even a launch replaces a label of the template.
        Arc::make_mut(&mut case.plan.launches[0].requirements).push(requirement("worker", Operator::In, &["x"], None));
        case.reshape("new", |shape| drop(shape.node_selector.insert("worker".into(), "x".into())));
    });
}

#[test]
fn a_new_node_has_a_hostname_that_no_requirement_names() {
    let host = |operator, values: &[&str]| requirement(label::HOSTNAME, operator, values, None);
    accepted(|case| select(case, host(Operator::Exists, &[])));
    accepted(|case| select(case, host(Operator::NotIn, &["n1"])));
    rejected("required node affinity", |case| select(case, host(Operator::DoesNotExist, &[])));
    rejected("required node affinity", |case| select(case, host(Operator::In, &["n1"])));
    // The DaemonSet runs on the new node, which has 2 cores.
    rejected("has too little cpu", |case| {
        let exists = host(Operator::Exists, &[]);
        case.snapshot.shapes.push(PodShape {
            id: ShapeId::from("daemon"),
            requests: Resources::from([("cpu", 1500)]),
            required_node_affinity: vec![NodeSelectorTerm { expressions: vec![exists], fields: Vec::new() }],
            ..PodShape::default()
        });
        let (namespace, name) = ("kube-system".to_owned(), "agent".to_owned());
        case.snapshot.daemon_sets.push(DaemonSet { uid: "d".into(), namespace, name, shape: ShapeId::from("daemon") });
    });
}

/// Adds requirements on the custom label `tier` to the pool, and so to its launch.
fn tiers(case: &mut Case, requirements: &[(Operator, &[&str])]) {
    for (operator, values) in requirements {
        let tier = requirement("tier", *operator, values, None);
        case.snapshot.node_pools[0].requirements.push(tier.clone());
        Arc::make_mut(&mut case.plan.launches[0].requirements).push(tier);
    }
}

#[test]
fn requirements_of_the_pool_on_one_custom_label_hold_together() {
    accepted(|case| tiers(case, &[(Operator::In, &["a", "b"]), (Operator::Exists, &[])]));
    accepted(|case| tiers(case, &[(Operator::Gt, &["5"]), (Operator::In, &["3", "7"])]));
    accepted(|case| tiers(case, &[(Operator::NotIn, &["a"]), (Operator::In, &["a", "b"])]));
    let unmet = "requirement of the pool on tier";
    rejected(unmet, |case| tiers(case, &[(Operator::In, &["a", "b"]), (Operator::NotIn, &["a", "b"])]));
    rejected(unmet, |case| tiers(case, &[(Operator::In, &["a", "b"]), (Operator::In, &["c", "d"])]));
    rejected(unmet, |case| tiers(case, &[(Operator::In, &["a", "b"]), (Operator::DoesNotExist, &[])]));
    // Without a list, only the launch can give the label a value.
    let open: &[(Operator, &[&str])] = &[(Operator::Exists, &[]), (Operator::NotIn, &["legacy"])];
    rejected(unmet, |case| tiers(case, open));
    let chosen = |case: &mut Case, value: &str| {
        tiers(case, open);
        Arc::make_mut(&mut case.plan.launches[0].requirements).push(requirement("tier", Operator::In, &[value], None));
    };
    accepted(|case| chosen(case, "new"));
    rejected(unmet, |case| chosen(case, "legacy"));
}
