//! Regressions that once stalled scaling or launched nodes without end, together in one environment: each case has its
//! own NodePool.

mod leases;

use super::super::objects::SOON;
use super::super::{Context, Figure};
use crate::harness::audit;
use crate::harness::kubectl::condition;
use crate::harness::wait::until_true;
use crate::harness::world::World;
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use std::time::{Duration, Instant};

const POOLS: &str = include_str!("../manifests/regressions.yaml");
const WORKLOADS: &str = include_str!("../manifests/regressions-workloads.yaml");

/// In an endless replacement, a node is replaced every 12 to 60 s.
const WATCHED: Duration = Duration::from_secs(300);
/// Polling interval. Reading the audit log takes a moment, and a launch stays in the log.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Time from the launch of the first node to the deletion of its claim: `expireAfter`, and a plan.
const EXPIRED: Duration = Duration::from_secs(60 + 30);
/// Grace period of the pod, and start of its successor.
const RESTARTED: Duration = Duration::from_secs(30 + 60);

/// NodePools of the watched cases, with the maximum number of launched instances: the first node, and its one
/// replacement.
const MOST: [(&str, usize); 3] = [("expiry", 2), ("drift", 2), ("restart", 1)];

pub(super) fn play(_: &Context, world: &mut World) -> Result<Vec<Figure>> {
    world.cluster.kubectl.apply(&POOLS.replace("CLUSTER", &world.cloud.cluster))?;
    let mut figures = Vec::new();
    let mut troubles = Vec::new();
    note(leases::watcher(world), &mut figures, &mut troubles);
    note(leases::actuator(world), &mut figures, &mut troubles);

    world.cluster.kubectl.apply(WORKLOADS)?;
    for app in ["free", "held", "guarded", "db"] {
        world.wait_ready(app, 1, SOON)?;
    }
    let began = Instant::now();
    let expiring = claims(world, "expiry")?;
    let (node, pod) = place_of_db(world)?;
    patch_pool(world, "expiry", r#"{"spec":{"template":{"spec":{"expireAfter":"Never"}}}}"#)?;
    patch_pool(world, "drift", r#"{"spec":{"template":{"metadata":{"labels":{"plimsoll.test/version":"2"}}}}}"#)?;
    world.cluster.kubectl.run(&["rollout", "restart", "statefulset/db", "-n", "default"])?;

    note(expired(world, &expiring, began), &mut figures, &mut troubles);
    note(restarted(world, &node, &pod), &mut figures, &mut troubles);
    note(nothing_bought_again(world, began), &mut figures, &mut troubles);
    if !troubles.is_empty() {
        bail!("{}", troubles.join("; "));
    }
    Ok(figures)
}

/// Records a failed case without stopping the other cases.
fn note(case: Result<Figure>, figures: &mut Vec<Figure>, troubles: &mut Vec<String>) {
    match case {
        Ok(figure) => figures.push(figure),
        Err(error) => troubles.push(format!("{error:#}")),
    }
}

/// The claims of a NodePool.
fn claims(world: &World, pool: &str) -> Result<Vec<Value>> {
    world.cluster.kubectl.list(&["nodeclaims", "-l", &format!("karpenter.sh/nodepool={pool}")])
}

fn patch_pool(world: &World, pool: &str, patch: &str) -> Result<()> {
    world.cluster.kubectl.run(&["patch", "nodepool", pool, "--type=merge", "-p", patch]).map(drop)
}

/// Node and UID of the StatefulSet's ready pod.
fn place_of_db(world: &World) -> Result<(String, String)> {
    let pods = world.pods("db")?;
    let pod = pods.iter().find(|pod| condition(pod, "Ready")).context("db-0 is not ready")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok((text(&pod["spec"]["nodeName"]), text(&pod["metadata"]["uid"])))
}

/// The claim of an expired node is deleted although a pod on it must not be disrupted.
fn expired(world: &World, claims_before: &[Value], began: Instant) -> Result<Figure> {
    let name = match claims_before {
        [claim] => claim["metadata"]["name"].as_str().context("a claim without name")?,
        _ => bail!("the pods free and held have {} nodes, but one node fits both", claims_before.len()),
    };
    until_true("expiry: the claim of the expired node is deleted", EXPIRED, || {
        let all = claims(world, "expiry")?;
        let claim = all.iter().find(|claim| claim["metadata"]["name"] == name);
        Ok((claim.is_none_or(|it| !it["metadata"]["deletionTimestamp"].is_null()), format!("{name} stays")))
    })?;
    Ok(("expired node", format!("its claim is deleted {:.0} s after its pods ran", began.elapsed().as_secs_f64())))
}

/// Checks that the node of a StatefulSet's pod still exists for its successor.
fn restarted(world: &World, node: &str, pod: &str) -> Result<Figure> {
    let mut place = String::new();
    until_true("restart: the successor of db-0 is ready", RESTARTED, || {
        let pods = world.pods("db")?;
        let ready = pods.iter().find(|it| it["metadata"]["uid"] != pod && condition(it, "Ready"));
        place = ready.and_then(|it| it["spec"]["nodeName"].as_str()).unwrap_or_default().to_owned();
        Ok((ready.is_some(), "it is not".to_owned()))
    })?;
    ensure!(place == node, "restart: db-0 was on {node} and came back on {place}");
    Ok(("restarted StatefulSet", "its pod came back on its node".to_owned()))
}

/// Counts the launches of each pool until the time has passed.
fn nothing_bought_again(world: &World, began: Instant) -> Result<Figure> {
    let mut looked: Option<Instant> = None;
    let mut bought = Vec::new();
    until_true("no repeated launches", WATCHED + SOON, || {
        if looked.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return Ok((false, "watching".to_owned()));
        }
        let audit = world.cluster.audit()?;
        bought = MOST.iter().map(|(pool, most)| (*pool, audit::launched_claims_of(&audit, pool), *most)).collect();
        let over = began.elapsed() > WATCHED;
        looked = Some(Instant::now());
        Ok((over, "watching".to_owned()))
    })?;
    let too_many: Vec<String> = bought
        .iter()
        .filter(|(_, count, most)| count > most)
        .map(|(pool, count, most)| format!("{pool}: {count} instances were launched, at most {most} are needed"))
        .collect();
    ensure!(too_many.is_empty(), "{}", too_many.join("; "));
    let counts: Vec<String> = bought.iter().map(|(pool, count, _)| format!("{pool} {count}")).collect();
    Ok(("instances launched in five minutes", counts.join(", ")))
}
