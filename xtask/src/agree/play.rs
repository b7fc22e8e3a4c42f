//! Runs one case: creates the planned nodes, lets kube-scheduler bind the pods, and compares the result with the plan.

use super::await_nodes;
use super::case::Planned;
use super::case_client::CaseClient;
use super::case_objects::{CaseObjects, Wanted};
use super::nominate::{self, bring};
use super::pod_watch::{PodRecord, PodWatch, Pods};
use super::probe;
use super::replan;
use super::report::{Bindable, Outcome, Unbound};
use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use plimsoll_snapshot::full_name;
use std::sync::Arc;
use std::time::Duration;

/// Time without changes after which a case is settled. kube-scheduler retries a rejected pod after at most 1 s
/// (configuration of the control plane), and checks each second whether anything changed for it.
pub(super) const QUIET: Duration = Duration::from_secs(3);
/// Maximum wait for kube-scheduler: a hundred times what the pods of one case take, because many cases run in parallel.
pub(super) const LIMIT: Duration = Duration::from_secs(120);

/// Maximum number of checks of a case whose pods are still being retried.
const MAX_LOOKS: usize = 10;
/// Maximum number of rounds in which no further pod is bound to its planned node: in the first round, a pod that is
/// deleted now may have blocked others.
const MAX_IDLE: usize = 2;

/// Shared state of all cases.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) client: Client,
    pub(super) pod_watch: Arc<PodWatch>,
    /// Whether pods are created without nominated nodes.
    pub(super) own_order: bool,
    /// Whether the cases were run before, and may have left objects.
    pub(super) again: bool,
}

/// Runs the case. Errors of the run are part of the outcome.
pub(super) async fn play(shared: &Shared, planned: &Arc<Planned>, title: &str) -> Outcome {
    let mut outcome = Outcome::new(planned.seed, title);
    let case_client = CaseClient::new(shared.client.clone(), planned.seed);
    let played = async {
        let case_objects = CaseObjects::new(planned)?;
        outcome.nodes = planned.plan.launches.len();
        outcome.wanted = case_objects.wanted.len();
        outcome.left = case_objects.left.len();
        if shared.again {
            delete_and_wait(shared, planned, &case_objects, &case_client).await?;
        }
        let done = whole(shared, planned, &case_objects, &case_client, &mut outcome).await;
        case_client.delete_objects(&case_objects).await?;
        done
    };
    if let Err(error) = played.await {
        outcome.error = Some(format!("{error:#}"));
    }
    shared.pod_watch.forget(planned.seed);
    outcome
}

async fn whole(
    shared: &Shared,
    planned: &Arc<Planned>,
    case_objects: &CaseObjects,
    case_client: &CaseClient,
    outcome: &mut Outcome,
) -> Result<()> {
    case_client.create_objects(case_objects).await?;
    await_nodes::nodes_are_known(shared, case_client, case_objects).await?;
    bring(shared, case_client, case_objects, &case_objects.wanted).await?;
    let look = || {
        nominate::during(
            shared,
            case_client,
            case_objects,
            &case_objects.wanted,
            unbound(shared, case_client, case_objects, &case_objects.wanted),
        )
    };
    let mut unbound = look().await?;
    if !unbound.is_empty() {
        // Once more from the start, so that the order of the pods does not matter.
        let again: Vec<Pod> = unbound.iter().map(|it| it.pod.clone()).collect();
        case_client.delete_pods(&again).await?;
        bring(shared, case_client, case_objects, &unbound).await?;
        unbound = look().await?;
    }
    outcome.wayward = unbound.len();
    if !shared.own_order {
        unbound = replan::rounds(shared, planned, case_objects, case_client, unbound, outcome).await?;
    }
    if unbound.is_empty() {
        leave(shared, planned, case_objects, case_client, outcome).await?;
        let pods = shared.pod_watch.pods(planned.seed);
        if outcome.bindable.is_empty() || strayed(case_objects, &pods).is_empty() {
            return Ok(());
        }
        // A pod on another node than planned may leave capacity that the plan does not have.
        let mut other = Outcome::new(planned.seed, "");
        if as_planned(shared, planned, case_objects, case_client, &mut other).await? {
            outcome.bindable.clear();
            leave(shared, planned, case_objects, case_client, outcome).await?;
        }
        return Ok(());
    }
    let pods = shared.pod_watch.pods(planned.seed);
    for it in &unbound {
        let seen = pods.get(&full_name(&it.pod.metadata)).cloned().unwrap_or_default();
        outcome.unbound.push(Unbound {
            pod: it.name.clone(),
            node: it.node.clone(),
            message: seen.refused.unwrap_or_default(),
        });
    }
    outcome.strayed = strayed(case_objects, &pods);
    let report = plimsoll_solver::replay(&planned.snapshot, &planned.catalogs, &planned.plan);
    outcome.foretold = report.map(|it| (it.stranding, it.runs));
    outcome.as_planned = Some(as_planned(shared, planned, case_objects, case_client, outcome).await?);
    Ok(())
}

