//! `plimsoll plan`: pods of removed nodes, and what protects pods and Nodes.

use crate::plan::{cluster, table};
use crate::{deployment, fixture, plimsoll_with, texts};
use serde_json::json;

/// Another pod of the node `busy`, which may be evicted.
const EVICTED: &str = "---
apiVersion: v1
kind: Pod
metadata: {name: web, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: u, controller: true}]}
spec: {nodeName: busy, containers: [{name: app, resources: {requests: {cpu: 500m}}}]}
status: {phase: Running}
";

#[test]
fn a_pod_that_must_not_be_disrupted_does_not_move_when_its_node_expires() {
    let (pool, catalog) = (fixture("pool.yaml"), fixture("catalog.json"));
    let arguments = ["plan", "-f", &pool, "-f", "-", "--catalog", &catalog, "--now", "2026-03-01T00:00:00Z"];
    let input = cluster() + EVICTED;
    let plan = plimsoll_with(&[&arguments[..], &["-o", "json"]].concat(), &input).json();
    assert_eq!(texts(&plan["terminations"], "node"), ["busy", "idle"]);
    assert_eq!(plan["terminations"][0]["pods"], json!(["default/web"]), "keeper has do-not-disrupt");
    assert_eq!(plan["launches"][0]["pods"], json!(["default/web"]));
    let graceful = input.replacen("requirements: []", "requirements: []\n  terminationGracePeriod: 1h", 1);
    for (input, deadline) in
        [(&input, "none: the node has no terminationGracePeriod"), (&graceful, "1 h after the drain begins")]
    {
        let run = plimsoll_with(&arguments, input);
        let title = "Pods that stay until the drain's deadline\nNODE  PODS            DEADLINE\n";
        assert!(run.stdout.contains(&format!("{title}busy  default/keeper  {deadline}\n")), "{}", run.stdout);
    }
}

#[test]
fn annotations_that_protect_nothing_bring_hints() {
    let hints = |of_pods: &str, of_node: &str| {
        let template = format!("  template:\n    metadata: {{annotations: {{{of_pods}}}, labels");
        let pods = deployment("web", 3, "100m", "64Mi").replace("  template:\n    metadata: {labels", &template);
        let node = format!("metadata: {{name: idle, annotations: {{{of_node}}},");
        let run = table(&(cluster().replace("metadata: {name: idle,", &node) + &pods), &[]);
        assert_eq!(run.status, 0, "{run:?}");
        run.stderr
    };
    let former = "has no effect; Karpenter v1 has karpenter.sh/do-not-disrupt instead\n";
    let expected = format!(
        "hint: Node idle: the annotation karpenter.sh/do-not-consolidate {former}\
         hint: Node idle: the annotation karpenter.sh/do-not-disrupt: \"48h\" protects nothing; true would\n\
         hint: Pod default/web-0 and 2 more: the annotation cluster-autoscaler.kubernetes.io/safe-to-evict: \"False\" \
         protects nothing; false or on-completion would\n\
         hint: Pod default/web-0 and 2 more: the annotation karpenter.sh/do-not-evict {former}"
    );
    let safe = "cluster-autoscaler.kubernetes.io/safe-to-evict";
    let of_pods = format!("{safe}: \"False\", karpenter.sh/do-not-evict: \"true\"");
    let of_node = "karpenter.sh/do-not-consolidate: \"true\", karpenter.sh/do-not-disrupt: 48h";
    assert_eq!(hints(&of_pods, of_node), expected);
    // These protect, or are not meant to.
    for (value, former) in [("\"true\"", "false"), ("\"false\"", "true"), ("on-completion", "true")] {
        let of_pods = format!("{safe}: {value}, karpenter.sh/do-not-evict: \"{former}\"");
        let disabled = "cluster-autoscaler.kubernetes.io/scale-down-disabled: \"false\"";
        let former = format!("karpenter.sh/do-not-consolidate: \"{former}\"");
        let of_node = format!("karpenter.sh/do-not-disrupt: \"true\", {former}, {disabled}");
        assert_eq!(hints(&of_pods, &of_node), "", "{value}");
    }
}
