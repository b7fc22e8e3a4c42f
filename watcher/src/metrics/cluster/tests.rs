use super::*;
use crate::samples::{node, pool};
use crate::snapshots::PublishedSnapshot;
use plimsoll_model::plan::PlanOptions;
use plimsoll_model::snapshot::{BufferPod, PodDisruptionBudget};
use plimsoll_model::time::Millis;
use std::time::Duration;

const NOW: Timestamp = Timestamp(1_000_000);

fn pod(name: &str, state: PodState) -> Pod {
    Pod {
        uid: name.into(),
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        state,
        created: Timestamp(NOW.0 - 30_000),
        ..Pod::default()
    }
}

fn bound(name: &str, node: &str) -> Pod {
    pod(name, PodState::Bound(node.into()))
}

/// A pool, one empty node and one node with a pod.
fn snapshot() -> Snapshot {
    Snapshot {
        now: NOW,
        nodes: vec![node("empty", "default"), node("used", "default")],
        pods: vec![bound("web", "used")].into(),
        node_pools: vec![pool("default")],
        ..Snapshot::default()
    }
}

/// The blocker of node `used` after a change, or its disruption reason.
fn of_used(change: impl FnOnce(&mut Snapshot)) -> Result<DisruptionReason, Blocker> {
    let mut snapshot = snapshot();
    snapshot.nodes.retain(|node| node.name == "used".into());
    change(&mut snapshot);
    let (eligible, blocked) = judge(&snapshot);
    assert_eq!(eligible.values().sum::<usize>() + blocked.values().sum::<usize>(), 1, "counted once");
    eligible.into_keys().next().ok_or_else(|| blocked.into_keys().next().unwrap())
}

#[test]
fn each_blocker_is_found() {
    assert_eq!(of_used(|_| {}), Ok(DisruptionReason::Underutilized));
    assert_eq!(of_used(|s| s.nodes[0].state = NodeState::Registered), Err(Blocker::NotInitialized));
    assert_eq!(of_used(|s| s.nodes[0].do_not_disrupt = true), Err(Blocker::NodeDoNotDisrupt));
    let until = |until: i64| move |s: &mut Snapshot| s.pods[0].do_not_disrupt_until = Some(Timestamp(until));
    assert_eq!(of_used(until(i64::MAX)), Err(Blocker::PodDoNotDisrupt));
    assert_eq!(of_used(until(NOW.0)), Ok(DisruptionReason::Underutilized), "the protection is over");
    let budget = |disruptions_allowed: i32| {
        move |s: &mut Snapshot| {
            let name = "shop/web".to_owned();
            s.pods[0].pod_disruption_budgets = vec![name.clone()];
            s.pod_disruption_budgets = vec![PodDisruptionBudget { name, disruptions_allowed, fully_blocking: false }];
        }
    };
    assert_eq!(of_used(budget(0)), Err(Blocker::PodDisruptionBudget));
    assert_eq!(of_used(budget(1)), Ok(DisruptionReason::Underutilized));
    let leaving = |s: &mut Snapshot| {
        budget(0)(s);
        until(i64::MAX)(s);
        (s.pods[0].terminating, s.pods[0].returns) = (true, true);
    };
    assert_eq!(of_used(leaving), Ok(DisruptionReason::Underutilized), "the pod is being deleted, and another follows");
    let nominated = |s: &mut Snapshot| s.pods.push(pod("new", PodState::Reserved("used".into())));
    assert_eq!(of_used(nominated), Err(Blocker::Nominated));
    let allowed = |s: &mut Snapshot| {
        s.node_pools[0].disruption.allowed.insert(DisruptionReason::Underutilized, 0);
    };
    assert_eq!(of_used(allowed), Err(Blocker::NodePoolBudget));
    assert_eq!(of_used(|s| s.node_pools.clear()), Err(Blocker::NodePoolBudget));
    assert_eq!(of_used(|s| s.node_pools[0].replicas = Some(1)), Err(Blocker::StaticNodePool));
    let never = |s: &mut Snapshot| s.node_pools[0].disruption.consolidate_after = None;
    assert_eq!(of_used(never), Err(Blocker::ConsolidationDisabled));
    let changed = |since: i64| {
        move |s: &mut Snapshot| {
            s.nodes[0].idle_since = Some(Timestamp(since));
            s.node_pools[0].disruption.consolidate_after = Some(Millis(30_000));
        }
    };
    assert_eq!(of_used(changed(NOW.0 - 29_999)), Err(Blocker::RecentlyChanged));
    assert_eq!(of_used(changed(NOW.0 - 30_000)), Ok(DisruptionReason::Underutilized), "consolidateAfter has passed");
    let at_once = |since: i64| move |s: &mut Snapshot| s.nodes[0].idle_since = Some(Timestamp(since));
    assert_eq!(of_used(at_once(NOW.0 - 2999)), Err(Blocker::RecentlyChanged), "consolidateAfter is at least 3 s");
    assert_eq!(of_used(at_once(NOW.0 - 3000)), Ok(DisruptionReason::Underutilized));
    let when_empty = |s: &mut Snapshot| s.node_pools[0].disruption.policy = ConsolidationPolicy::WhenEmpty;
    assert_eq!(of_used(when_empty), Err(Blocker::NotEmpty));
}