/// Pods on other nodes than planned.
fn strayed(case_objects: &CaseObjects, pods: &Pods) -> Vec<String> {
    let elsewhere = |it: &Wanted| {
        let node =
            pods.get(&full_name(&it.pod.metadata))?.node.as_deref().map(|node| case_objects.isolation.plain(node))?;
        (node != it.node).then(|| format!("{} on {node}, planned for {}", it.name, it.node))
    };
    case_objects.wanted.iter().filter_map(elsewhere).collect()
}

/// The pods that kube-scheduler does not bind.
pub(super) async fn unbound(
    shared: &Shared,
    case_client: &CaseClient,
    case_objects: &CaseObjects,
    wanted: &[Wanted],
) -> Result<Vec<Wanted>> {
    let names: Vec<String> = wanted.iter().map(|it| full_name(&it.pod.metadata)).collect();
    let bound = |pods: &Pods, name: &String| pods.get(name).is_some_and(|seen| seen.node.is_some());
    let done = |pods: &Pods| names.iter().all(|name| bound(pods, name));
    let decided =
        |pods: &Pods, name: &String| bound(pods, name) || pods.get(name).is_some_and(|seen| seen.refused.is_some());
    let settled = |pods: &Pods| names.iter().all(|name| decided(pods, name));
    let seed = case_client.seed();
    for _ in 0..MAX_LOOKS {
        if shared.pod_watch.wait(seed, (QUIET, LIMIT), done, settled).await {
            return Ok(Vec::new());
        }
        let before = shared.pod_watch.pods(seed);
        if let Some(silent) = names.iter().find(|name| !decided(&before, name)) {
            bail!("kube-scheduler said nothing about {silent} within {} s", LIMIT.as_secs());
        }
        // kube-scheduler may be busy with other cases. It evaluates a later pod only after these pods.
        tried(shared, case_client, &case_objects.nobodys()).await?;
        let pods = shared.pod_watch.pods(seed);
        if names.iter().all(|name| pods.get(name).map(PodRecord::state) == before.get(name).map(PodRecord::state)) {
            let unbound_pods = wanted.iter().zip(&names).filter(|(_, name)| !bound(&pods, name));
            return Ok(unbound_pods.map(|(it, _)| it.clone()).collect());
        }
    }
    bail!("kube-scheduler does not come to an end with the case")
}

/// Whether there is an order in which kube-scheduler binds every pod to its planned node, one pod at a time. If so, the
/// plan respects all rules, and only the order of the pods caused the difference.
async fn as_planned(
    shared: &Shared,
    planned: &Planned,
    case_objects: &CaseObjects,
    case_client: &CaseClient,
    outcome: &mut Outcome,
) -> Result<bool> {
    delete_and_wait(shared, planned, case_objects, case_client).await?;
    case_client.create_objects(case_objects).await?;
    await_nodes::nodes_are_known(shared, case_client, case_objects).await?;
    let mut waiting: Vec<(&Wanted, String)> = case_objects.wanted.iter().map(|it| (it, String::new())).collect();
    let mut idle = 0;
    while !waiting.is_empty() && idle < MAX_IDLE {
        let mut next = Vec::new();
        let before = waiting.len();
        for (it, _) in waiting {
            let node = case_objects.isolation.name(&it.node);
            case_client.nominated(&[(&it.pod, Some(node.clone()))]).await?;
            let seen = verdict(shared, planned.seed, &it.pod).await?;
            if seen.node.as_ref() != Some(&node) {
                remove(shared, case_client, &it.pod).await?;
                next.push((it, seen.refused.or(seen.node).unwrap_or_default()));
            }
        }
        idle = if next.len() < before { 0 } else { idle + 1 };
        waiting = next;
    }
    for (it, message) in &waiting {
        outcome.against.push(Unbound { pod: it.name.clone(), node: it.node.clone(), message: message.clone() });
    }
    Ok(waiting.is_empty())
}

