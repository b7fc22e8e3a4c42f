//! Tests of labels of new nodes.

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
