//! Scheduling state of each pod, from a watch of all pods.

use super::isolate::Isolation;
use anyhow::{Context as _, Result};
use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use plimsoll_snapshot::full_name;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Number of consecutive watch failures, with growing delays, after which the server counts as lost.
pub(super) const MAX_FAILURES: usize = 5;

/// Observed state of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PodRecord {
    pub(super) node: Option<String>,
    /// Message of kube-scheduler if it found no node.
    pub(super) refused: Option<String>,
    /// Nominated node.
    pub(super) nominated: Option<String>,
}

impl PodRecord {
    /// State without the message, because the message counts the nodes of all cases.
    pub(super) fn state(&self) -> (Option<&str>, bool) {
        (self.node.as_deref(), self.refused.is_some())
    }

    /// State that a case can wait for.
    fn news(&self) -> (Option<&str>, bool, Option<&str>) {
        (self.node.as_deref(), self.refused.is_some(), self.nominated.as_deref())
    }
}

/// Pods of one case by `namespace/name`.
pub(super) type Pods = BTreeMap<String, PodRecord>;

/// Updated by the watch and read by cases. The channel of a case counts its changes.
#[derive(Debug, Default)]
pub(super) struct PodWatch {
    cases: Mutex<HashMap<u64, Slot>>,
}

#[derive(Debug, Default)]
struct Slot {
    pods: Pods,
    changes: watch::Sender<u64>,
}

impl PodWatch {
    /// Follows all pods until the connection is lost permanently, which ends the run.
    pub(super) async fn follow(self: Arc<Self>, client: Client) -> Result<()> {
        let stream = watcher::watcher(Api::<Pod>::all(client), watcher::Config::default()).default_backoff();
        pin_mut!(stream);
        let mut failures = 0;
        while let Some(event) = stream.next().await {
            failures = if event.is_err() { failures + 1 } else { 0 };
            match event {
                Ok(Event::Apply(pod) | Event::InitApply(pod)) => self.note(&pod, false),
                Ok(Event::Delete(pod)) => self.note(&pod, true),
                Ok(Event::Init | Event::InitDone) => {}
                Err(error) if failures > MAX_FAILURES => return Err(error).context("watching pods"),
                Err(_) => {}
            }
        }
        anyhow::bail!("the watch over pods ended")
    }

    fn cases(&self) -> MutexGuard<'_, HashMap<u64, Slot>> {
        self.cases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, pod: &Pod, gone: bool) {
        let name = full_name(&pod.metadata);
        let Some(seed) = Isolation::seed_of(&name) else { return };
        let mut cases = self.cases();
        let slot = cases.entry(seed).or_default();
        let before = slot.pods.get(&name).cloned();
        if gone {
            slot.pods.remove(&name);
        } else {
            slot.pods.insert(name.clone(), record(pod));
        }
        if slot.pods.get(&name).map(PodRecord::news) != before.as_ref().map(PodRecord::news) {
            slot.changes.send_modify(|count| *count += 1);
        }
    }

    /// Removes a completed case.
    pub(super) fn forget(&self, seed: u64) {
        self.cases().remove(&seed);
    }

    /// Current pods of a case.
    pub(super) fn pods(&self, seed: u64) -> Pods {
        self.cases().get(&seed).map(|slot| slot.pods.clone()).unwrap_or_default()
    }

    /// Notifications of changes of a case.
    pub(super) fn changes(&self, seed: u64) -> watch::Receiver<u64> {
        self.cases().entry(seed).or_default().changes.subscribe()
    }

    /// Waits until `done` holds, until nothing changes for `quiet` while `settled` holds, or until `limit` has passed.
    /// Returns whether `done` held.
    pub(super) async fn wait(
        &self,
        seed: u64,
        (quiet, limit): (Duration, Duration),
        done: impl Fn(&Pods) -> bool,
        settled: impl Fn(&Pods) -> bool,
    ) -> bool {
        let mut changes = self.changes(seed);
        let end = Instant::now() + limit;
        loop {
            changes.mark_unchanged();
            let pods = self.pods(seed);
            if done(&pods) {
                return true;
            }
            let pause = if settled(&pods) { (Instant::now() + quiet).min(end) } else { end };
            match tokio::time::timeout_at(pause, changes.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return done(&self.pods(seed)),
            }
        }
    }
}

fn record(pod: &Pod) -> PodRecord {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).filter(|name| !name.is_empty());
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    // A gated pod was not evaluated.
    let is_refusal = |reason: Option<&str>| reason == Some("Unschedulable");
    let mut conditions =
        conditions.into_iter().flatten().filter(|it| it.type_ == "PodScheduled" && it.status == "False");
    let refused = conditions.find(|it| is_refusal(it.reason.as_deref()));
    let nominated = pod.status.as_ref().and_then(|status| status.nominated_node_name.clone());
    let nominated = nominated.filter(|name| !name.is_empty());
    PodRecord { node, nominated, refused: refused.map(|it| it.message.clone().unwrap_or_default()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SOON: Duration = Duration::from_secs(1);

    fn pod(namespace: &str, node: Option<&str>, refused: Option<&str>) -> Result<Pod> {
        let conditions: Vec<_> = refused
            .map(|message| json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}))
            .into_iter()
            .collect();
        Ok(serde_json::from_value(json!({
            "metadata": {"namespace": namespace, "name": "web"},
            "spec": {"nodeName": node, "containers": []},
            "status": {"conditions": conditions},
        }))?)
    }

    fn bound(pods: &Pods) -> bool {
        pods.values().any(|seen| seen.node.is_some())
    }

    fn refused(pods: &Pods) -> bool {
        pods.values().any(|seen| seen.refused.is_some())
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_when_it_is_done_or_when_nothing_more_comes() -> Result<()> {
        let pod_watch = PodWatch::default();
        pod_watch.note(&pod("c7-default", None, Some("0/1 nodes are available"))?, false);
        // A pod of another case does not count.
        pod_watch.note(&pod("c8-default", Some("c8-node"), None)?, false);
        let begun = Instant::now();
        assert!(!pod_watch.wait(7, (SOON, 60 * SOON), bound, refused).await);
        assert_eq!(begun.elapsed().as_secs(), 1);
        // The pod was not evaluated: only the limit ends the wait.
        pod_watch.note(&pod("c7-default", None, None)?, false);
        assert!(!pod_watch.wait(7, (SOON, 60 * SOON), bound, refused).await);
        assert_eq!(begun.elapsed().as_secs(), 61);
        pod_watch.note(&pod("c7-default", Some("c7-node"), None)?, false);
        assert!(pod_watch.wait(7, (SOON, 60 * SOON), bound, refused).await);
        pod_watch.note(&pod("c7-default", Some("c7-node"), None)?, true);
        assert_eq!(pod_watch.pods(7), Pods::new());
        Ok(())
    }
}
