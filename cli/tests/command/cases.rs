//! Small clusters with one aspect each, on the small catalog: properties of any correct plan, independent of the
//! solver.

use crate::{deployment, fixture, plimsoll_with, texts};
use serde_json::Value;
use std::collections::BTreeSet;

fn plan(input: &str) -> Value {
    let arguments =
        ["plan", "-f", "-", "--catalog", &fixture("catalog.json"), "-o", "json", "--now", "2026-01-02T00:00:00Z"];
    plimsoll_with(&arguments, input).json()
}

/// A pool with these requirements and these parts of its template and spec, and the node class.
fn pool(name: &str, requirements: &str, template: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: {name}}}\nspec:\n  template:\n    spec:\n      \
         nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}\n      requirements: [{requirements}]\n{template}{spec}"
    )
}

const CLASS: &str = "---\napiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {name: default}\nspec: {amiFamily: AL2023, role: node, \
    subnetSelectorTerms: [{id: subnet-1}], securityGroupSelectorTerms: [{id: sg-1}]}\n";

/// A pod with these requests and this part of its spec.
fn pod(name: &str, requests: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{app: {name}}}}}\nspec:\n  containers: [{{name: app, resources: \
         {{requests: {{{requests}}}}}}}]\n{spec}"
    )
}

/// The launch of a pod.
fn launch<'plan>(plan: &'plan Value, pod: &str) -> &'plan Value {
    let name = format!("default/{pod}");
    let found = plan["launches"].as_array().unwrap().iter().find(|it| texts(&it["pods"], "").contains(&name));
    found.unwrap_or_else(|| panic!("{pod} is on no launch: {plan:#}"))
}

/// Reason codes of an unschedulable pod, by pool.
fn codes(plan: &Value, pod: &str) -> Vec<String> {
    let name = format!("default/{pod}");
    let found = plan["unschedulable"].as_array().unwrap().iter().find(|it| it["pod"] == name.as_str());
    texts(&found.unwrap_or_else(|| panic!("{pod} has a place: {plan:#}"))["reasons"], "code")
}

const ON_DEMAND: &str = "{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}";

#[test]
fn a_selector_decides_the_architecture_and_zone() {
    let input = pool("any", ON_DEMAND, "", "") + CLASS;
    let arm = pod("arm", "cpu: 1", "  nodeSelector: {kubernetes.io/arch: arm64}\n");
    let zone =
        pod("zone", "cpu: 1", "  nodeSelector: {topology.kubernetes.io/zone: test-1b, kubernetes.io/arch: amd64}\n");
    let nowhere =
        pod("nowhere", "cpu: 1", "  nodeSelector: {topology.kubernetes.io/zone: test-1a, kubernetes.io/arch: arm64}\n");
    let plan = plan(&(input + &arm + &zone + &nowhere));
    assert_eq!(texts(&launch(&plan, "arm")["instanceTypes"], ""), ["arm"]);
    assert_eq!(texts(&launch(&plan, "zone")["zones"], ""), ["test-1b"]);
    assert_eq!(codes(&plan, "nowhere"), ["RequirementsIncompatible"]);
}

#[test]
fn bounds_on_integers_are_those_of_numbers() {
    let bounds = "{key: karpenter.k8s.aws/instance-cpu, operator: Gt, values: [\"2\"]}, {key: karpenter.k8s.aws/instance-cpu, operator: Lt, values: [\"8\"]}";
    let plan_of = |requirements: &str| plan(&(pool("any", requirements, "", "") + CLASS + &pod("p", "cpu: 1", "")));
    assert_eq!(
        texts(&launch(&plan_of(bounds), "p")["instanceTypes"], ""),
        ["arm"],
        "four CPUs lie between, 2 and 8 do not"
    );
    let crossed = bounds.replace("Gt, values: [\"2\"]", "Gt, values: [\"7\"]");
    assert_eq!(codes(&plan_of(&crossed), "p"), ["RequirementsIncompatible"]);
}

