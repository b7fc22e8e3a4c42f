//! Running pods that end and are replaced on the same node.

use super::client::{ApiClient, PODS};
use super::population::{Population, pod};
use anyhow::{Context as _, Result};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Ten batches per second.
const BATCHES: usize = 10;
const PERIOD: Duration = Duration::from_millis(100);

/// Changes in progress.
#[derive(Debug)]
pub(super) struct Churn {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<usize>>,
}

/// Starts this many changes per second, as far as the API server keeps up.
pub(super) fn start(runtime: &Runtime, cluster: &ApiClient, population: &mut Population, per_second: usize) -> Churn {
    let (stop, stopped) = oneshot::channel();
    let nodes = population.nodes.clone();
    let pods = std::mem::take(&mut population.pods);
    let task = change(cluster.clone(), nodes, pods, population.millis, per_second, stopped);
    Churn { stop, task: runtime.spawn(task) }
}

impl Churn {
    /// Stops the changes. Returns their number.
    pub(super) async fn stop(self) -> Result<usize> {
        // If the task has ended, it ended with an error, which is returned below.
        let _ = self.stop.send(());
        self.task.await.context("the task of the pod changes")?
    }
}

async fn change(
    cluster: ApiClient,
    nodes: Vec<String>,
    mut pods: Vec<(String, usize)>,
    millis: usize,
    per_second: usize,
    mut stopped: oneshot::Receiver<()>,
) -> Result<usize> {
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    // 7919 is prime: consecutive changes are on different nodes.
    let (pairs, mut next, mut made) = ((per_second / (2 * BATCHES)).max(1), 0_usize, 0_usize);
    while stopped.try_recv().is_err() {
        ticks.tick().await;
        let mut ending = Vec::with_capacity(pairs);
        let mut starting = Vec::with_capacity(pairs);
        for _ in 0..pairs {
            next = (next + 7919) % pods.len();
            let (name, node) = &mut pods[next];
            let successor = format!("churn-{made}");
            starting.push(pod(&successor, &nodes[*node], millis));
            ending.push(std::mem::replace(name, successor));
            made += 1;
        }
        cluster.delete_all(PODS, &ending).await?;
        cluster.create_all(PODS, starting).await?;
    }
    Ok(2 * made)
}
