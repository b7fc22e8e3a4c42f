//! Starts the programs from the root file systems of their images, confined as in the manifests, until each is ready.
//!
//! Images can be built on machines without a container runtime. Therefore util-linux does the work of the runtime: a
//! mount namespace, a read-only root, the user of the image, no capabilities. Each service has its own loopback address
//! instead of a pod's address, so that all listen on the ports of their manifests.

mod command;
mod pod;

use super::{Built, PROGRESS};
use crate::harness::process::{Guard, Process};
use crate::harness::servers::Servers;
use crate::harness::wait::until_true;
use crate::harness::{confine, http};
use anyhow::{Context as _, Result, bail};
use pod::Pod;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time to load the catalog, list all watches and take a lease.
const START: Duration = Duration::from_secs(90);
/// Name of the cluster and of its queue.
const CLUSTER: &str = "image-check";

/// Start time of a service.
struct StartTimes {
    image: &'static str,
    alive: Duration,
    ready: Duration,
}

/// Starts every image of `built`. The services depend on each other, so they start only if all of them are built.
///
/// # Errors
/// If a program does not start, is not confined, or does not become ready.
pub(super) fn all(root: &Path, built: &[&Built]) -> Result<()> {
    let work = tempfile::Builder::new().prefix("plimsoll-image-").tempdir()?;
    let guard = Arc::new(Guard::start()?);
    let mut root_of = Vec::new();
    for one in built {
        let folder = work.path().join(one.program.image);
        std::fs::create_dir_all(&folder)?;
        one.image.unpack(&folder)?;
        root_of.push((one.program, folder));
    }
    let folder =
        |image: &str| root_of.iter().find(|(program, _)| program.image == image).map(|(_, folder)| folder.as_path());
    let Some(command) = folder("plimsoll") else {
        PROGRESS.say("nothing is started without the image plimsoll, which makes the certificates");
        return Ok(());
    };
    command::check(root, command)?;
    let services: Vec<_> = root_of.iter().filter(|(program, _)| program.manifest.is_some()).collect();
    if services.len() < pod::SERVICES.len() {
        PROGRESS.say("the services are started only together");
        return Ok(());
    }
    let certificates = work.path().join("certificates");
    command::certificates(command, &certificates)?;
    PROGRESS.say("starting the control plane and EC2");
    let servers = Servers::start(&guard, work.path(), CLUSTER, |text| PROGRESS.say(text))?;
    let mut pods = Vec::new();
    for service in pod::SERVICES {
        let image = format!("plimsoll-{service}");
        let (program, folder) = services.iter().find(|(program, _)| program.image == image).context("no such image")?;
        pods.push(Pod::prepare(root, program, folder, &certificates, &servers, work.path(), CLUSTER)?);
    }
    let result = become_ready(&pods, work.path(), &guard);
    if let Err(error) = result {
        let kept = work.keep();
        return Err(error.context(format!("logs are in {}", kept.display())));
    }
    Ok(())
}

fn become_ready(pods: &[Pod], logs: &Path, guard: &Arc<Guard>) -> Result<()> {
    let mut running = Vec::new();
    for pod in pods {
        let begun = Instant::now();
        let mut process = Process::start(pod.image, &mut pod.command(), logs, guard)?;
        wait_for(pod, &mut process, "/livez")?;
        confine::check(process.id()).with_context(|| format!("{} is not confined", pod.image))?;
        running.push((pod, process, begun, begun.elapsed()));
    }
    let mut start_times = Vec::new();
    for (pod, process, begun, alive) in &mut running {
        wait_for(pod, process, "/readyz")?;
        start_times.push(StartTimes { image: pod.image, alive: *alive, ready: begun.elapsed() });
    }
    for (pod, process, ..) in &mut running {
        let status = process.stop()?;
        if !status.success() {
            bail!("{} did not end well after SIGTERM: {status}", pod.image);
        }
    }
    let mut out = std::io::stdout().lock();
    for StartTimes { image, alive, ready } in start_times {
        writeln!(
            out,
            "{image:<20} alive after {:.1} s, ready after {:.1} s",
            alive.as_secs_f64(),
            ready.as_secs_f64()
        )?;
    }
    Ok(())
}

fn wait_for(pod: &Pod, process: &mut Process, path: &str) -> Result<()> {
    let health: SocketAddr = pod.health;
    until_true(&format!("{} answers {path}", pod.image), START, || {
        if let Some(status) = process.status()? {
            bail!("{} ended while starting: {status}", pod.image);
        }
        Ok(match http::send(health, "GET", path, &[], "") {
            Ok(answer) => (answer.status == 200, format!("{path} answers {}: {}", answer.status, answer.body.trim())),
            Err(error) => (false, format!("{error:#}")),
        })
    })
}