#[test]
fn a_taint_keeps_out_who_does_not_tolerate_it() {
    let taint = "      taints: [{key: team, value: a, effect: NoSchedule}]\n";
    let input = pool("tainted", ON_DEMAND, taint, "") + CLASS;
    let welcome = pod("welcome", "cpu: 1", "  tolerations: [{key: team, operator: Equal, value: a}]\n");
    let other = pod("other", "cpu: 1", "  tolerations: [{key: team, operator: Equal, value: b}]\n");
    let plan = plan(&(input + &welcome + &other + &pod("none", "cpu: 1", "")));
    let taints = &launch(&plan, "welcome")["taints"];
    assert_eq!(taints, &serde_json::json!([{"key": "team", "value": "a", "effect": "NoSchedule"}]));
    assert_eq!(
        (codes(&plan, "other"), codes(&plan, "none")),
        (vec!["TaintNotTolerated".to_owned()], vec!["TaintNotTolerated".to_owned()])
    );
}

#[test]
fn no_type_has_more_than_it_has() {
    let input = pool("any", ON_DEMAND, "", "") + CLASS;
    let table = [
        // 8 CPUs minus 200m of overhead.
        ("cpu: 7800m", true),
        ("cpu: 7801m", false),
        ("memory: 15Gi", true),
        ("memory: 15361Mi", false),
        ("ephemeral-storage: 21Gi", false),
        ("example.com/gpu: 1", false),
    ];
    for (requests, fits) in table {
        let plan = plan(&(input.clone() + &pod("p", requests, "")));
        assert_eq!(plan["launches"].as_array().unwrap().len(), usize::from(fits), "{requests}");
        assert!(fits || codes(&plan, "p") == ["InsufficientResources"], "{requests}");
    }
}

#[test]
fn a_limit_lets_through_what_fits_below_it() {
    let input = pool("small", ON_DEMAND, "", "  limits: {cpu: 4}\n") + CLASS;
    let pods: String = (0..5).map(|number| pod(&format!("p{number}"), "cpu: 1500m", "")).collect();
    let plan = plan(&(input + &pods));
    // Two nodes with two CPUs, or one with four, but never one with eight.
    let placed: usize =
        plan["launches"].as_array().unwrap().iter().map(|it| it["pods"].as_array().unwrap().len()).sum();
    assert_eq!((placed, plan["unschedulable"].as_array().unwrap().len()), (2, 3));
    for it in plan["launches"].as_array().unwrap() {
        assert!(!texts(&it["instanceTypes"], "").contains(&"large".to_owned()));
    }
    assert_eq!(plan["unschedulable"][0]["reasons"][0]["code"], "LimitReached");
}

#[test]
fn the_weightier_pool_comes_first_until_its_limit() {
    let first = pool("first", ON_DEMAND, "", "  weight: 10\n  limits: {cpu: 2}\n");
    let second = pool("second", ON_DEMAND, "", "");
    let pods: String = (0..2).map(|number| pod(&format!("p{number}"), "cpu: 1800m", "")).collect();
    let plan = plan(&(first + &second + CLASS + &pods));
    let pools: BTreeSet<String> = texts(&plan["launches"], "nodePool").into_iter().collect();
    assert_eq!(pools.into_iter().collect::<Vec<_>>(), ["first", "second"]);
    assert_eq!(plan["unschedulable"], serde_json::json!([]));
}

#[test]
fn daemon_sets_take_their_room_on_nodes_that_they_run_on() {
    let daemon = |selector: &str| {
        format!(
            "---\napiVersion: apps/v1\nkind: DaemonSet\nmetadata: {{name: agent}}\nspec:\n  selector: {{matchLabels: {{app: agent}}}}\n  template:\n    \
             metadata: {{labels: {{app: agent}}}}\n    spec:\n      {selector}containers: [{{name: a, resources: {{requests: {{cpu: 500m}}}}}}]\n"
        )
    };
    let input = pool("any", ON_DEMAND, "", "")
        + CLASS
        + &pod("p", "cpu: 1500m", "  nodeSelector: {kubernetes.io/arch: amd64}\n");
    let types = |input: &str| texts(&launch(&plan(input), "p")["instanceTypes"], "");
    assert_eq!(types(&input), ["small", "large"]);
    // With 500m for the agent, 1900m are not enough.
    assert_eq!(types(&(input.clone() + &daemon(""))), ["large"]);
    assert_eq!(launch(&plan(&(input.clone() + &daemon(""))), "p")["requests"]["cpu"], "2");
    // The agent does not run on this node.
    assert_eq!(types(&(input + &daemon("nodeSelector: {kubernetes.io/arch: arm64}\n      "))), ["small", "large"]);
}

