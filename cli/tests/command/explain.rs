//! `plimsoll explain`.

use crate::{Run, deployment, fixture, plimsoll, plimsoll_with};

fn explain(kind: &str, name: &str, input: &str) -> Run {
    let files =
        ["-f", &fixture("pool.yaml"), "-f", &fixture("cluster.yaml"), "-f", "-", "--catalog", &fixture("catalog.json")];
    plimsoll_with(&[&["explain", kind, name, "--now", "2026-01-02T00:00:00Z"], &files[..]].concat(), input)
}

/// The text beside a word of the explanation.
fn line(run: &Run, word: &str) -> String {
    assert_eq!(run.status, 0, "{}", run.stderr);
    let found = run.stdout.lines().find_map(|line| line.trim_start().strip_prefix(word));
    found.unwrap_or_else(|| panic!("no line {word:?} in {}", run.stdout)).trim().to_owned()
}

#[test]
fn a_pod_without_a_place_has_reasons_for_each_pool_with_figures() {
    let run = explain("pod", "big-0", &deployment("big", 1, "64", "1Gi"));
    assert_eq!(line(&run, "requests"), "64 cpu, 1Gi memory");
    let reason = run.stdout.lines().last().unwrap();
    assert!(
        reason.starts_with("default") && reason.contains("InsufficientResources") && reason.contains("64"),
        "{reason}"
    );
}

#[test]
fn a_pod_that_gets_a_new_node_is_told_which() {
    let run = explain("pod", "default/web-0", &deployment("web", 2, "1800m", "1Gi"));
    let to = line(&run, "goes to");
    assert!(to == "a new node of NodePool default" || to.starts_with("idle"), "{to}");
}

#[test]
fn a_running_pod_is_where_it_runs() {
    assert_eq!(line(&explain("pod", "keeper", ""), "runs on"), "busy");
}

#[test]
fn a_node_is_told_by_its_name_or_its_claims() {
    for name in ["busy", "default-busy"] {
        let run = explain("node", name, "");
        assert!(run.stdout.starts_with("Node busy\n"), "{}", run.stdout);
        assert_eq!(line(&run, "NodeClaim"), "default-busy");
        assert_eq!(line(&run, "instance"), "small, test-1a, on-demand, 0.1 USD per hour");
        assert_eq!(line(&run, "launched"), "small in test-1a was the cheapest of 2 types for 1 pod");
        assert_eq!(line(&run, "requested"), "1 cpu, 1Gi memory");
        assert_eq!(line(&run, "stays"), "pod default/keeper has the annotation karpenter.sh/do-not-disrupt");
    }
}

#[test]
fn a_node_that_is_to_go_says_why() {
    assert_eq!(line(&explain("node", "idle", ""), "goes"), "Empty: saves 0.1 USD per hour");
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
    plimsoll(&["explain", "node", "n", "--kubeconfig", "no-such-file"]).refused(&["kubeconfig: ", "no-such-file"]);
}
