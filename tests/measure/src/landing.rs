//! Where kube-scheduler binds pending pods.

use anyhow::{Context as _, Result};
use plimsoll_kubesched::{ClusterState, Nominated, PodSlot};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::snapshot::{Snapshot, SnapshotIndex};
use plimsoll_model::time::Timestamp;
use plimsoll_workloads::{Case, CatalogChoice, Question};
use serde::Deserialize;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead as _;

/// A cluster whose pending pods are to be bound.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Request {
    /// Manifests, each with `apiVersion` and `kind`.
    objects: Vec<Value>,
    /// Milliseconds since 1970.
    unix_millis: i64,
}

/// Answers each line of stdin, a cluster, by a line with the nodes of its pending pods.
pub(crate) fn serve() -> Result<()> {
    for line in std::io::stdin().lock().lines() {
        let request: Request = serde_json::from_str(&line?).context("a cluster on stdin")?;
        let catalog = CatalogChoice::Given(Catalog::default());
        let case = Case { seed: 0, features: BTreeSet::new(), objects: request.objects, catalog };
        let objects = case.typed_objects()?;
        let question = Question::at(&objects, Catalog::default(), Timestamp(request.unix_millis));
        let mut snapshot = question.map_err(anyhow::Error::msg)?.snapshot;
        snapshot.sort();
        crate::print(&json!({ "bindings": bind_pending(&snapshot, &BTreeMap::new()) }))?;
    }
    Ok(())
}

/// The nodes of pending pods that fit on one, by the pods' UIDs. Pods are bound to their `targets` first, if these pass
/// the filters, then in random order to the best node.
pub(crate) fn bind_pending(snapshot: &Snapshot, targets: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut state = ClusterState::new(snapshot, &SnapshotIndex::new(snapshot));
    let numbers: BTreeMap<String, usize> =
        (0..state.nodes()).map(|node| (state.node_name(node).to_string(), node)).collect();
    let mut bound: BTreeMap<String, String> = BTreeMap::new();
    let mut waiting = state.pods().to_vec();
    // A pod that a spread rejects now may fit after other pods are bound; kube-scheduler retries it.
    loop {
        let before = waiting.len();
        let mut pending = Vec::new();
        for pod in waiting {
            let nominated = targets.get(pod.uid.as_str()).and_then(|name| numbers.get(name)).copied();
            let fits = |node: &usize| state.filter(pod.shape, *node, &Nominated::default()).is_ok();
            if let Some(node) = nominated.filter(fits) {
                state.bind(pod.shape, node);
                bound.insert(pod.uid.to_string(), state.node_name(node).to_string());
            } else {
                pending.push(pod);
            }
        }
        waiting = pending;
        if waiting.len() == before {
            break;
        }
    }
    // Controllers create pods in the order in which evicted ones end.
    let order = |pod: &PodSlot| (Reverse(pod.priority), sequence(pod.uid.as_str(), snapshot.now.0));
    waiting.sort_by_cached_key(order);
    for pod in waiting {
        let fits = |node: &usize| state.filter(pod.shape, *node, &Nominated::default()).is_ok();
        let nodes: Vec<usize> = (0..state.nodes()).filter(fits).collect();
        if let Some(node) = state.best(pod.shape, &nodes) {
            state.bind(pod.shape, node);
            bound.insert(pod.uid.to_string(), state.node_name(node).to_string());
        }
    }
    bound
}

/// A number that depends on the name and the time (FNV-1a).
fn sequence(name: &str, time: i64) -> u64 {
    let bytes = name.bytes().chain(time.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
