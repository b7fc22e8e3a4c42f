//! How soon a removal goes on or is undone once something changes that it depends on. Without a change it is looked at
//! every ten seconds.

use crate::{has_command, is_deleting, is_gone, is_tainted, of_node};
use plimsoll_model::execution::OutcomeStatus;
use plimsoll_model::names::annotation;
use plimsoll_model::plan::{Placement, Termination};
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::{Audit, ResourceId, object};
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, Wanted, wanted};
use plimsoll_tests::{MINUTE, Setup, limit_disruptions};
use serde_json::{Value, json};
use std::time::Duration;

/// Much less than ten seconds.
const AT_ONCE: Duration = Duration::from_secs(2);

#[tokio::test(start_paused = true)]
async fn a_node_is_removed_as_soon_as_its_taint_is_seen() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    let outcome = watcher.remove("r-1", &node, DisruptionReason::Empty, None).await;
    assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
    watcher.until("the claim is deleted", AT_ONCE, |world| is_deleting(world, &claim)).await;
}

/// The removal writes its claim just before the deletion.
#[tokio::test(start_paused = true)]
async fn a_node_is_removed_with_one_deletion_while_the_watch_of_its_claim_lags() {
    let lag = Duration::from_secs(5);
    let removals = [(Setup::default(), DisruptionReason::Empty), (Setup::expired(), DisruptionReason::Expired)];
    for (setup, reason) in removals {
        let watcher = FakeWatcher::begin(setup).await;
        let (claim, node) = watcher.node(&wanted("a-1")).await;
        // The watch shows that the node is in service.
        tokio::time::sleep(AT_ONCE).await;
        watcher.delay_watch("nodeclaims", lag);
        let outcome = watcher.remove("r-1", &node, reason, None).await;
        assert_eq!(outcome.status, OutcomeStatus::Accepted, "{reason:?}: {outcome:?}");
        // The command is seen after the lag. The reason on the claim would be seen after another one.
        watcher.until("the claim is deleted", lag + AT_ONCE, |world| is_deleting(world, &claim)).await;
        watcher.until("the claim is gone", 3 * MINUTE, |world| is_gone(world, &claim)).await;
        let audit = watcher.world.server().audit();
        let is_deletion = |entry: &&Audit| entry.verb == Verb::Delete && entry.resource == ResourceId::NODE_CLAIMS;
        assert_eq!(audit.iter().filter(is_deletion).count(), 1, "{reason:?}");
    }
}

/// A removal that waits for its replacement. A PodDisruptionBudget covers its pod, which moves to another node.
struct WaitingRemoval {
    watcher: FakeWatcher,
    claim: String,
    node: String,
    destination: String,
    replacement: String,
}

impl WaitingRemoval {
    async fn begin() -> Self {
        let mut setup = Setup::default();
        setup.world.boot = MINUTE;
        let watcher = FakeWatcher::begin(setup).await;
        let (claim, node) = watcher.node(&Wanted { instance_type: "m6i.2xlarge", ..wanted("a-1") }).await;
        watcher.deploy("web", "500m").await;
        let (_, destination) = watcher.node(&wanted("a-2")).await;
        limit_disruptions(&watcher.world, "maxUnavailable", 1);
        tokio::time::sleep(AT_ONCE).await;
        let pods = watcher.pods_on(&node);
        let moved_to = vec![Placement { node: destination.as_str().into(), pods: pods.clone() }];
        let removal = Termination { pods, moved_to, replaced_by: vec![0], ..of_node("r-1", &node) };
        let outcomes = watcher.send(watcher.plan(&[wanted("a-3")], vec![removal]).await).await;
        assert!(outcomes.iter().all(|it| it.status == OutcomeStatus::Accepted), "{outcomes:?}");
        let replacement = outcomes.iter().find_map(|it| it.node_claim.clone().filter(|name| *name != claim)).unwrap();
        let waits = |world: &World| {
            let replacement = world.get(ResourceId::NODE_CLAIMS, &replacement);
            is_tainted(world, &node) && replacement.is_some_and(|it| object::condition_is_true(&it, "Launched"))
        };
        watcher.until("the removal waits", Duration::from_secs(20), waits).await;
        Self { watcher, claim, node, destination, replacement }
    }

    fn patch(&self, resource: ResourceId, name: &str, patch: Value) {
        self.watcher.world.patch(resource, name, patch).unwrap();
    }

    fn run_pod(&self, node: &str, cpu: &str) {
        let requests = json!({"cpu": cpu});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "late"}, "spec": {"nodeName": node,
            "containers": [{"name": "main", "image": "example.com/app:1", "resources": {"requests": requests}}]}});
        self.watcher.world.apply_object(&pod).unwrap();
    }

    /// Lets the removal be looked at, so that it is not the time for the next look when something changes.
    async fn settle(&self) {
        self.patch(ResourceId::NODES, &self.node, json!({"metadata": {"labels": {"example.com/look": "now"}}}));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(has_command(&self.watcher.world, &self.claim));
    }
}

type Change = fn(&WaitingRemoval);

const CHANGES: [(&str, Change); 5] = [
    ("a pod comes to the node", |removal| removal.run_pod(&removal.node, "100m")),
    ("a pod takes the room at the destination", |removal| removal.run_pod(&removal.destination, "1800m")),
    ("the destination is cordoned", |removal| {
        removal.patch(ResourceId::NODES, &removal.destination, json!({"spec": {"unschedulable": true}}));
    }),
    ("the budget allows no disruption", |removal| {
        removal.patch(ResourceId::POD_DISRUPTION_BUDGETS, "web", json!({"spec": {"maxUnavailable": 0}}));
    }),
    ("the replacement is deleted", |removal| {
        removal.watcher.world.delete(ResourceId::NODE_CLAIMS, &removal.replacement).unwrap();
    }),
];

#[tokio::test(start_paused = true)]
async fn a_removal_is_undone_as_soon_as_something_prevents_it() {
    for (what, change) in CHANGES {
        let removal = WaitingRemoval::begin().await;
        removal.settle().await;
        change(&removal);
        let is_undone = |world: &World| !has_command(world, &removal.claim);
        removal.watcher.until(what, AT_ONCE, is_undone).await;
    }
}

/// The ledger counts on it.
#[tokio::test(start_paused = true)]
async fn a_command_that_somebody_removes_is_written_again_at_once() {
    let removal = WaitingRemoval::begin().await;
    removal.settle().await;
    let none = json!({"metadata": {"annotations": {annotation::REMOVAL: null}}});
    removal.patch(ResourceId::NODE_CLAIMS, &removal.claim, none);
    assert!(!has_command(&removal.watcher.world, &removal.claim));
    let is_back = |world: &World| has_command(world, &removal.claim);
    removal.watcher.until("the command is written again", AT_ONCE, is_back).await;
}
