//! `--bind-pods` beside the real kube-scheduler: every pod is bound once, and where the request says.

use super::super::{Context, Figure, objects};
use crate::harness::audit::Entry;
use crate::harness::services::Kind;
use crate::harness::world::World;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
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
    for actuator in services.replicas.iter_mut().filter(|replica| replica.kind == Kind::Actuator) {
        actuator.args.push("--bind-pods".to_owned());
    }
    services.restart(Kind::Actuator)?;
    world.apply_pool()?;
    world.cluster.kubectl.apply(&objects::deployment("web", PODS, MILLIS))?;
    let begun = Instant::now();
    let nodes = world.wait_ready("web", PODS, READY)?;
    let took = begun.elapsed();

    let pods = world.pods("web")?;
    ensure!(pods.len() == PODS, "{} pods instead of {PODS}: a node has rejected some", pods.len());
    let bindings = bindings(&world.cluster.audit()?)?;
    let planned = planned(world)?;
    let (mut ours, mut as_planned) = (0, 0);
    for pod in &pods {
        let (name, node) = (text(&pod["metadata"]["name"])?, text(&pod["spec"]["nodeName"])?);
        let bound = bindings.get(name).with_context(|| format!("nobody has bound pod {name}"))?;
        ensure!(bound.len() == 1, "pod {name} was bound {} times: {bound:?}", bound.len());
        let Some((target, is_ours)) = bound.first() else { continue };
        ensure!(target == node, "pod {name} is on {node}, and was bound to {target}");
        let intended = planned.get(text(&pod["metadata"]["uid"])?);
        if *is_ours {
            ours += 1;
            as_planned += usize::from(intended.is_none_or(|intended| intended == node));
        }
    }
    ensure!(ours > 0, "kube-scheduler has bound all pods");
    ensure!(as_planned == ours, "{} pods were bound to another node than planned", ours - as_planned);
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

/// The node that was launched for each pod, by the pod's UID.
fn planned(world: &World) -> Result<BTreeMap<String, String>> {
    let mut planned = BTreeMap::new();
    for claim in world.cluster.kubectl.list(&["nodeclaims.karpenter.sh"])? {
        let pods = claim["metadata"]["annotations"]["plimsoll.dev/pods"].as_str().unwrap_or("[]");
        let pods: Vec<String> = serde_json::from_str(pods).context("plimsoll.dev/pods is no list")?;
        let node = text(&claim["status"]["nodeName"])?;
        planned.extend(pods.into_iter().map(|pod| (pod, node.to_owned())));
    }
    Ok(planned)
}

fn text(value: &Value) -> Result<&str> {
    value.as_str().context("a field is missing or is no text")
}
