//! What is said about pods and nodes.

use super::*;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::label;
use plimsoll_model::snapshot::{PoolProblem, TopologySpread, VolumeTopology};

#[test]
fn an_unschedulable_pod_is_explained_by_pool_and_kind_of_node() {
    let mut snapshot = waiting(1);
    snapshot.shapes = vec![shape("web", 96_000)];
    snapshot.node_pools = vec![pool("big"), pool("team")];
    snapshot.node_pools[1].taints =
        vec![Taint { key: "team".into(), value: "x".into(), effect: TaintEffect::NoSchedule }];
    snapshot.nodes = vec![node("n0", "big"), node("n1", "big"), node("n2", "big"), node("n3", "big")];
    snapshot.nodes[1].cordoned = true;
    snapshot.nodes[2].taints = snapshot.node_pools[1].taints.clone();
    let text = explain_pod(&snapshot, "default/web-0");
    let expected = [
        "requests      96 cpu, 1Gi memory",
        "has no place",
        "because       NodePool big: InsufficientResources: ",
        "because       NodePool team: TaintNotTolerated: ",
        "because       NoExistingNode: 0 of 4 nodes fit: 1 cordoned, not Ready or being deleted, \
         1 does not tolerate the taint team=x:NoSchedule, 2 insufficient cpu (at most 4 free)",
    ];
    assert_eq!(text.len(), expected.len(), "{text:#?}");
    for (line, start) in text.iter().zip(expected) {
        assert!(line.starts_with(start), "{line:?} is not {start:?}");
    }
}

#[test]
fn nodes_are_grouped_by_obstacle() {
    let mut snapshot = waiting(1);
    snapshot.node_pools[0].limits = [("cpu", 0)].into();
    snapshot.shapes[0].node_selector = [("disk".to_owned(), "ssd".to_owned())].into();
    snapshot.shapes[0].host_ports =
        vec![plimsoll_model::snapshot::HostPort { ip: "0.0.0.0".into(), port: 80, protocol: "TCP".into() }];
    snapshot.nodes = vec![node("n0", "default"), node("n1", "default")];
    snapshot.nodes[1].labels.insert("disk".into(), "ssd".into());
    snapshot.pods.push(pod("other", "web", PodState::Bound("n1".into())));
    let text = explain_pod(&snapshot, "default/web-0");
    assert!(text[3].contains(" 1 node selector or node affinity does not match"), "{text:#?}");
    assert!(text[3].contains(" 1 its host port is taken"), "{text:#?}");
}

#[test]
fn a_placed_pod_names_its_node() {
    let mut snapshot = waiting(2);
    let text = explain_pod(&snapshot, "default/web-0");
    let expected = [
        "requests      500m cpu, 1Gi memory",
        "goes to       a new node of NodePool default",
        "cheapest      m.large in a, on-demand, 0.1 USD per hour",
        "accepts       3 instance types, 6 offerings",
        "shared with   1 other pod",
        "node total    1 cpu, 2Gi memory with DaemonSets",
    ];
    assert_eq!(text[..6], expected);

    snapshot.nodes = vec![node("n0", "default")];
    let text = explain_pod(&snapshot, "default/web-0");
    assert_eq!(text[1..], ["goes to       node n0, which is in service"]);

    snapshot.nodes[0].state = NodeState::InFlight;
    snapshot.pods[0].state = PodState::Reserved("n0".into());
    assert_eq!(explain_pod(&snapshot, "default/web-0")[1..], ["waits for     node n0, which is being launched"]);

    // A nominated pod of a node that is being removed is placed anew.
    snapshot.nodes[0].state = NodeState::Initialized;
    snapshot.nodes[0].deleting = true;
    for until in [None, Some(Timestamp(i64::MAX))] {
        // Only a pod that runs is protected (decision 257).
        snapshot.pods[0].do_not_disrupt_until = until;
        let text = explain_pod(&snapshot, "default/web-0");
        assert_eq!(text[1], "goes to       a new node of NodePool default", "{text:#?}");
        assert!(!text.iter().any(|line| line.starts_with("waits for")), "{text:#?}");
    }
    snapshot.pods[0].do_not_disrupt_until = None;

    let ignored = plimsoll_model::snapshot::IgnoredPod {
        uid: "x".into(),
        pod: "default/x".into(),
        reason: "another scheduler has it".into(),
    };
    snapshot.ignored = vec![ignored];
    assert_eq!(explain_pod(&snapshot, "default/x"), ["ignored       another scheduler has it"]);
}

