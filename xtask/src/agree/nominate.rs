//! Tells kube-scheduler which node the plan has for a pod, as the actuator does: before it looks at them for those that may be nominated at
//! once, for the others as soon as they may, and again where it took a nomination back.

use super::play::Shared;
use super::scene::{Scene, Wanted, full_name};
use super::stage::Stage;
use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Pod;
use plimsoll_snapshot::nominations::{self, Wish};
use std::collections::BTreeMap;
use std::time::Duration;

/// Changes come in bursts and are looked at together, in the actuator as here.
const COALESCE: Duration = Duration::from_millis(100);
/// Times that a pod is nominated, as in the actuator: one that is refused beyond it does not fit there.
const MAX_TRIES: u32 = 10;

/// Makes pods that the plan places.
pub(super) async fn bring(shared: &Shared, stage: &Stage, scene: &Scene, wanted: &[Wanted]) -> Result<()> {
    let wishes: Vec<Wish<'_>> = wanted.iter().map(|it| Wish { pod: &it.pod, node: &it.node, stands: false }).collect();
    let nodes = scene.node_objects();
    let may = if shared.own_order { vec![false; wanted.len()] } else { nominations::at_once(&wishes, &nodes) };
    let node = |it: &Wanted| scene.isolation.name(&it.node);
    let pods: Vec<(&Pod, Option<String>)> =
        wanted.iter().zip(may).map(|(it, may)| (&it.pod, may.then(|| node(it)))).collect();
    stage.nominated(&pods).await
}

/// Takes back what was nominated by a plan that another one has replaced.
pub(super) async fn take_back(stage: &Stage, before: &[Wanted], now: &[Wanted]) -> Result<()> {
    let nodes: BTreeMap<&str, &str> = now.iter().map(|it| (it.name.as_str(), it.node.as_str())).collect();
    for it in before.iter().filter(|it| nodes.get(it.name.as_str()) != Some(&it.node.as_str())) {
        stage.nominate(&it.pod, None).await?;
    }
    Ok(())
}

/// Nominates while `deed` goes on.
pub(super) async fn during<T>(
    shared: &Shared,
    stage: &Stage,
    scene: &Scene,
    wanted: &[Wanted],
    deed: impl Future<Output = Result<T>>,
) -> Result<T> {
    if shared.own_order {
        return deed.await;
    }
    tokio::select! {
        biased;
        done = deed => done,
        ended = keep(shared, stage, scene, wanted) => { ended?; bail!("nobody nominates pods any more") }
    }
}

/// Nominates whenever something has changed.
async fn keep(shared: &Shared, stage: &Stage, scene: &Scene, wanted: &[Wanted]) -> Result<()> {
    let named = |it: &Wanted| (full_name(&it.pod.metadata), scene.isolation.name(&it.node), it.pod.clone());
    let wanted: Vec<(String, String, Pod)> = wanted.iter().map(named).collect();
    let nodes = scene.node_objects();
    let mut changes = shared.board.changes(stage.seed());
    let mut tried: BTreeMap<String, u32> = BTreeMap::new();
    loop {
        changes.mark_unchanged();
        let pods = shared.board.pods(stage.seed());
        let stands = |name: &str, node: &str| pods.get(name).and_then(|seen| seen.nominated.as_deref()) == Some(node);
        let waits = |(name, ..): &&(String, String, Pod)| pods.get(name).is_some_and(|seen| seen.node.is_none());
        let waiting: Vec<&(String, String, Pod)> = wanted.iter().filter(waits).collect();
        let wishes: Vec<Wish<'_>> =
            waiting.iter().map(|(name, node, pod)| Wish { pod, node, stands: stands(name, node) }).collect();
        let may = nominations::at_once(&wishes, &nodes);
        for ((name, ..), (wish, may)) in waiting.iter().zip(wishes.iter().zip(may)) {
            if !may && wish.stands {
                stage.nominate(wish.pod, None).await?;
            }
            let count = tried.entry(name.clone()).or_default();
            if may && !wish.stands && *count < MAX_TRIES {
                *count += 1;
                stage.nominate(wish.pod, Some(wish.node)).await?;
            }
        }
        changes.changed().await?;
        tokio::time::sleep(COALESCE).await;
    }
}
