//! One case: the planned nodes are made, kube-scheduler binds, and what it did is compared with the plan.

use super::anew;
use super::board::{Board, Pods, Seen};
use super::case::Planned;
use super::nominate::{self, bring};
use super::probe;
use super::report::{Bindable, Outcome, Unbound};
use super::scene::{Scene, Wanted, full_name};
use super::stage::Stage;
use super::witness;
use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use std::sync::Arc;
use std::time::Duration;

/// A refused pod is tried again after at most 1 s (the control plane's configuration) and a look each second, if anything changed for it.
pub(super) const QUIET: Duration = Duration::from_secs(3);
/// The longest wait for kube-scheduler: a hundred times what the pods of one case take it, since many cases wait beside each other.
pub(super) const LIMIT: Duration = Duration::from_secs(120);

/// Looks at a case whose pods are still being tried again.
const MAX_LOOKS: usize = 10;
/// Rounds over pods without one more where the plan has it: a deleted pod may have been in the way of the first.
const MAX_IDLE: usize = 2;

/// What all cases share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) client: Client,
    pub(super) board: Arc<Board>,
    /// Pods come without nominated nodes.
    pub(super) own_order: bool,
    /// The cases were played before, and may have left something.
    pub(super) again: bool,
}

/// Plays the case. What goes wrong with the play itself is in the outcome.
pub(super) async fn play(shared: &Shared, planned: &Arc<Planned>, title: &str) -> Outcome {
    let mut outcome = Outcome::new(planned.seed, title);
    let stage = Stage::new(shared.client.clone(), planned.seed);
    let played = async {
        let scene = Scene::new(planned)?;
        outcome.nodes = planned.plan.launches.len();
        outcome.wanted = scene.wanted.len();
        outcome.left = scene.left.len();
        if shared.again {
            strike(shared, planned, &scene, &stage).await?;
        }
        let done = whole(shared, planned, &scene, &stage, &mut outcome).await;
        stage.strike(&scene).await?;
        done
    };
    if let Err(error) = played.await {
        outcome.error = Some(format!("{error:#}"));
    }
    shared.board.forget(planned.seed);
    outcome
}

async fn whole(
    shared: &Shared,
    planned: &Arc<Planned>,
    scene: &Scene,
    stage: &Stage,
    outcome: &mut Outcome,
) -> Result<()> {
    stage.set(scene).await?;
    witness::nodes_are_known(shared, stage, scene).await?;
    bring(shared, stage, scene, &scene.wanted).await?;
    let look = || nominate::during(shared, stage, scene, &scene.wanted, unbound(shared, stage, scene, &scene.wanted));
    let mut unbound = look().await?;
    if !unbound.is_empty() {
        // Once more from the start: whether a pod waited for another must not count.
        let again: Vec<Pod> = unbound.iter().map(|it| it.pod.clone()).collect();
        stage.without(&again).await?;
        bring(shared, stage, scene, &unbound).await?;
        unbound = look().await?;
    }
    outcome.wayward = unbound.len();
    if !shared.own_order {
        unbound = anew::rounds(shared, planned, scene, stage, unbound, outcome).await?;
    }
    if unbound.is_empty() {
        leave(shared, planned, scene, stage, outcome).await?;
        let pods = shared.board.pods(planned.seed);
        if outcome.bindable.is_empty() || strayed(scene, &pods).is_empty() {
            return Ok(());
        }
        // A pod elsewhere than the plan has it may have left room that the plan does not have.
        let mut other = Outcome::new(planned.seed, "");
        if as_planned(shared, planned, scene, stage, &mut other).await? {
            outcome.bindable.clear();
            leave(shared, planned, scene, stage, outcome).await?;
        }
        return Ok(());
    }
    let pods = shared.board.pods(planned.seed);
    for it in &unbound {
        let seen = pods.get(&full_name(&it.pod.metadata)).cloned().unwrap_or_default();
        outcome.unbound.push(Unbound {
            pod: it.name.clone(),
            node: it.node.clone(),
            message: seen.refused.unwrap_or_default(),
        });
    }
    outcome.strayed = strayed(scene, &pods);
    let report = plimsoll_solver::replay(&planned.snapshot, &planned.catalogs, &planned.plan);
    outcome.foretold = report.map(|it| (it.stranding, it.runs));
    outcome.as_planned = Some(as_planned(shared, planned, scene, stage, outcome).await?);
    Ok(())
}

/// Pods that are elsewhere than the plan has them.
fn strayed(scene: &Scene, pods: &Pods) -> Vec<String> {
    let elsewhere = |it: &Wanted| {
        let node = pods.get(&full_name(&it.pod.metadata))?.node.as_deref().map(|node| scene.isolation.plain(node))?;
        (node != it.node).then(|| format!("{} on {node}, planned for {}", it.name, it.node))
    };
    scene.wanted.iter().filter_map(elsewhere).collect()
}