/// Removes all objects of the case, and waits until they are gone.
async fn delete_and_wait(
    shared: &Shared,
    planned: &Planned,
    case_objects: &CaseObjects,
    case_client: &CaseClient,
) -> Result<()> {
    case_client.delete_objects(case_objects).await?;
    let names: Vec<String> = case_objects.wanted.iter().map(|it| full_name(&it.pod.metadata)).collect();
    let gone = |pods: &Pods| names.iter().all(|name| !pods.contains_key(name));
    if !shared.pod_watch.wait(planned.seed, (LIMIT, LIMIT), gone, |_| false).await {
        bail!("deleted pods are still there after {} s", LIMIT.as_secs());
    }
    Ok(())
}

/// First scheduling result of a pod.
async fn verdict(shared: &Shared, seed: u64, pod: &Pod) -> Result<PodRecord> {
    let name = full_name(&pod.metadata);
    let done = |pods: &Pods| pods.get(&name).is_some_and(|seen| seen.node.is_some() || seen.refused.is_some());
    if !shared.pod_watch.wait(seed, (LIMIT, LIMIT), done, |_| false).await {
        bail!("kube-scheduler said nothing about {name} within {} s", LIMIT.as_secs());
    }
    Ok(shared.pod_watch.pods(seed).remove(&name).unwrap_or_default())
}

pub(super) async fn remove(shared: &Shared, case_client: &CaseClient, pod: &Pod) -> Result<()> {
    let name = full_name(&pod.metadata);
    case_client.delete_pods(std::slice::from_ref(pod)).await?;
    let gone = |pods: &Pods| !pods.contains_key(&name);
    shared.pod_watch.wait(case_client.seed(), (LIMIT, LIMIT), gone, |_| false).await;
    Ok(())
}

/// Whether kube-scheduler binds a pod that the plan calls unschedulable, in the current cluster or on a node that a
/// pool could launch.
async fn leave(
    shared: &Shared,
    planned: &Planned,
    case_objects: &CaseObjects,
    case_client: &CaseClient,
    outcome: &mut Outcome,
) -> Result<()> {
    for left in probe::one_of_each_shape(&case_objects.left) {
        if let Some(node) = tried(shared, case_client, &left.pod).await? {
            outcome.bindable.push(Bindable { pod: left.name.clone(), on: node, what: "as things are".to_owned() });
            continue;
        }
        for node in probe::candidates(planned, case_objects, left.shape) {
            outcome.probes += 1;
            let daemons = case_objects.daemons(planned, &node);
            if let Some(driver) = node.driver(&case_objects.isolation) {
                case_client.driver(&driver).await?;
            }
            case_client.node(&node.object(&case_objects.isolation)).await?;
            case_client.pods(&daemons).await?;
            let bound = tried(shared, case_client, &left.pod).await?;
            case_client.delete_pods(&daemons).await?;
            case_client.delete_node(&case_objects.isolation.name(&node.name)).await?;
            if let Some(on) = bound {
                let what = format!("with {} of NodePool {}", node.what, node.pool());
                outcome.bindable.push(Bindable { pod: left.name.clone(), on, what });
                break;
            }
        }
    }
    Ok(())
}

/// The node that a new pod is bound to; the pod is deleted again.
async fn tried(shared: &Shared, case_client: &CaseClient, pod: &Pod) -> Result<Option<String>> {
    let name = full_name(&pod.metadata);
    case_client.pods(std::slice::from_ref(pod)).await?;
    verdict(shared, case_client.seed(), pod).await?;
    // When kube-scheduler learns of a new node, it retries the pod.
    let done = |pods: &Pods| pods.get(&name).is_some_and(|seen| seen.node.is_some());
    shared.pod_watch.wait(case_client.seed(), (QUIET, LIMIT), done, |_| true).await;
    let seen = shared.pod_watch.pods(case_client.seed()).remove(&name).unwrap_or_default();
    remove(shared, case_client, pod).await?;
    Ok(seen.node)
}