#[test]
fn drift_waits_for_no_consolidation_and_with_a_grace_period_for_no_pod() {
    let drifted = |s: &mut Snapshot| {
        s.nodes[0].drifted = Some("NodePoolDrifted".to_owned());
        s.nodes[0].idle_since = Some(NOW);
        s.node_pools[0].replicas = Some(1);
        s.pods[0].do_not_disrupt_until = Some(Timestamp(i64::MAX));
    };
    assert_eq!(of_used(drifted), Err(Blocker::PodDoNotDisrupt));
    let bounded = |s: &mut Snapshot| {
        drifted(s);
        s.nodes[0].termination_grace_period = Some(Millis(60_000));
    };
    assert_eq!(of_used(bounded), Ok(DisruptionReason::Drifted));
    let limited = |limit: u32| {
        move |s: &mut Snapshot| {
            s.nodes[0].drifted = Some("NodePoolDrifted".to_owned());
            s.node_pools[0].disruption.rollout_limit = Some(limit);
        }
    };
    assert_eq!(of_used(limited(0)), Err(Blocker::NodePoolBudget));
    assert_eq!(of_used(limited(1)), Ok(DisruptionReason::Drifted));
}

#[test]
fn nodes_being_removed_are_not_counted_and_budgets_are_already_less_them() {
    let mut snapshot = snapshot();
    snapshot.nodes[1].deleting = true;
    snapshot.node_pools[0].disruption.allowed.insert(DisruptionReason::Empty, 1);
    assert_eq!(judge(&snapshot).0.get(&DisruptionReason::Empty), Some(&1), "one more may be removed");
    snapshot.node_pools[0].disruption.allowed.insert(DisruptionReason::Empty, 0);
    let (eligible, blocked) = judge(&snapshot);
    assert_eq!((eligible.len(), blocked), (0, [(Blocker::NodePoolBudget, 1)].into()));
}

fn lines(metrics: &Metrics) -> Vec<String> {
    metrics.encode().unwrap().lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

#[test]
fn gauges_count_waiting_pods_and_nodes() {
    let metrics = Metrics::new("watcher");
    let cluster = ClusterMetrics::new(&metrics).unwrap();
    let mut snapshot = snapshot();
    let mut oldest = pod("oldest", PodState::Pending);
    oldest.created = Timestamp(NOW.0 - 90_000);
    let mut daemon = pod("daemon", PodState::Pending);
    daemon.stays_with_node = true;
    daemon.created = Timestamp(0);
    let buffer = Some(BufferPod { buffer: "spare".to_owned(), node: None });
    let virtual_pod = Pod { buffer, created: Timestamp(0), ..pod("virtual", PodState::Pending) };
    snapshot.pods.extend([oldest, pod("new", PodState::Pending), daemon, virtual_pod]);
    snapshot.pods.push(pod("planned", PodState::Reserved("new-node".into())));
    let later = Timestamp(NOW.0 + 5_000);
    metrics.add_source(move |samples| cluster.collect(&snapshot, later, samples));
    let lines = lines(&metrics);
    for line in [
        "karpenter_cluster_state_node_count 2",
        "plimsoll_watcher_pods_without_plan 2",
        "plimsoll_watcher_pods_without_plan_oldest_age_seconds 95",
        "karpenter_voluntary_disruption_eligible_nodes{reason=\"empty\"} 1",
        "karpenter_voluntary_disruption_eligible_nodes{reason=\"underutilized\"} 1",
        "karpenter_voluntary_disruption_eligible_nodes{reason=\"drifted\"} 0",
        "plimsoll_watcher_disruption_blocked_nodes{reason=\"not_initialized\"} 0",
    ] {
        assert!(lines.iter().any(|own| own == line), "{line}: {lines:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_leader_exports_gauges() {
    let metrics = Metrics::new("watcher");
    let watcher = WatcherMetrics::new(&metrics).unwrap();
    let (sender, newest) = watch::channel::<Option<Arc<PublishedSnapshot>>>(None);
    watcher.export(&metrics, newest, Clock::system());
    let has = |name: &str| lines(&metrics).iter().any(|line| line.starts_with(name));
    assert!(!has("karpenter_cluster_state_synced"), "a standby");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    watcher.lead(true);
    watcher.planning.began(PlanOptions::default().disruption);
    assert!(lines(&metrics).contains(&"karpenter_cluster_state_synced 0".to_owned()), "no snapshot yet");
    let unsynced = "karpenter_cluster_state_unsynced_time_seconds 0".to_owned();
    assert!(lines(&metrics).contains(&unsynced), "it counts from the start of the leadership");
    assert!(has("karpenter_scheduler_unfinished_work_seconds{controller=\"disruption\"}"));
    tokio::time::advance(Duration::from_secs(7)).await;
    assert!(lines(&metrics).contains(&"karpenter_cluster_state_unsynced_time_seconds 7".to_owned()));
    let waiting = Snapshot { pods: vec![pod("new", PodState::Pending), bound("web", "used")].into(), ..snapshot() };
    sender.send_replace(Some(Arc::new(crate::snapshots::tests::published(waiting))));
    for line in [
        "karpenter_cluster_state_synced 1",
        "karpenter_cluster_state_unsynced_time_seconds 0",
        "karpenter_cluster_state_node_count 2",
        "karpenter_scheduler_queue_depth{controller=\"disruption\"} 1",
    ] {
        assert!(lines(&metrics).contains(&line.to_owned()), "{line}: {:#?}", lines(&metrics));
    }
    watcher.waiting_pods.set(3);
    watcher.lead(false);
    assert!(lines(&metrics).contains(&"plimsoll_watcher_waiting_pods 0".to_owned()));
    assert!(!has("karpenter_cluster_state_synced") && !has("karpenter_scheduler_unfinished"), "no longer");
    assert!(lines(&metrics).contains(&"plimsoll_watcher_leading 0".to_owned()));
}