#[test]
fn a_removed_node_names_the_reason_and_the_targets_of_its_pods() {
    let text = explain_node(&two_half_empty(), "n0");
    let expected = [
        "NodePool      default",
        "NodeClaim     n0",
        "instance      m.xlarge, on-demand, a, 0.2 USD per hour",
        "state         in service",
        "requested     500m cpu, 1Gi memory",
        "of            4 cpu, 16Gi memory",
        "pods          1 to move if the node goes: default/a",
    ];
    assert_eq!(text[..7], expected);
    assert!(text[7].starts_with("goes          Underutilized, saves 0."), "{text:#?}");
    assert!(text[8].contains("default/a"), "{text:#?}");
}

#[test]
fn a_node_names_its_price_and_what_plans_count_instead() {
    let mut snapshot = two_half_empty();
    snapshot.node_pools[0].costs.per_node = MicroUsdPerHour(500_000);
    let text = explain_node(&snapshot, "n0");
    assert_eq!(text[2], "instance      m.xlarge, on-demand, a, 0.2 USD per hour, counts as 0.7");
}

/// The first node drifts and has a grace period. Its first pod must not be disrupted.
fn drift_despite_pods(snapshot: &mut Snapshot) {
    snapshot.pods[0].do_not_disrupt_until = Some(Timestamp(i64::MAX));
    snapshot.nodes[0].drifted = Some("AMIDrift".into());
    snapshot.nodes[0].termination_grace_period = Some(Millis::from_seconds(3600));
}

#[test]
fn a_kept_node_names_its_obstacles() {
    let kept = |change: fn(&mut Snapshot)| {
        let mut snapshot = two_half_empty();
        snapshot.nodes.truncate(1);
        snapshot.pods.truncate(1);
        change(&mut snapshot);
        let text = explain_node(&snapshot, "n0");
        let reasons: Vec<&str> = text.iter().filter_map(|line| line.strip_prefix("stays         ")).collect();
        reasons.join("|")
    };
    assert_eq!(kept(|it| it.nodes[0].node_pool = None), "it belongs to no NodePool: such nodes are never removed");
    assert_eq!(
        kept(|it| it.nodes[0].do_not_disrupt = true),
        "it has the annotation karpenter.sh/do-not-disrupt or cluster-autoscaler.kubernetes.io/scale-down-disabled"
    );
    assert_eq!(
        kept(|it| it.pods[0].do_not_disrupt_until = Some(Timestamp(i64::MAX))),
        "pod default/a has the annotation karpenter.sh/do-not-disrupt or cluster-autoscaler.kubernetes.io/safe-to-evict"
    );
    assert_eq!(
        kept(|it| it.pods[0].do_not_disrupt_until = Some(NOW.plus(Millis(1500)))),
        "pod default/a has the annotation karpenter.sh/do-not-disrupt, for another 2 s"
    );
    assert_eq!(
        kept(|it| {
            it.pods[0].pod_disruption_budgets = vec!["default/web".into()];
            let budget =
                PodDisruptionBudget { name: "default/web".into(), disruptions_allowed: 0, fully_blocking: false };
            it.pod_disruption_budgets = vec![budget];
        }),
        "PodDisruptionBudget default/web allows no eviction of pod default/a now"
    );
    assert_eq!(
        kept(|it| {
            it.nodes[0].idle_since = Some(NOW);
            it.node_pools[0].disruption.consolidate_after = Some(Millis::from_seconds(30));
        }),
        "consolidateAfter has not passed, for another 30 s"
    );
    assert_eq!(
        kept(|it| it.nodes[0].idle_since = Some(Timestamp(NOW.0 - 1000))),
        "consolidateAfter has not passed, for another 2 s (it counts as 3 s at least)"
    );
    assert_eq!(
        kept(|it| it.node_pools[0].disruption.consolidate_after = None),
        "NodePool default never consolidates (consolidateAfter: Never)"
    );
    assert_eq!(
        kept(|it| it.node_pools[0].disruption.policy = ConsolidationPolicy::WhenEmpty),
        "NodePool default consolidates only empty nodes"
    );
    assert_eq!(kept(|it| it.nodes[0].state = NodeState::Registered), "it is not in service yet");
    // Drift does not wait for pods if the node has a grace period.
    assert_eq!(
        kept(|it| {
            drift_despite_pods(it);
            it.node_pools[0].disruption.allowed = [(DisruptionReason::Drifted, 0)].into();
        }),
        "the budgets of NodePool default allow no removal for Drifted now"
    );
    // Nothing protects the node.
    let limited = |it: &mut Snapshot| it.node_pools[0].limits = [("cpu", 5_000)].into();
    assert_eq!(kept(limited), "no removal was found that pays and that limits allow");
    assert_eq!(
        kept(|it| drop(it.nodes[0].labels.insert(label::INSTANCE_TYPE.into(), "m.other".into()))),
        "its price is unknown: the catalog of NodePool default does not have it"
    );
    assert_eq!(
        kept(|it| {
            it.node_pools[0].catalog = None;
            it.node_pools[0].not_ready = Some(PoolProblem {
                code: "NodeClassNotFound".into(),
                message: "there is no EC2NodeClass default".into(),
            });
        }),
        "NodePool default is not ready (NodeClassNotFound): only its empty nodes are consolidated"
    );
}

