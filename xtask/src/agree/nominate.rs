//! Nominates the planned node of each pod, as the actuator does: before kube-scheduler evaluates the pods that are
//! admissible at once, for the others as soon as they are admissible, and again if kube-scheduler clears a nomination.

use super::case_client::CaseClient;
use super::case_objects::{CaseObjects, Wanted};
use super::play::Shared;
use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Pod as KubePod;
use plimsoll_api::Pod;
use plimsoll_snapshot::full_name;
use plimsoll_snapshot::nominations::{self, NominationRequest};
use std::collections::BTreeMap;
use std::time::Duration;

/// Changes arrive in bursts and are processed together, as in the actuator.
const COALESCE: Duration = Duration::from_millis(100);
/// Maximum number of nominations of a pod, as in the actuator: a pod that is rejected more often does not fit.
const MAX_TRIES: u32 = 10;

/// Creates the pods that the plan places.
pub(super) async fn bring(
    shared: &Shared,
    case_client: &CaseClient,
    case_objects: &CaseObjects,
    wanted: &[Wanted],
) -> Result<()> {
    let planned: Vec<Pod> = wanted.iter().map(|it| it.pod.clone().into()).collect();
    let requests: Vec<NominationRequest<'_>> = planned
        .iter()
        .zip(wanted)
        .map(|(pod, it)| NominationRequest { pod, node: &it.node, is_current: false })
        .collect();
    let nodes = case_objects.node_objects();
    let may = if shared.own_order { vec![false; wanted.len()] } else { nominations::admissible(&requests, &nodes) };
    let node = |it: &Wanted| case_objects.isolation.name(&it.node);
    let pods: Vec<(&KubePod, Option<String>)> =
        wanted.iter().zip(may).map(|(it, may)| (&it.pod, may.then(|| node(it)))).collect();
    case_client.nominated(&pods).await
}

/// Clears the nominations of a plan that was replaced.
pub(super) async fn take_back(case_client: &CaseClient, before: &[Wanted], now: &[Wanted]) -> Result<()> {
    let nodes: BTreeMap<&str, &str> = now.iter().map(|it| (it.name.as_str(), it.node.as_str())).collect();
    for it in before.iter().filter(|it| nodes.get(it.name.as_str()) != Some(&it.node.as_str())) {
        case_client.nominate(&it.pod, None).await?;
    }
    Ok(())
}

/// Nominates while `operation` runs.
pub(super) async fn during<T>(
    shared: &Shared,
    case_client: &CaseClient,
    case_objects: &CaseObjects,
    wanted: &[Wanted],
    operation: impl Future<Output = Result<T>>,
) -> Result<T> {
    if shared.own_order {
        return operation.await;
    }
    tokio::select! {
        biased;
        done = operation => done,
        ended = keep(shared, case_client, case_objects, wanted) => { ended?; bail!("the nomination task has ended") }
    }
}

/// Nominates after every change.
async fn keep(shared: &Shared, case_client: &CaseClient, case_objects: &CaseObjects, wanted: &[Wanted]) -> Result<()> {
    let named =
        |it: &Wanted| (full_name(&it.pod.metadata), case_objects.isolation.name(&it.node), it.pod.clone().into());
    let wanted: Vec<(String, String, Pod)> = wanted.iter().map(named).collect();
    let nodes = case_objects.node_objects();
    let mut changes = shared.pod_watch.changes(case_client.seed());
    let mut tried: BTreeMap<String, u32> = BTreeMap::new();
    loop {
        changes.mark_unchanged();
        let pods = shared.pod_watch.pods(case_client.seed());
        let is_current =
            |name: &str, node: &str| pods.get(name).and_then(|seen| seen.nominated.as_deref()) == Some(node);
        let waits = |(name, ..): &&(String, String, Pod)| pods.get(name).is_some_and(|seen| seen.node.is_none());
        let waiting: Vec<&(String, String, Pod)> = wanted.iter().filter(waits).collect();
        let requests: Vec<NominationRequest<'_>> = waiting
            .iter()
            .map(|(name, node, pod)| NominationRequest { pod, node, is_current: is_current(name, node) })
            .collect();
        let may = nominations::admissible(&requests, &nodes);
        for ((name, ..), (request, may)) in waiting.iter().zip(requests.iter().zip(may)) {
            if !may && request.is_current {
                case_client.nominate(request.pod, None).await?;
            }
            let count = tried.entry(name.clone()).or_default();
            if may && !request.is_current && *count < MAX_TRIES {
                *count += 1;
                case_client.nominate(request.pod, Some(request.node)).await?;
            }
        }
        changes.changed().await?;
        tokio::time::sleep(COALESCE).await;
    }
}
