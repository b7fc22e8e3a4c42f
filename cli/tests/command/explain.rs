//! `plimsoll explain`.

use crate::{Run, deployment, fixture, plimsoll, plimsoll_with};

fn explain(kind: &str, name: &str, input: &str) -> Run {
    let files =
        ["-f", &fixture("pool.yaml"), "-f", &fixture("cluster.yaml"), "-f", "-", "--catalog", &fixture("catalog.json")];
    let subject: Vec<&str> = [kind, name].into_iter().filter(|word| !word.is_empty()).collect();
    plimsoll_with(&[&["explain"], &subject[..], &["--now", "2026-01-02T00:00:00Z"], &files[..]].concat(), input)
}

/// Asserts that the explanation contains a line with this string.
#[track_caller]
fn says(run: &Run, text: &str) {
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(run.stdout.lines().any(|line| line.contains(text)), "no line with {text:?} in {}", run.stdout);
}

#[test]
fn a_pod_without_a_place_has_reasons_for_each_pool_with_figures() {
    let run = explain("pod", "big-0", &deployment("big", 1, "64", "1Gi"));
    assert!(run.stdout.starts_with("Pod default/big-0\n"), "{}", run.stdout);
    says(&run, "  requests      64 cpu, 1Gi memory");
    says(&run, "  has no place");
    says(
        &run,
        "  because       NodePool default: InsufficientResources: insufficient cpu: 64 requested, the largest instance type of the NodePool has ",
    );
    says(&run, "  because       NoExistingNode: 0 of 2 nodes fit: insufficient cpu (at most ");
}

#[test]
fn programs_get_the_causes_by_code() {
    let files = ["-f", &fixture("pool.yaml"), "-f", "-", "--catalog", &fixture("catalog.json"), "-o", "json"];
    let run = plimsoll_with(&[&["explain", "pod", "big-0"], &files[..]].concat(), &deployment("big", 1, "64", "1Gi"));
    assert_eq!(run.status, 0, "{}", run.stderr);
    let answer: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((&answer["kind"], &answer["name"]), (&"Pod".into(), &"default/big-0".into()));
    assert_eq!(answer["reasons"][0]["nodePool"], "default");
    assert_eq!(answer["reasons"][0]["code"], "InsufficientResources");
    assert_eq!(answer["lines"][1], "has no place");
}

#[test]
fn a_pod_that_gets_a_new_node_is_told_which() {
    let run = explain("pod", "default/web-0", &deployment("web", 2, "1800m", "1Gi"));
    says(&run, "  goes to       ");
}

#[test]
fn a_virtual_pod_says_whose_room_it_is() {
    let buffer = |kind: &str| {
        format!(
            "{}---\napiVersion: autoscaling.x-k8s.io/v1beta1\nkind: CapacityBuffer\nmetadata: {{name: spare}}\n\
             spec: {{replicas: 1, scalableRef: {{kind: {kind}, name: web}}}}\n",
            deployment("web", 1, "1800m", "1Gi")
        )
    };
    let run = explain("pod", "capacity-buffer-spare-1", &buffer("Deployment"));
    says(&run, "  stands for    capacity of CapacityBuffer default/spare");
    says(&run, "  goes to       ");
    let run = explain("pod", "web-0", &buffer("StatefulSet"));
    let hint = "CapacityBuffer default/spare: no room is kept: ScalableRefNotFound: there is no StatefulSet \"web\"";
    assert!(run.status == 0 && run.stderr.contains(hint), "{}", run.stderr);
}

#[test]
fn a_running_pod_is_where_it_runs() {
    says(&explain("pod", "keeper", ""), "  runs on       node busy");
}

#[test]
fn a_node_is_told_by_its_name_or_its_claims() {
    for name in ["busy", "default-busy"] {
        let run = explain("node", name, "");
        assert!(run.stdout.starts_with("Node busy\n"), "{}", run.stdout);
        says(&run, "  NodePool      default");
        says(&run, "  instance      small, on-demand, test-1a, 0.1 USD per hour");
        says(&run, "  state         in service");
        says(&run, "  launched      small in test-1a was the cheapest of 2 types for 1 pod");
        says(&run, "  requested     1 cpu, 1Gi memory");
        says(&run, "  stays         pod default/keeper has the annotation karpenter.sh/do-not-disrupt");
        says(&run, "  budget        10% of 2 nodes = 1");
    }
}

#[test]
fn a_budget_names_the_nodes_that_use_it() {
    let broken = "apiVersion: v1\nkind: Node\nmetadata:\n  name: broken\n  creationTimestamp: \"2026-01-01T00:00:20Z\"\n  \
        labels: {karpenter.sh/nodepool: default, karpenter.sh/initialized: \"true\", karpenter.sh/registered: \"true\"}\n\
        spec: {providerID: \"aws:///test-1a/i-3\"}\nstatus:\n  allocatable: {cpu: \"2\", memory: 4Gi, pods: \"10\"}\n  \
        conditions: [{type: Ready, status: \"False\"}]\n";
    let run = explain("node", "idle", broken);
    says(&run, "  stays         the budgets of NodePool default allow no removal for Empty now");
    says(&run, "  budget        10% of 3 nodes = 1; 1 used by broken (not Ready)");
}

#[test]
fn a_node_that_is_to_go_says_why() {
    says(&explain("node", "idle", ""), "  goes          Empty, saves 0.1 USD per hour");
}