#[test]
fn a_node_names_the_preferences_that_may_keep_it() {
    let mut snapshot = two_half_empty();
    snapshot.nodes.truncate(1);
    snapshot.pods.truncate(1);
    // No cheaper node may be launched beside it.
    snapshot.node_pools[0].limits = [("cpu", 5_000)].into();
    let preferred = TopologySpread {
        topology_key: label::HOSTNAME.into(),
        max_skew: 1,
        min_domains: None,
        required: false,
        selector: None,
        honor_node_affinity: true,
        honor_node_taints: false,
    };
    snapshot.shapes.iter_mut().for_each(|shape| shape.topology_spread = vec![preferred.clone()]);
    let kept = "stays         no removal was found that pays and that limits allow";
    let preferences = "preferences of pod default/a count as requirements while a node can satisfy them";
    let expected = format!("{kept}; {preferences} (preference policy Respect)");
    assert_eq!(explain_node(&snapshot, "n0").pop().unwrap(), expected);
    let preference_policy = plimsoll_model::plan::PreferencePolicy::Ignore;
    let request = ExplainRequest {
        snapshot: Some((&snapshot).into()),
        catalogs: wire_catalogs(),
        subject: Some(Subject::Node("n0".into())),
        options: Some((&PlanOptions { preference_policy, ..PlanOptions::default() }).into()),
    };
    assert_eq!(explain(&request).unwrap().lines.pop().unwrap(), kept);
}

#[test]
fn a_drifted_node_names_the_rollout_that_does_not_go_on() {
    let mut snapshot = two_half_empty();
    snapshot.nodes.truncate(1);
    snapshot.pods.truncate(1);
    drift_despite_pods(&mut snapshot);
    snapshot.node_pools[0].disruption.rollout_limit = Some(0);
    let text = explain_node(&snapshot, "n0");
    let expected = "stays         the rollout of NodePool default replaces no further node now: it waits for a canary, \
                    or is paused or halted";
    assert_eq!(text.last().map(String::as_str), Some(expected));
    // With consolidation, a node without pods would go in any case.
    snapshot.pods.clear();
    snapshot.node_pools[0].disruption.consolidate_after = None;
    assert_eq!(explain_node(&snapshot, "n0").pop().unwrap(), expected);
}

#[test]
fn a_kept_node_names_the_volume_that_cannot_be_attached_elsewhere() {
    let mut snapshot = two_half_empty();
    let problem = Some("persistent volume claim \"data\" is being deleted".to_owned());
    let volume = VolumeTopology { claim: "data".into(), driver: String::new(), alternatives: Vec::new(), problem };
    snapshot.shapes.iter_mut().for_each(|shape| shape.volumes = vec![volume.clone()]);
    let expected = "stays         volume data of pod default/a: persistent volume claim \"data\" is being deleted";
    assert_eq!(explain_node(&snapshot, "n0").pop().unwrap(), expected);
    snapshot.nodes[0].drifted = Some("AMIDrift".into());
    assert_eq!(explain_node(&snapshot, "n0").pop().unwrap(), expected);
}

#[test]
fn a_spot_node_names_the_rule_that_may_keep_it() {
    let mut spot = catalog();
    let offerings = spot.instance_types.iter_mut().flat_map(|kind| &mut kind.offerings);
    offerings.for_each(|one| one.capacity_type = CapacityType::Spot);
    let mut snapshot = two_half_empty();
    snapshot.nodes.truncate(1);
    snapshot.pods.truncate(1);
    snapshot.node_pools[0].catalog = Some(spot.id());
    snapshot.nodes[0].labels.insert(label::CAPACITY_TYPE.into(), "spot".into());
    snapshot.sort();
    let stays = |spot_to_spot| {
        let request = ExplainRequest {
            snapshot: Some((&snapshot).into()),
            catalogs: vec![(&spot).into()],
            subject: Some(Subject::Node("n0".into())),
            options: Some((&PlanOptions { spot_to_spot, ..PlanOptions::default() }).into()),
        };
        explain(&request).unwrap().lines.pop().unwrap()
    };
    assert!(stays(false).ends_with(
        "limits allow; a Spot node is not replaced by another Spot node (spot-to-spot consolidation is off)"
    ));
    assert!(stays(true).ends_with("by another Spot node only if enough cheaper instance types are available"));
}

