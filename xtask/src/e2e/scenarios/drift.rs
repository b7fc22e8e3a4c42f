//! Nodes drift to newer images: EKS recommends another release, or the control plane is upgraded.

use super::super::objects::{self, SOON, in_millis};
use super::super::{Context, Figure};
use crate::harness::audit::Entry;
use crate::harness::kubectl::condition;
use crate::harness::process::Process;
use crate::harness::services::Kind;
use crate::harness::wait::until_true;
use crate::harness::world::World;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const PODS: usize = 2;
const OLD_RELEASE: &str = "20260901";
const NEW_RELEASE: &str = "20261101";
const REASON: &str = "AMIDrift";
/// The actuator reads the version of the control plane every minute; the rest is for replacements one by one.
const REPLACED: Duration = Duration::from_secs(60 + 240);
/// For the first nodes. The actuators have just restarted, and a look-up that fails then is repeated after 30 s. These
/// scenarios judge the replacements.
const FIRST_NODES: Duration = Duration::from_secs(240);
const FRONT_STARTS: Duration = Duration::from_secs(30);

/// EKS recommends a newer image for the alias of the node class.
pub(super) fn ami(_: &Context, world: &mut World) -> Result<Vec<Figure>> {
    world.cloud.recommend(OLD_RELEASE)?;
    let old = begin(world, OLD_RELEASE)?;
    world.cloud.recommend(NEW_RELEASE)?;
    // Images are looked up every five minutes, and after each change of the class. This change is no drift by itself.
    let term = format!(r#"{{"tags": {{"karpenter.sh/discovery": "{}"}}}}"#, world.cloud.cluster);
    let patch = format!(r#"{{"spec": {{"subnetSelectorTerms": [{term}, {term}]}}}}"#);
    world.cluster.kubectl.run(&["patch", "ec2nodeclass", "default", "--type=merge", "-p", &patch])?;
    replaced(world, &old, NEW_RELEASE)
}

/// The control plane is upgraded while the actuator runs.
pub(super) fn version(_: &Context, world: &mut World) -> Result<Vec<Figure>> {
    let dir = world.dir()?;
    let file = dir.join("kubernetes-version");
    std::fs::write(&file, "1.35")?;
    let _front = front(world, &dir, &file)?;
    world.services()?.restart(Kind::Actuator)?;
    let old = begin(world, "-1.35-")?;
    std::fs::write(&file, "1.36")?;
    replaced(world, &old, "-1.36-")
}

/// Starts the front of the API server, and names it in the actuator's kubeconfig.
fn front(world: &World, dir: &Path, file: &Path) -> Result<Process> {
    let pki = world.cluster.authority.parent().context("the certificate authority has no folder")?;
    let mut command = Command::new(&world.python);
    command.arg(world.root.join("tests/controlplane/front.py"));
    command.arg("--server").arg(&world.cluster.server).arg("--pki").arg(pki).arg("--version-file").arg(file);
    let mut front = Process::start("front", &mut command, dir, &world.guard)?;
    let line: Value = serde_json::from_str(&front.first_line(FRONT_STARTS)?)?;
    let server = line["server"].as_str().context("the front reported no server")?;
    let kubeconfig = dir.join("actuator.kubeconfig");
    let text = std::fs::read_to_string(&kubeconfig)?;
    ensure!(text.contains(&world.cluster.server), "actuator.kubeconfig does not name the API server");
    std::fs::write(&kubeconfig, text.replace(&world.cluster.server, server))?;
    Ok(front)
}

/// Starts nodes whose image name contains `part`. Returns the names of their claims.
fn begin(world: &World, part: &str) -> Result<BTreeSet<String>> {
    world.apply_pool()?;
    world.cluster.kubectl.apply(&objects::deployment("web", PODS, 1500))?;
    world.wait_ready("web", PODS, FIRST_NODES)?;
    let claims = world.cluster.kubectl.list(&["nodeclaims"])?;
    for claim in &claims {
        let image = image_of(world, claim)?;
        ensure!(image.contains(part), "the first nodes have the image {image}, not one of {part}");
    }
    Ok(claims.iter().filter_map(name_of).collect())
}

/// Waits until all nodes are replaced by ones whose image name contains `part`.
fn replaced(world: &World, old: &BTreeSet<String>, part: &str) -> Result<Vec<Figure>> {
    let began = Instant::now();
    let mut drifted = None;
    until_true("the nodes are replaced", world.with_slack(REPLACED), || {
        let claims = world.cluster.kubectl.list(&["nodeclaims"])?;
        if drifted.is_none() && claims.iter().any(|claim| condition(claim, "Drifted")) {
            drifted = Some(began.elapsed());
        }
        let names: BTreeSet<String> = claims.iter().filter_map(name_of).collect();
        let left = names.intersection(old).count();
        Ok((left == 0 && names.len() == PODS, format!("{left} old claims of {}", names.len())))
    })?;
    world.wait_ready("web", PODS, SOON)?;
    for claim in world.cluster.kubectl.list(&["nodeclaims"])? {
        let image = image_of(world, &claim)?;
        ensure!(image.contains(part), "a replacement has the image {image}, not one of {part}");
    }
    let reasons = reasons(&world.cluster.audit()?);
    ensure!(reasons == BTreeSet::from([REASON.to_owned()]), "nodes drifted because of {reasons:?}, not {REASON}");
    let launched = world.cloud.instances()?.len();
    ensure!(launched == 2 * PODS, "{launched} instances were launched for {PODS} nodes and their replacements");
    super::crash::settled(world)?;
    let drifted = drifted.context("no claim was seen with the condition Drifted")?;
    Ok(vec![
        ("drifted after", in_millis(drifted.as_secs_f64())),
        ("all replaced after", in_millis(began.elapsed().as_secs_f64())),
    ])
}

fn name_of(claim: &Value) -> Option<String> {
    claim["metadata"]["name"].as_str().map(str::to_owned)
}

/// Name of the image of a claim, as EC2 knows it.
fn image_of(world: &World, claim: &Value) -> Result<String> {
    let id = claim["status"]["imageID"].as_str().context("a claim without image")?;
    let described = world.cloud.query(&[("Action", "DescribeImages"), ("ImageId.1", id)])?;
    let name = described.split("<name>").nth(1).and_then(|rest| rest.split_once('<'));
    Ok(name.with_context(|| format!("EC2 does not know the image {id}"))?.0.to_owned())
}

/// Reasons of the condition Drifted that the actuator wrote.
fn reasons(audit: &[Entry]) -> BTreeSet<String> {
    let claims = audit.iter().filter(|entry| entry.resource.starts_with("nodeclaims"));
    let conditions = claims.filter_map(|entry| entry.response["status"]["conditions"].as_array()).flatten();
    let drifted = conditions.filter(|it| it["type"] == "Drifted" && it["status"] == "True");
    drifted.filter_map(|it| it["reason"].as_str().map(str::to_owned)).collect()
}
