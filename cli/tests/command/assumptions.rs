//! `plimsoll plan --without-node`, `--without-zone` and `--more`.

use crate::plan::{NOW, cluster, table};
use crate::{Run, deployment, fixture, plimsoll_with, texts};
use serde_json::Value;
use std::collections::BTreeSet;

/// Plans the cluster with further objects.
fn plan(objects: &str, options: &[&str]) -> Run {
    table(&(cluster() + objects), options)
}

#[test]
fn pods_of_a_node_that_is_assumed_gone_are_pending() {
    let run = plan("", &["--without-node", "busy"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(run.stdout.starts_with("Assumed: node busy is gone.\nExisting nodes take\n"), "{}", run.stdout);
    let of = |names: &[&str]| {
        let options: Vec<&str> = names.iter().flat_map(|name| ["--without-node", *name]).collect();
        plan("", &[&options[..], &["-o", "json"]].concat()).json()
    };
    let without_claim = of(&["default-busy"]);
    assert_eq!(without_claim["existing"], serde_json::json!([{"node": "idle", "pods": ["default/keeper"]}]));
    let without_any = of(&["busy", "idle"]);
    assert_eq!(texts(&without_any["launches"][0]["pods"], ""), ["default/keeper"]);
    plan("", &["--without-node", "bussy"]).refused(&["there is no node bussy; nearest: busy"]);
}

#[test]
fn percentages_of_budgets_refer_to_the_nodes_that_are_left() {
    let pool = std::fs::read_to_string(fixture("pool.yaml")).unwrap();
    let pool = pool.replace("consolidateAfter: 1m", "consolidateAfter: 1m, budgets: [{nodes: 50%}]");
    let node = |name: &str| {
        format!(
            "---\napiVersion: v1\nkind: Node\nmetadata:\n  name: {name}\n  creationTimestamp: \"2026-01-01T00:00:20Z\"\n  \
             labels: {{karpenter.sh/nodepool: default, karpenter.sh/capacity-type: on-demand, karpenter.sh/registered: \
             \"true\", karpenter.sh/initialized: \"true\", node.kubernetes.io/instance-type: small, \
             topology.kubernetes.io/zone: test-1a, kubernetes.io/arch: amd64, kubernetes.io/os: linux}}\n\
             spec: {{providerID: \"aws:///test-1a/i-{name}\"}}\nstatus:\n  allocatable: {{cpu: 1900m, memory: 3584Mi, \
             pods: \"10\"}}\n  conditions: [{{type: Ready, status: \"True\"}}]\n"
        )
    };
    let input = pool + &["n1", "n2", "n3"].map(node).concat();
    let removed = |options: &[&str]| {
        let catalog = fixture("catalog.json");
        let arguments = ["plan", "-f", "-", "--catalog", &catalog, "--now", NOW, "-o", "json"];
        let plan = plimsoll_with(&[&arguments[..], options].concat(), &input).json();
        plan["terminations"].as_array().unwrap().len()
    };
    assert_eq!((removed(&[]), removed(&["--without-node", "n3"])), (2, 1), "half of three and of two nodes");
}

/// Zones and number of the nodes to launch.
fn launched(plan: &Value) -> (BTreeSet<String>, usize) {
    let launches = plan["launches"].as_array().unwrap();
    (launches.iter().flat_map(|launch| texts(&launch["zones"], "")).collect(), launches.len())
}

#[test]
fn a_zone_that_is_assumed_gone_has_no_nodes_and_gets_none() {
    let run = plan("", &["--without-zone", "test-1a"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(run.stdout.starts_with("Assumed: zone test-1a is gone with 2 nodes.\nLaunches\n"), "{}", run.stdout);
    // The empty node is removed, and the other one has a protected pod.
    let present = "\nWithout the assumptions: 0 to add, 1 to remove, 0 pods unschedulable.\n";
    assert!(run.stdout.ends_with(present), "{}", run.stdout);
    let plan_of = |options: &[&str]| plan("", &[options, &["-o", "json"]].concat()).json();
    let gone = plan_of(&["--without-zone", "test-1a"]);
    assert_eq!(texts(&gone["launches"][0]["pods"], ""), ["default/keeper"]);
    assert_eq!(launched(&gone), (BTreeSet::from(["test-1b".to_owned()]), 1));
    assert_eq!((&gone["existing"], &gone["terminations"]), (&serde_json::json!([]), &serde_json::json!([])));
    let other = plan_of(&["--without-zone", "test-1b"]);
    assert_eq!(other, plan_of(&[]), "nothing is there");
    let both = plan_of(&["--without-node", "busy", "--without-zone", "test-1a", "--without-zone", "test-1b"]);
    assert_eq!(both["unschedulable"][0]["reasons"][0]["code"], "NoOffering");
    plan("", &["--without-zone", "test-1"]).refused(&["there is no zone test-1; known zones: test-1a, test-1b"]);
}

/// kube-scheduler counts no zone without nodes, unless `minDomains` asks for it.
#[test]
fn spreads_do_not_count_a_zone_that_is_assumed_gone() {
    let web = |min_domains: &str| {
        let spread = format!(
            "topologySpreadConstraints: [{{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: \
             DoNotSchedule, labelSelector: {{matchLabels: {{app: web}}}}{min_domains}}}]\n      containers: ["
        );
        deployment("web", 4, "1500m", "1Gi").replace("containers: [", &spread)
    };
    let plan_of = |web: &str, options: &[&str]| plan(web, &[options, &["-o", "json"]].concat()).json();
    let gone = ["--without-zone", "test-1a"];
    let present = plan_of(&web(""), &[]);
    assert_eq!(launched(&present).0, ["test-1a", "test-1b"].map(str::to_owned).into());
    let without = plan_of(&web(""), &gone);
    assert_eq!(launched(&without).0, BTreeSet::from(["test-1b".to_owned()]));
    assert_eq!(without["unschedulable"], serde_json::json!([]));
    let without = plan_of(&web(", minDomains: 2"), &gone);
    assert_eq!(texts(&without["unschedulable"], "pod"), ["default/web-1", "default/web-2", "default/web-3"]);
}

#[test]
fn pods_wait_for_their_volumes_in_a_zone_that_is_assumed_gone() {
    let db = "---\napiVersion: v1\nkind: PersistentVolume\nmetadata: {name: data}\nspec:\n  \
              capacity: {storage: 1Gi}\n  accessModes: [ReadWriteOnce]\n  storageClassName: \"\"\n  \
              claimRef: {namespace: default, name: data}\n  \
              csi: {driver: ebs.csi.aws.com, volumeHandle: vol-1}\n  nodeAffinity: {required: {nodeSelectorTerms: [\
              {matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: [test-1a]}]}]}}\n\
              ---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec:\n  \
              accessModes: [ReadWriteOnce]\n  storageClassName: \"\"\n  volumeName: data\n  \
              resources: {requests: {storage: 1Gi}}\nstatus: {phase: Bound}\n\
              ---\napiVersion: v1\nkind: Pod\nmetadata: {name: db}\nspec:\n  \
              containers: [{name: app, resources: {requests: {cpu: \"1\", memory: 1Gi}}}]\n  \
              volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]\n";
    let waiting = |options: &[&str]| {
        let plan = plan(db, &[options, &["-o", "json"]].concat()).json();
        texts(&plan["unschedulable"], "pod")
    };
    assert_eq!(waiting(&[]), Vec::<String>::new());
    assert_eq!(waiting(&["--without-zone", "test-1a"]), ["default/db"]);
    let run = plan(db, &["--without-zone", "test-1a"]);
    assert!(run.stdout.contains("\nPlan: 1 to add, 0 to remove, 1 pod unschedulable.\n"), "{}", run.stdout);
    let present = "\nWithout the assumptions: 0 to add, 0 to remove, 0 pods unschedulable.\n";
    assert!(run.stdout.ends_with(present), "{}", run.stdout);
}

#[test]
fn a_request_has_the_assumptions() {
    let available = |options: &[&str]| {
        let request = plan("", &[options, &["-o", "request"]].concat()).json();
        let types = request["catalogs"][0]["instanceTypes"].as_array().unwrap();
        let offerings = types.iter().flat_map(|kind| kind["offerings"].as_array().unwrap());
        // Protobuf's JSON form leaves out `false`.
        let available = offerings.filter(|offering| offering["available"] == true);
        let zones: BTreeSet<&str> = available.map(|offering| offering["zone"].as_str().unwrap()).collect();
        (zones.len(), request["snapshot"]["nodes"].as_array().map_or(0, Vec::len))
    };
    assert_eq!((available(&[]), available(&["--without-zone", "test-1a"])), ((2, 2), (1, 0)));
}

#[test]
fn additional_pods_are_like_the_first_pod_of_their_workload() {
    let web = deployment("web", 2, "1500m", "1Gi");
    let run = plan(&web, &["--more", "deployment/web=2", "--more", "deploy/default/web=1"]);
    let assumed = "Assumed: deployment default/web has 2 more pods, deployment default/web has 1 more pod.\n";
    assert!(run.stdout.starts_with(assumed), "{}\n{}", run.stdout, run.stderr);
    // One pod fits on the empty node.
    let present = "\nWithout the assumptions: 1 to add for 0.1 USD per hour, 0 to remove, 0 pods unschedulable.\n";
    assert!(run.stdout.ends_with(present), "{}", run.stdout);
    let plan_of = |options: &[&str]| plan(&web, &[options, &["-o", "json"]].concat()).json();
    let places = |plan: &Value| -> Vec<String> {
        let lists = ["launches", "existing"].into_iter().flat_map(|list| plan[list].as_array().unwrap());
        let mut pods: Vec<String> = lists.flat_map(|one| texts(&one["pods"], "")).collect();
        pods.sort();
        pods
    };
    let more = plan_of(&["--more", "deployment/web=2"]);
    let names = ["default/web-0", "default/web-0:more-0", "default/web-0:more-1", "default/web-1"];
    assert_eq!(places(&more), names);
    assert_eq!(places(&plan_of(&[])), ["default/web-0", "default/web-1"], "nothing is assumed without the options");
}

#[test]
fn workloads_that_cannot_get_more_pods_are_named() {
    let web = deployment("web", 1, "1", "1Gi");
    let refused = |more: &str, mentions: &[&str]| plan(&web, &["--more", more]).refused(mentions);
    refused("web=5", &["'web=5' for '--more <KIND/NAME=COUNT>'", "must be KIND/NAME=COUNT"]);
    refused("deployment/web", &["must be KIND/NAME=COUNT"]);
    refused("daemonset/web=1", &["\"daemonset\" is none of deployment, statefulset, replicaset and job"]);
    refused("deployment/web=0", &["\"0\" is not a number from 1 to 100000"]);
    let none = deployment("web", 0, "1", "1Gi");
    let no_pods = "deployment default/web has no pods that others could be like: spec.replicas is 0";
    plan(&none, &["--more", "deployment/web=1"]).refused(&[no_pods]);
    refused("deployment/wib=1", &["there is no deployment default/wib; nearest: default/web"]);
    let many = ["--more", "deployment/web=60000", "--more", "deployment/web=60000"];
    plan(&web, &many).refused(&["--more: 120000 pods in all, more than 100000"]);
}
