//! `plimsoll plan --without-node` and `--more`.

use crate::plan::{NOW, cluster, table};
use crate::{Run, deployment, fixture, plimsoll_with, texts};

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

#[test]
fn additional_pods_are_like_the_first_pod_of_their_workload() {
    let web = deployment("web", 2, "1500m", "1Gi");
    let run = plan(&web, &["--more", "deployment/web=2", "--more", "deploy/default/web=1"]);
    let assumed = "Assumed: deployment default/web has 2 more pods, deployment default/web has 1 more pod.\n";
    assert!(run.stdout.starts_with(assumed), "{}\n{}", run.stdout, run.stderr);
    let plan_of = |options: &[&str]| plan(&web, &[options, &["-o", "json"]].concat()).json();
    let places = |plan: &serde_json::Value| -> Vec<String> {
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
