//! Rules about where pods may run.

use super::{check, pod};

fn spread(more: &str, when: &str) -> String {
    format!("{{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: {when}, {more}}}")
}

fn spreads(list: &str) -> String {
    pod(&format!("topologySpreadConstraints: [{list}]"))
}

fn affinity(kind: &str, when: &str, terms: &str) -> String {
    pod(&format!("affinity: {{{kind}: {{{when}DuringSchedulingIgnoredDuringExecution: {terms}}}}}"))
}

#[test]
fn tolerations() {
    let toleration = |fields: &str| pod(&format!("tolerations: [{{{fields}}}]"));
    check(&[
        (toleration("operator: Exists"), ""),
        (toleration("key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 300"), ""),
        (toleration("key: a, value: b"), ""),
        (toleration("key: a, operator: Exists, value: b"), "spec.tolerations[0].value: must be empty"),
        (toleration("value: b"), "spec.tolerations[0].operator: must be Exists"),
        (toleration("key: \"\", operator: Equal"), "spec.tolerations[0].operator: must be Exists"),
        (toleration("key: a b, operator: Exists"), "spec.tolerations[0].key: \"a b\" is not a label key"),
        (toleration("key: a, value: b c"), "spec.tolerations[0].value: \"b c\" is not a label value"),
        (
            toleration("key: a, effect: NoSchedule, tolerationSeconds: 1"),
            "spec.tolerations[0].tolerationSeconds: needs",
        ),
    ]);
}

#[test]
fn affinity_to_nodes_and_pods() {
    let fields = |field: &str| {
        affinity("nodeAffinity", "required", &format!("{{nodeSelectorTerms: [{{matchFields: [{{{field}}}]}}]}}"))
    };
    let preferred = |weight: i32| {
        let term = "preference: {matchExpressions: [{key: a, operator: Exists}]}";
        affinity("nodeAffinity", "preferred", &format!("[{{weight: {weight}, {term}}}]"))
    };
    let pods = |weight: i32| {
        let term = "podAffinityTerm: {topologyKey: zone, labelSelector: {}}";
        affinity("podAntiAffinity", "preferred", &format!("[{{weight: {weight}, {term}}}]"))
    };
    let keys = |fields: &str| affinity("podAffinity", "required", &format!("[{{topologyKey: zone, {fields}}}]"));
    let terms = "requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    check(&[
        (
            affinity("nodeAffinity", "required", "{nodeSelectorTerms: []}"),
            format!("nodeAffinity.{terms}: must have at least").as_str(),
        ),
        (fields("key: metadata.name, operator: In, values: [a]"), ""),
        (
            fields("key: metadata.uid, operator: In, values: [a]"),
            format!("{terms}[0].matchFields[0].key: \"metadata.uid\"").as_str(),
        ),
        (fields("key: metadata.name, operator: In, values: [a, b]"), "matchFields[0].values: must be exactly one"),
        (
            fields("key: metadata.name, operator: Gt, values: [a]"),
            "matchFields[0].operator: \"Gt\" is not one of In, NotIn",
        ),
        (
            fields("key: metadata.name, operator: NotIn, values: [a]")
                .replace("matchFields: [{key: metadata.name", "matchExpressions: [{key: a b"),
            "matchExpressions[0].key: \"a b\"",
        ),
        (preferred(1), ""),
        (preferred(100), ""),
        (
            preferred(101),
            "nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: 101 is not between 1 and 100",
        ),
        (pods(100), ""),
        (
            pods(0),
            "podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: 0 is not between 1 and 100",
        ),
        (
            affinity("podAffinity", "required", "[{topologyKey: a b, labelSelector: {}}]"),
            "requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: \"a b\" is not a label key",
        ),
        (keys("matchLabelKeys: [a], mismatchLabelKeys: [b], labelSelector: {}"), ""),
        (keys("matchLabelKeys: [app], labelSelector: {matchLabels: {app: a}}"), ""),
        (
            keys("matchLabelKeys: [a]"),
            "podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].matchLabelKeys: needs a labelSelector",
        ),
        (
            keys("matchLabelKeys: [a], mismatchLabelKeys: [a], labelSelector: {}"),
            "[0].matchLabelKeys[0]: \"a\" is also in mismatch",
        ),
    ]);
}

#[test]
fn topology_spreads() {
    let of = |more: &str| spreads(&spread(more, "DoNotSchedule"));
    let at = "spec.topologySpreadConstraints";
    check(&[
        (of("minDomains: 2, nodeTaintsPolicy: Honor, nodeAffinityPolicy: Ignore"), ""),
        (
            of("nodeTaintsPolicy: Maybe"),
            format!("{at}[0].nodeTaintsPolicy: \"Maybe\" is not one of Honor, Ignore").as_str(),
        ),
        (
            of("nodeAffinityPolicy: Maybe"),
            format!("{at}[0].nodeAffinityPolicy: \"Maybe\" is not one of Honor, Ignore").as_str(),
        ),
        (spreads("{maxSkew: 1, topologyKey: a b, whenUnsatisfiable: DoNotSchedule}"), ""),
        (of("minDomains: 0"), format!("{at}[0].minDomains: must be at least 1").as_str()),
        (spreads(&spread("minDomains: 2", "ScheduleAnyway")), format!("{at}[0].minDomains: can be used with").as_str()),
        (of("matchLabelKeys: [a], labelSelector: {}"), ""),
        (of("matchLabelKeys: [a]"), format!("{at}[0].matchLabelKeys: needs a labelSelector").as_str()),
        (spreads(&format!("{}, {}", spread("", "DoNotSchedule"), spread("", "ScheduleAnyway"))), ""),
        (
            spreads(&format!("{}, {}", spread("", "DoNotSchedule"), spread("", "DoNotSchedule"))),
            format!("{at}[1].topologyKey: another constraint has zone with DoNotSchedule as well").as_str(),
        ),
    ]);
}