#[test]
fn a_disruption_budget_names_the_node_that_uses_it_up() {
    let mut snapshot = two_half_empty();
    for pod in &mut snapshot.pods {
        pod.stays_with_node = true;
        pod.pod_disruption_budgets = vec!["default/agent".into()];
    }
    let budget = PodDisruptionBudget { name: "default/agent".into(), disruptions_allowed: 1, fully_blocking: false };
    snapshot.pod_disruption_budgets = vec![budget];
    let stays = |node: &str| explain_node(&snapshot, node).pop().unwrap();
    let (kept, gone, pod) = if stays("n0").starts_with("goes") { ("n1", "n0", "b") } else { ("n0", "n1", "a") };
    let expected =
        format!("stays         {gone} goes first and uses up PodDisruptionBudget default/agent of pod default/{pod}");
    assert_eq!(stays(kept), expected);
}

#[test]
fn a_pool_that_is_not_ready_is_named_before_a_disruption_budget_that_others_use_up() {
    let mut snapshot = two_half_empty();
    for pod in &mut snapshot.pods {
        pod.stays_with_node = pod.name == "b";
        pod.pod_disruption_budgets = vec!["default/agent".into()];
    }
    let budget = PodDisruptionBudget { name: "default/agent".into(), disruptions_allowed: 1, fully_blocking: false };
    snapshot.pod_disruption_budgets = vec![budget];
    snapshot.node_pools[0].catalog = None;
    snapshot.node_pools[0].not_ready =
        Some(PoolProblem { code: "NodeClassNotFound".into(), message: "there is no EC2NodeClass default".into() });
    assert!(explain_node(&snapshot, "n1").iter().any(|line| line.starts_with("goes")), "the node is empty");
    let kept = explain_node(&snapshot, "n0").pop().unwrap();
    assert!(kept.contains("NodePool default is not ready (NodeClassNotFound)"), "{kept}");
}

#[test]
fn a_budget_names_the_node_that_uses_it_up() {
    let mut snapshot = two_half_empty();
    snapshot.pods.clear();
    snapshot.node_pools[0].disruption.allowed = [(DisruptionReason::Empty, 1)].into();
    let stays = |snapshot: &Snapshot, node: &str| explain_node(snapshot, node).pop().unwrap();
    let other = if stays(&snapshot, "n0").starts_with("goes") { ("n1", "n0") } else { ("n0", "n1") };
    let expected = format!(
        "stays         {} goes first and uses up the budget of NodePool default (1 removal for Empty now)",
        other.1
    );
    assert_eq!(stays(&snapshot, other.0), expected);
    snapshot.node_pools[0].disruption.allowed = [(DisruptionReason::Empty, 0)].into();
    let expected = "stays         the budgets of NodePool default allow no removal for Empty now";
    assert_eq!(stays(&snapshot, "n0"), expected);
}

#[test]
fn pods_that_nothing_protects_are_not_copied_to_plan_without_protection() {
    let snapshot = two_half_empty();
    let other = without_protection(&snapshot);
    assert!(snapshot.pods.iter().zip(&other.pods).all(|(one, other)| std::ptr::eq(one, other)));
}

#[test]
fn protected_nodes_are_those_that_would_go_without_protection() {
    let protected = |change: fn(&mut Snapshot)| {
        let mut snapshot = two_half_empty();
        change(&mut snapshot);
        let plan = |snapshot: &Snapshot| {
            in_process::solve(snapshot, &catalogs(), &PlanOptions::default()).unwrap().check().unwrap()
        };
        let found = protected_nodes(&snapshot, &plan(&snapshot), &plan(&without_protection(&snapshot)));
        found.into_iter().map(|one| format!("{} {}", one.node, one.obstacle)).collect::<Vec<_>>().join("|")
    };
    assert_eq!(protected(|_| {}), "", "one goes, and the other takes its pod");
    let both = "n0 do-not-disrupt";
    assert!(
        protected(|it| it.nodes.iter_mut().for_each(|node| node.do_not_disrupt = true)).ends_with("do-not-disrupt")
    );
    assert_eq!(
        protected(|it| {
            it.nodes.truncate(1);
            it.pods.clear();
            it.nodes[0].do_not_disrupt = true;
        }),
        both
    );
    assert_eq!(
        protected(|it| {
            it.pods.clear();
            it.node_pools[0].disruption.allowed = [(DisruptionReason::Empty, 0)].into();
        }),
        "n0 budgets of NodePool default|n1 budgets of NodePool default"
    );
    assert_eq!(
        protected(|it| {
            it.nodes.truncate(1);
            it.pods.clear();
            it.nodes[0].idle_since = Some(NOW);
        }),
        "n0 consolidateAfter"
    );
    assert_eq!(
        protected(|it| {
            it.nodes.truncate(1);
            it.pods.truncate(1);
            drift_despite_pods(it);
            it.nodes[0].idle_since = Some(NOW);
            it.node_pools[0].disruption.consolidate_after = Some(Millis::from_seconds(30));
            it.node_pools[0].disruption.allowed = [(DisruptionReason::Drifted, 0)].into();
        }),
        "n0 budgets of NodePool default"
    );
}
