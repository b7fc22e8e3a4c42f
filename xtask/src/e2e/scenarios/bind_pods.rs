//! `--bind-pods` beside the real kube-scheduler: every pod is bound once, and the actuator binds pods only to nodes
//! that a recorded plan has for them.

use super::super::{Context, Figure, objects};
use crate::harness::audit::Entry;
use crate::harness::services::Kind;
use crate::harness::world::World;
use anyhow::{Context as _, Result, ensure};
use plimsoll_recording::{Reader, Step, files};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

const PODS: usize = 300;
/// CPU of a pod in thousandths: about seventeen fit on a node.
const MILLIS: u32 = 100;
/// Twenty nodes, and hundreds of pods that start.
const READY: Duration = Duration::from_secs(240);
/// Status with which the API server logs a request whose client has given up.
const TIMEOUT: u64 = 504;

pub(super) fn play(_: &Context, world: &mut World) -> Result<Vec<Figure>> {
    world.apply_file("docs/examples/bind-pods/rbac.yaml")?;
    let services = world.services()?;
    let recording = services.dir.join("recording");
    for replica in &mut services.replicas {
        match replica.kind {
            Kind::Actuator => replica.args.push("--bind-pods".to_owned()),
            Kind::Watcher => replica.args.push(format!("--record-to={}", recording.display())),
            Kind::Scheduler => {}
        }
    }
    services.restart(Kind::Actuator)?;
    services.restart(Kind::Watcher)?;
    world.apply_pool()?;
    world.cluster.kubectl.apply(&objects::deployment("web", PODS, MILLIS))?;
    let begun = Instant::now();
    let nodes = world.wait_ready("web", PODS, READY)?;
    let took = begun.elapsed();

    let pods = world.pods("web")?;
    ensure!(pods.len() == PODS, "{} pods instead of {PODS}: a node has rejected some", pods.len());
    let bindings = bindings(&world.cluster.audit()?)?;
    let planned = planned(world, &recording)?;
    let mut ours = 0;
    for pod in &pods {
        let (name, node) = (text(&pod["metadata"]["name"])?, text(&pod["spec"]["nodeName"])?);
        let bound = bindings.get(name).with_context(|| format!("nobody has bound pod {name}"))?;
        ensure!(bound.len() == 1, "pod {name} was bound {} times: {bound:?}", bound.len());
        let Some((target, is_ours)) = bound.first() else { continue };
        ensure!(target == node, "pod {name} is on {node}, and was bound to {target}");
        if *is_ours {
            ours += 1;
            let nodes = planned.get(text(&pod["metadata"]["uid"])?).with_context(|| format!("no plan has {name}"))?;
            ensure!(nodes.contains(node), "pod {name} was bound to {node}, and planned for {nodes:?}");
        }
    }
    ensure!(ours > 0, "kube-scheduler has bound all pods");
    Ok(vec![
        ("pods ready", format!("{PODS} on {} nodes after {:.1} s", nodes.len(), took.as_secs_f64())),
        ("bound by the actuator", format!("{ours}, the others by kube-scheduler")),
        ("bound twice or elsewhere", "0".to_owned()),
    ])
}

/// Where a pod was bound, and whether the actuator bound it.
type Bindings = BTreeMap<String, BTreeSet<(String, bool)>>;

/// The bindings by pod. The API server executes some requests after their client has given up: these count for pods
/// without a successful one.
fn bindings(entries: &[Entry]) -> Result<Bindings> {
    let mut bindings = bindings_with(entries, |code| code < 300)?;
    for (pod, late) in bindings_with(entries, |code| code == TIMEOUT)? {
        bindings.entry(pod).or_insert(late);
    }
    Ok(bindings)
}

fn bindings_with(entries: &[Entry], answer: impl Fn(u64) -> bool) -> Result<Bindings> {
    let mut bindings = Bindings::new();
    for entry in entries.iter().filter(|entry| entry.resource == "pods/binding" && answer(entry.code)) {
        let target = text(&entry.request["target"]["name"])?.to_owned();
        bindings.entry(entry.name.clone()).or_default().insert((target, entry.service() == Some("actuator")));
    }
    Ok(bindings)
}

/// The nodes that the recorded plans have for each pod, by the pod's UID. A pod is planned again if kube-scheduler
/// binds another pod on its node.
fn planned(world: &World, recording: &Path) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let mut node_of = BTreeMap::new();
    for claim in world.cluster.kubectl.list(&["nodeclaims.karpenter.sh"])? {
        let action = text(&claim["metadata"]["annotations"]["plimsoll.dev/action-id"])?.to_owned();
        let node = text(&claim["status"]["nodeName"])?;
        node_of.insert(action, node.to_owned());
        node_of.insert(text(&claim["metadata"]["name"])?.to_owned(), node.to_owned());
    }
    let mut planned: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in files(recording)? {
        let mut reader = Reader::open(&file)?;
        while let Some(step) = reader.next_step()? {
            let Step::Planned(step) = step else { continue };
            let launches = step.plan.launches.iter().map(|launch| (&launch.action_id.0, &launch.pods));
            let placements = step.plan.placements.iter().map(|placement| (&placement.node.0, &placement.pods));
            for (target, pods) in launches.chain(placements) {
                let node = node_of.get(target).unwrap_or(target);
                for pod in pods {
                    planned.entry(pod.uid.0.clone()).or_default().insert(node.clone());
                }
            }
        }
    }
    Ok(planned)
}

fn text(value: &Value) -> Result<&str> {
    value.as_str().context("a field is missing or is no text")
}