#[test]
fn what_is_not_there_is_bad_input_with_the_nearest_names() {
    explain("pod", "keepr", "").refused(&["there is no pod default/keepr", "default/keeper"]);
    explain("node", "busi", "").refused(&["there is no node busi; nearest: busy"]);
    explain("pod", "shop/web-0", "").refused(&["there is no pod shop/web-0"]);
}

#[test]
fn without_files_a_cluster_is_read() {
    plimsoll(&["explain", "pod", "web-0"]).refused(&["kubeconfig: ", "-f PATH"]);
    plimsoll(&["explain", "node", "n", "--kubeconfig", "no-such-file"])
        .refused(&["kubeconfig: no-such-file: No such file"]);
}

#[test]
fn several_files_may_follow_one_option_and_the_name_may_come_last() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("web.yaml");
    std::fs::write(&file, deployment("web", 1, "1", "1Gi")).unwrap();
    let (pool, web, catalog) = (fixture("pool.yaml"), file.to_str().unwrap(), fixture("catalog.json"));
    let orders: [&[&str]; 3] =
        [&["web-0", "-f", &pool, web], &["-f", &pool, "web-0", web], &["-f", web, "-f", &pool, "web-0"]];
    for order in orders {
        let run = plimsoll(&[&["explain", "pod", "--catalog", &catalog], order].concat());
        says(&run, "  goes to       a new node of NodePool default");
    }
    plimsoll(&["explain", "pod", "web-0", web]).refused(&["--filename <PATH>"]);
}

#[test]
fn pods_of_a_workload_share_their_lines() {
    let input = deployment("web", 2, "1800m", "1Gi") + &deployment("big", 3, "64", "1Gi");
    let run = explain("deployment/web", "", &input);
    assert!(run.stdout.starts_with("Deployment default/web\n"), "{run:?}");
    says(&run, "  pods          2");
    says(&run, "  requests      1800m cpu, 1Gi memory");
    let run = explain("deploy", "big", &input);
    says(&run, "  has no place  big-0, big-1, big-2");
    says(&run, "  because       NodePool default: InsufficientResources: ");
    explain("deployment", "bigg", &input).refused(&["there is no deployment default/bigg; nearest: default/big"]);
    explain("statefulset", "web", &input).refused(&["there is no statefulset default/web"]);
    explain("deployment", "-nshop", &input).refused(&["NAME"]);
}

#[test]
fn a_workload_without_pods_says_why() {
    let idle = deployment("web", 0, "1", "1Gi");
    says(&explain("deployment", "web", &idle), "  has no pods   spec.replicas is 0");
    explain("deployment", "wbe", &idle).refused(&["there is no deployment default/wbe; nearest: default/web"]);
    let owned = idle.replace("kind: Deployment", "kind: ReplicaSet").replace(
        "metadata: {name: web}",
        "metadata: {name: web-1, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: u}]}",
    );
    says(
        &explain("rs", "web-1", &(idle + &owned)),
        "  has no pods   it belongs to Deployment web, so it is not expanded",
    );
    let job = |spec: &str| {
        format!(
            "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: nightly}}\nspec: {{{spec}, template: {{spec: \
             {{restartPolicy: Never, containers: [{{name: app}}]}}}}}}\n"
        )
    };
    says(&explain("job", "nightly", &job("suspend: true")), "  has no pods   it is suspended");
    says(&explain("job", "nightly", &job("parallelism: 0")), "  has no pods   spec.parallelism is 0");
    let ended = job("parallelism: 1") + "status: {conditions: [{type: Complete, status: \"True\"}]}\n";
    says(&explain("job", "nightly", &ended), "  has no pods   it has ended");
    let agent = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: agent}\nspec: {selector: {matchLabels: {app: a}}, \
        template: {metadata: {labels: {app: a}}, spec: {containers: [{name: a}]}}}\n";
    says(&explain("ds", "agent", agent), "  has no pods   each new node that it can run on gets one");
}

#[test]
fn pods_of_a_deployment_are_found_by_way_of_their_replica_set() {
    let pod = "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: web-5d9c7b-x2x9k\n  labels: {pod-template-hash: 5d9c7b}\n  \
               ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-5d9c7b, uid: u, controller: true}]\n\
               spec: {nodeName: busy, containers: [{name: app}]}\n";
    let run = explain("deployment", "web", pod);
    says(&run, "  runs on       node busy: web-5d9c7b-x2x9k");
    says(&explain("rs", "web-5d9c7b", pod), "  runs on       node busy: web-5d9c7b-x2x9k");
}

#[test]
fn pods_that_have_ended_are_told_apart() {
    let pod = |name: &str, spec: &str, phase: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  \
             ownerReferences: [{{apiVersion: batch/v1, kind: Job, name: nightly, uid: u}}]\n\
             spec: {{{spec}containers: [{{name: app}}]}}\nstatus: {{phase: {phase}}}\n"
        )
    };
    let pods =
        pod("done", "", "Succeeded") + &pod("broken", "", "Failed") + &pod("active", "nodeName: busy, ", "Running");
    let run = explain("job", "nightly", &pods);
    says(&run, "  pods          1, 2 ended");
    says(&run, "  runs on       node busy: active");
    says(&explain("pod", "done", &pods), "  not placed    it has ended (Succeeded)");
    says(&explain("pod", "broken", &pods), "  not placed    it has ended (Failed)");
}