#[test]
fn spot_is_bought_where_it_is_allowed_and_cheaper() {
    let both = "{key: karpenter.sh/capacity-type, operator: In, values: [spot, on-demand]}";
    let plan = plan(&(pool("any", both, "", "") + CLASS + &pod("p", "cpu: 1", "")));
    let offering = &launch(&plan, "p")["offering"];
    assert_eq!((&offering["capacityType"], &offering["price"]), (&"spot".into(), &0.03.into()));
}

#[test]
fn labels_of_the_template_satisfy_selectors_and_unknown_ones_do_not() {
    let labels =
        pool("any", ON_DEMAND, "", "").replace("  template:\n", "  template:\n    metadata: {labels: {team: a}}\n");
    let input = labels
        + CLASS
        + &pod("ours", "cpu: 1", "  nodeSelector: {team: a}\n")
        + &pod("theirs", "cpu: 1", "  nodeSelector: {team: b}\n");
    let plan = plan(&(input + &pod("unknown", "cpu: 1", "  nodeSelector: {crew: a}\n")));
    assert_eq!(launch(&plan, "ours")["labels"]["team"], "a");
    assert_eq!(codes(&plan, "theirs"), ["RequirementsIncompatible"]);
    assert_eq!(codes(&plan, "unknown"), ["RequirementsIncompatible"]);
}

#[test]
fn pods_that_nobody_is_to_place_are_ignored() {
    let gated = pod("gated", "cpu: 1", "  schedulingGates: [{name: wait}]\n");
    let done = pod("done", "cpu: 1", "") + "status: {phase: Succeeded}\n";
    let plan = plan(&(pool("any", ON_DEMAND, "", "") + CLASS + &gated + &done));
    assert_eq!(plan["launches"], serde_json::json!([]));
    assert_eq!(texts(&plan["ignored"], "pod"), ["default/gated"]);
    assert_eq!(plan["unschedulable"], serde_json::json!([]));
}

#[test]
fn init_containers_and_overhead_count() {
    let init = pod("init", "cpu: 100m", "  initContainers: [{name: i, resources: {requests: {cpu: 3}}}]\n");
    let overhead = pod("overhead", "cpu: 1500m", "  overhead: {cpu: 500m}\n");
    let sidecar = pod(
        "sidecar",
        "cpu: 1",
        "  initContainers: [{name: s, restartPolicy: Always, resources: {requests: {cpu: 1}}}]\n  nodeSelector: {kubernetes.io/arch: amd64}\n",
    );
    let plan = plan(&(pool("any", ON_DEMAND, "", "") + CLASS + &init + &overhead + &sidecar));
    for name in ["init", "overhead", "sidecar"] {
        assert!(!texts(&launch(&plan, name)["instanceTypes"], "").contains(&"small".to_owned()), "{name}");
    }
}

#[test]
fn new_pods_get_what_admission_adds() {
    let input = pool("any", ON_DEMAND, "", "")
        + CLASS
        + "---\napiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: gvisor}\nhandler: runsc\n\
           overhead: {podFixed: {cpu: 500m}}\nscheduling: {nodeSelector: {kubernetes.io/arch: amd64}}\n\
           ---\napiVersion: v1\nkind: LimitRange\nmetadata: {name: defaults}\n\
           spec: {limits: [{type: Container, defaultRequest: {cpu: 1500m}}]}\n";
    let web = deployment("web", 1, "1500m", "1Gi");
    let without_cpu = web.replace("cpu: \"1500m\", ", "");
    let requests = |workload: &str| launch(&plan(&(input.clone() + workload)), "web-0")["requests"]["cpu"].clone();
    assert_eq!((requests(&web), requests(&without_cpu)), ("1500m".into(), "1500m".into()));
    let sandboxed =
        without_cpu.replace("spec:\n      containers", "spec:\n      runtimeClassName: gvisor\n      containers");
    let plan = plan(&(input.clone() + &sandboxed));
    assert_eq!(texts(&launch(&plan, "web-0")["instanceTypes"], ""), ["large"], "2 CPUs of amd64");
}
