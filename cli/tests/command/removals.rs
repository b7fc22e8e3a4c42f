//! `plimsoll plan`: pods of removed nodes.

use crate::plan::cluster;
use crate::{fixture, plimsoll_with, texts};
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