/// Pods of these that kube-scheduler does not bind.
pub(super) async fn unbound(shared: &Shared, stage: &Stage, scene: &Scene, wanted: &[Wanted]) -> Result<Vec<Wanted>> {
    let names: Vec<String> = wanted.iter().map(|it| full_name(&it.pod.metadata)).collect();
    let bound = |pods: &Pods, name: &String| pods.get(name).is_some_and(|seen| seen.node.is_some());
    let done = |pods: &Pods| names.iter().all(|name| bound(pods, name));
    let decided =
        |pods: &Pods, name: &String| bound(pods, name) || pods.get(name).is_some_and(|seen| seen.refused.is_some());
    let settled = |pods: &Pods| names.iter().all(|name| decided(pods, name));
    let seed = stage.seed();
    for _ in 0..MAX_LOOKS {
        if shared.board.wait(seed, (QUIET, LIMIT), done, settled).await {
            return Ok(Vec::new());
        }
        let before = shared.board.pods(seed);
        if let Some(silent) = names.iter().find(|name| !decided(&before, name)) {
            bail!("kube-scheduler said nothing about {silent} within {} s", LIMIT.as_secs());
        }
        // It may be busy with other cases: what comes after these pods is looked at after them.
        tried(shared, stage, &scene.nobodys()).await?;
        let pods = shared.board.pods(seed);
        if names.iter().all(|name| pods.get(name).map(Seen::state) == before.get(name).map(Seen::state)) {
            let left = wanted.iter().zip(&names).filter(|(_, name)| !bound(&pods, name));
            return Ok(left.map(|(it, _)| it.clone()).collect());
        }
    }
    bail!("kube-scheduler does not come to an end with the case")
}

/// Whether there is an order in which kube-scheduler binds every pod where the plan has it, one pod at a time: then nothing about the
/// plan is against its rules, and only the order in which it went about the pods differs.
async fn as_planned(
    shared: &Shared,
    planned: &Planned,
    scene: &Scene,
    stage: &Stage,
    outcome: &mut Outcome,
) -> Result<bool> {
    strike(shared, planned, scene, stage).await?;
    stage.set(scene).await?;
    witness::nodes_are_known(shared, stage, scene).await?;
    let mut waiting: Vec<(&Wanted, String)> = scene.wanted.iter().map(|it| (it, String::new())).collect();
    let mut idle = 0;
    while !waiting.is_empty() && idle < MAX_IDLE {
        let mut next = Vec::new();
        let before = waiting.len();
        for (it, _) in waiting {
            let node = scene.isolation.name(&it.node);
            stage.nominated(&[(&it.pod, Some(node.clone()))]).await?;
            let seen = verdict(shared, planned.seed, &it.pod).await?;
            if seen.node.as_ref() != Some(&node) {
                remove(shared, stage, &it.pod).await?;
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

/// Removes all of the case, and waits until it is gone.
async fn strike(shared: &Shared, planned: &Planned, scene: &Scene, stage: &Stage) -> Result<()> {
    stage.strike(scene).await?;
    let names: Vec<String> = scene.wanted.iter().map(|it| full_name(&it.pod.metadata)).collect();
    let gone = |pods: &Pods| names.iter().all(|name| !pods.contains_key(name));
    if !shared.board.wait(planned.seed, (LIMIT, LIMIT), gone, |_| false).await {
        bail!("deleted pods are still there after {} s", LIMIT.as_secs());
    }
    Ok(())
}

/// What kube-scheduler says first about a pod.
async fn verdict(shared: &Shared, seed: u64, pod: &Pod) -> Result<Seen> {
    let name = full_name(&pod.metadata);
    let done = |pods: &Pods| pods.get(&name).is_some_and(|seen| seen.node.is_some() || seen.refused.is_some());
    if !shared.board.wait(seed, (LIMIT, LIMIT), done, |_| false).await {
        bail!("kube-scheduler said nothing about {name} within {} s", LIMIT.as_secs());
    }
    Ok(shared.board.pods(seed).remove(&name).unwrap_or_default())
}

pub(super) async fn remove(shared: &Shared, stage: &Stage, pod: &Pod) -> Result<()> {
    let name = full_name(&pod.metadata);
    stage.without(std::slice::from_ref(pod)).await?;
    let gone = |pods: &Pods| !pods.contains_key(&name);
    shared.board.wait(stage.seed(), (LIMIT, LIMIT), gone, |_| false).await;
    Ok(())
}

/// Whether kube-scheduler binds a pod that the plan calls unschedulable: as things are, or on a node that a pool could buy.
async fn leave(shared: &Shared, planned: &Planned, scene: &Scene, stage: &Stage, outcome: &mut Outcome) -> Result<()> {
    for left in probe::one_of_each_shape(&scene.left) {
        if let Some(node) = tried(shared, stage, &left.pod).await? {
            outcome.bindable.push(Bindable { pod: left.name.clone(), on: node, what: "as things are".to_owned() });
            continue;
        }
        for node in probe::candidates(planned, scene, left.shape) {
            outcome.probes += 1;
            let daemons = scene.daemons(planned, &node);
            if let Some(driver) = node.driver(&scene.isolation) {
                stage.driver(&driver).await?;
            }
            stage.node(&node.object(&scene.isolation)).await?;
            stage.pods(&daemons).await?;
            let bound = tried(shared, stage, &left.pod).await?;
            stage.without(&daemons).await?;
            stage.without_node(&scene.isolation.name(&node.name)).await?;
            if let Some(on) = bound {
                let what = format!("with {} of NodePool {}", node.what, node.pool());
                outcome.bindable.push(Bindable { pod: left.name.clone(), on, what });
                break;
            }
        }
    }
    Ok(())
}

/// The node that a pod is bound to when it is made now; it is removed again.
async fn tried(shared: &Shared, stage: &Stage, pod: &Pod) -> Result<Option<String>> {
    let name = full_name(&pod.metadata);
    stage.pods(std::slice::from_ref(pod)).await?;
    verdict(shared, stage.seed(), pod).await?;
    // A node that it has not heard of yet is news that it tries the pod again for.
    let done = |pods: &Pods| pods.get(&name).is_some_and(|seen| seen.node.is_some());
    shared.board.wait(stage.seed(), (QUIET, LIMIT), done, |_| true).await;
    let seen = shared.board.pods(stage.seed()).remove(&name).unwrap_or_default();
    remove(shared, stage, pod).await?;
    Ok(seen.node)
}
