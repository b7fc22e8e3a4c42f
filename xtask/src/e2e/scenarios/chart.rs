//! The Helm chart in a real control plane: kube-scheduler places its pods, the Job creates the certificates, and each
//! pod runs as a process with its arguments, environment, Secrets and token. Upgrade and rollback happen during a
//! scale-up.

mod leadership;

use super::super::objects::{self, SOON};
use super::super::{Context, Figure, PROGRESS};
use super::crash;
use super::monitoring::{ONLY_WITH_TLS, Scrapes};
use crate::chart::helm::Helm;
use crate::harness::cluster::NAMESPACE;
use crate::harness::confine;
use crate::harness::kubectl::condition;
use crate::harness::pods::{self, Pods};
use crate::harness::world::World;
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const BEFORE: &str = include_str!("../manifests/chart/before.yaml");
const AFTER: &str = include_str!("../manifests/chart/after.yaml");
const NODES: &str = include_str!("../manifests/chart/nodes.yaml");
/// One pod per node.
const MILLIS: u32 = 1500;
/// Pods of every service are replaced one by one, on a busy machine.
const ROLLED_OUT: Duration = Duration::from_secs(120);
/// Leases of the services.
const LEASES: [&str; 2] = ["plimsoll-watcher", "plimsoll-actuator"];

pub(super) fn play(context: &Context, world: &mut World) -> Result<Vec<Figure>> {
    if let Some(reason) = confine::trouble() {
        PROGRESS.say(&format!("  LEFT OUT: pods cannot be run as processes here: {reason}"));
        return Ok(vec![("skipped", reason)]);
    }
    let helm = Helm::find()?;
    let folder = world.cluster.kubeconfig.parent().context("no folder")?.to_owned();
    let values = |name: &str, text: &str| write_values(world, &folder.join(name), text);
    let (before, after) = (values("before.yaml", BEFORE)?, values("after.yaml", AFTER)?);
    let mut pods = Pods::new(&pods::Setup {
        kubectl: &world.cluster.kubectl,
        namespace: NAMESPACE,
        api_server: world.cluster.address()?,
        programs: &context.parts.programs,
        dir: &folder.join("pods"),
        guard: &context.guard,
    })?;
    world.cluster.kubectl.apply(NODES)?;
    let install = |values: &Path| helm.install(&world.cluster.kubeconfig, &world.root, values);

    let begun = Instant::now();
    helm.install_crds(&world.cluster.kubeconfig, &world.root)?;
    install(&before)?;
    rolled_out(world, &mut pods)?;
    let installed = begun.elapsed();
    world.apply_pool()?;
    world.cluster.kubectl.apply(&objects::deployment("web", 2, MILLIS))?;
    ready(world, &mut pods, 2)?;
    refuses_others(world)?;

    let begun = Instant::now();
    install(&after)?;
    world.scale("web", 4)?;
    rolled_out(world, &mut pods)?;
    ready(world, &mut pods, 4)?;
    let upgraded = begun.elapsed();

    let begun = Instant::now();
    helm.rollback(&world.cluster.kubeconfig)?;
    world.scale("web", 6)?;
    rolled_out(world, &mut pods)?;
    ready(world, &mut pods, 6)?;
    let rolled_back = begun.elapsed();

    let launched = world.cloud.instances()?.len();
    ensure!(launched == 6, "{launched} instances were launched for 6 pods, of which each fills one");
    crash::settled(world)?;
    let mut scrapes = Scrapes::default();
    scrapes.take(pods.ports("metrics"))?;
    let missing: Vec<_> = ONLY_WITH_TLS.iter().filter(|name| !scrapes.has(name)).collect();
    ensure!(missing.is_empty(), "the services do not export {missing:?}");
    let troubles = pods.troubles()?;
    ensure!(troubles.is_empty(), "{}", troubles.join("; "));
    let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
    let mut figures = vec![
        ("helm install until all pods are ready", seconds(installed)),
        ("upgrade, with 2 more pods on 2 more nodes", seconds(upgraded)),
        ("rollback, with 2 more pods on 2 more nodes", seconds(rolled_back)),
        ("instances launched for 6 pods", launched.to_string()),
    ];
    figures.extend(leaders_changed(world)?);
    Ok(figures)
}

/// Each Lease had several holders, and was never without one for longer than its duration.
fn leaders_changed(world: &World) -> Result<Vec<Figure>> {
    let audit = world.cluster.audit()?;
    let mut figures = Vec::new();
    for lease in LEASES {
        let seen = leadership::of(&audit, lease)?;
        ensure!(seen.holders.len() > 1, "{lease} never changed hands, so that nothing was shown: {:?}", seen.holders);
        ensure!(
            seen.gap <= seen.lease,
            "{lease} had no holder for {:.1} s, its duration is {} s",
            seen.gap,
            seen.lease
        );
        figures.push((lease, format!("{} holders, at most {:.1} s without one", seen.holders.len(), seen.gap)));
    }
    Ok(figures)
}

/// Writes a values file for this environment.
fn write_values(world: &World, path: &Path, text: &str) -> Result<PathBuf> {
    let words = [
        ("CLUSTER", &world.cloud.cluster),
        ("ENDPOINT", &world.cluster.server),
        ("REGION", &world.cloud.region),
        ("AWS", &world.cloud.endpoint),
    ];
    let text = words
        .iter()
        .fold(text.to_owned(), |text, (word, value)| text.replace(&format!(" {word}\n"), &format!(" {value}\n")));
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    Ok(path.to_owned())
}

/// The admission policy: the launches before show that it lets the actuator write.
fn refuses_others(world: &World) -> Result<()> {
    let kubectl = &world.cluster.kubectl;
    for (kind, verb) in [("nodeclaims", "annotate"), ("nodeclaims", "label"), ("nodes", "annotate"), ("nodes", "label")]
    {
        kubectl.run(&[verb, kind, "--all", "example.com/owner=me"])?;
        let refusal = match kubectl.run(&[verb, kind, "--all", "--overwrite", "plimsoll.dev/owner=me"]) {
            Ok(answer) => bail!("{verb} {kind} was not refused: {answer}"),
            Err(error) => format!("{error:#}"),
        };
        ensure!(refusal.contains("only Plimsoll's actuator writes"), "{verb} {kind}: {refusal}");
    }
    Ok(())
}

/// Waits until every Deployment of the release runs its latest version.
fn rolled_out(world: &World, pods: &mut Pods) -> Result<()> {
    pods.until("all Deployments of the release are rolled out", ROLLED_OUT, || {
        let deployments = world.cluster.kubectl.list(&["deployments", "-n", NAMESPACE])?;
        let unfinished_deployments: Vec<_> = deployments.iter().filter_map(unfinished).collect();
        Ok((
            unfinished_deployments.is_empty() && deployments.len() == 3,
            format!("{} Deployments, {}", deployments.len(), unfinished_deployments.join("; ")),
        ))
    })
}

/// Why a Deployment is not rolled out, by the rules of `kubectl rollout status`.
fn unfinished(deployment: &Value) -> Option<String> {
    let (wanted, status) = (&deployment["spec"]["replicas"], &deployment["status"]);
    let current = status["observedGeneration"] == deployment["metadata"]["generation"];
    let counts = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"];
    let all = counts.iter().all(|count| &status[*count] == wanted);
    (!current || !all).then(|| format!("{} is at {status}", deployment["metadata"]["name"]))
}

/// Waits until this number of pods of `web` are ready.
fn ready(world: &World, pods: &mut Pods, count: usize) -> Result<()> {
    pods.until(&format!("{count} pods of web are ready"), SOON, || {
        let ready = world.pods("web")?.iter().filter(|pod| condition(pod, "Ready")).count();
        Ok((ready == count, format!("{ready} are")))
    })
}
