//! Starts the world, reports its state, and keeps it running until it is stopped.

use super::state::{Claim, Home, Parts as Running, Service, State};
use super::{Event, PROGRESS, Start, control, print};
use crate::harness::kubectl::condition;
use crate::harness::parts::Parts;
use crate::harness::process::Guard;
use crate::harness::tools;
use crate::harness::wait::until_true;
use crate::harness::world::{Setup, World};
use anyhow::{Context as _, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

const DEFAULT_POOLS: &str = "docs/examples/world/pools.yaml";
/// Placeholder for the name of the cluster in a file of pools, as in Karpenter's guides.
const CLUSTER_NAME: &str = "${CLUSTER_NAME}";
/// Resolving a class takes a second. Pools of the user may be invalid, and the world starts anyway.
const POOLS_READY: Duration = Duration::from_secs(20);
/// Interval at which all processes are checked.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Maximum length of a socket's path. Linux supports 107 bytes, others 103.
const SOCKET_PATH_MAX: usize = 103;

/// Starts a world and runs it until Ctrl-C, SIGTERM or `stop`.
///
/// # Errors
/// If the world does not start, or a required component exits.
pub(super) fn run(start: &Start, root: &Path, home: &Home) -> Result<()> {
    let begun = Instant::now();
    let claim = home.claim()?;
    let pools = pools(start, root)?;
    tools::require(&[&tools::PYTHON, &tools::KUBECTL])?;
    let (folder, temporary) = folder(start.keep.as_deref())?;
    let guard = Arc::new(Guard::start()?);
    let (sender, events) = channel();
    control::watch_signals(&guard, &sender)?;
    let state =
        State { pid: std::process::id(), folder: folder.clone(), socket: folder.join("control.sock"), parts: None };
    claim.write(&state)?;
    control::listen(&state.socket, &guard, &sender)?;
    PROGRESS.say(&format!("logs are in {}", folder.display()));

    let result = play(start, &guard, &claim, state, &pools, &events, begun);
    claim.forget()?;
    let interrupted = guard.check().is_err();
    if temporary && interrupted {
        std::fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
        PROGRESS.say("all processes have ended, and the folder is removed");
    } else {
        PROGRESS.say(&format!("all processes have ended; logs stay in {}", folder.display()));
    }
    // An interrupted start is not a failure.
    if interrupted { Ok(()) } else { result }
}

fn play(
    start: &Start,
    guard: &Arc<Guard>,
    claim: &Claim,
    state: State,
    pools: &str,
    events: &Receiver<Event>,
    begun: Instant,
) -> Result<()> {
    PROGRESS.say("looking for the control plane and Python's packages; if they are not cached, they are built now");
    let parts = Parts::find(guard, !start.no_build, |text| PROGRESS.say(text))?;
    let setup = Setup {
        region: &start.region,
        cluster: &start.cluster_name,
        installed: true,
        replicas: start.replicas,
        boot_delay: Some(start.boot_delay),
        control_plane: &[],
        ec2_seed: start.ec2_seed,
        answers: None,
        say: |text| PROGRESS.say(text),
    };
    let mut world = World::start(&parts, guard, &state.folder, &setup)?;
    apply_pools(guard, &world, pools)?;
    let running = running(&mut world)?;
    let summary = summary(&parts.root, &state, &running);
    claim.write(&State { parts: Some(running), ..state })?;
    PROGRESS.say(&format!("ready after {} s", begun.elapsed().as_secs()));
    print(&summary)?;
    let result = keep(&mut world, events);
    for trouble in stop(world) {
        PROGRESS.say(&trouble);
    }
    result
}

/// The pools, read before anything is started.
fn pools(start: &Start, root: &Path) -> Result<String> {
    let path = start.pools.clone().unwrap_or_else(|| root.join(DEFAULT_POOLS));
    let text = std::fs::read_to_string(&path).with_context(|| format!("--pools {}", path.display()))?;
    Ok(text.replace(CLUSTER_NAME, &start.cluster_name))
}

/// The folder, and whether this program may remove it.
fn folder(keep: Option<&Path>) -> Result<(PathBuf, bool)> {
    let Some(keep) = keep else {
        return Ok((tempfile::Builder::new().prefix("plimsoll-world-").tempdir()?.keep(), true));
    };
    let folder = std::path::absolute(keep)?;
    let socket = folder.join("cp/etcd.sock");
    ensure!(
        socket.as_os_str().len() <= SOCKET_PATH_MAX,
        "--keep {}: too long a path for the socket {}, of which {SOCKET_PATH_MAX} bytes are allowed",
        keep.display(),
        socket.display()
    );
    std::fs::create_dir_all(&folder).with_context(|| format!("--keep {}", keep.display()))?;
    let mut files = std::fs::read_dir(&folder).with_context(|| format!("--keep {}", keep.display()))?;
    ensure!(files.next().is_none(), "--keep {}: the folder is not empty", keep.display());
    Ok((folder, false))
}

/// Pools that are rejected or never become Ready do not stop the world: the user may apply others.
fn apply_pools(guard: &Guard, world: &World, pools: &str) -> Result<()> {
    PROGRESS.say("applying the NodePools");
    let kubectl = &world.cluster.kubectl;
    if let Err(error) = kubectl.apply(pools) {
        guard.check()?;
        PROGRESS.say(&format!("the pools were not applied: {error:#}"));
        return Ok(());
    }
    let ready = until_true("the NodePools are Ready", POOLS_READY, || {
        guard.check()?;
        let pools = kubectl.list(&["nodepools"])?;
        let waiting: Vec<&str> = pools.iter().filter(|pool| !condition(pool, "Ready")).map(name).collect();
        Ok((waiting.is_empty(), format!("{} are not", waiting.join(", "))))
    });
    guard.check()?;
    if let Err(error) = ready {
        PROGRESS.say(&format!("{error:#}; see: kubectl describe nodepools,ec2nodeclasses"));
    }
    Ok(())
}

fn name(object: &serde_json::Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or("?")
}

fn running(world: &mut World) -> Result<Running> {
    let services = world.services()?.replicas.iter().map(|replica| Service {
        name: replica.name(),
        kind: replica.kind,
        metrics: replica.metrics,
        health: replica.health,
        open: replica.open_to_all(),
    });
    let services = services.collect();
    Ok(Running { kubeconfig: world.cluster.kubeconfig.clone(), cloud: world.cloud.clone(), services })
}

/// Information for the user.
fn summary(root: &Path, state: &State, running: &Running) -> String {
    let here = std::env::current_dir().ok();
    let web = root.join("docs/examples/world/web.yaml");
    let web = here.and_then(|here| web.strip_prefix(here).map(Path::to_owned).ok()).unwrap_or(web);
    let zone = running.cloud.zones().into_iter().next().unwrap_or_default();
    format!(
        "The world runs until Ctrl-C. In another terminal:

  export KUBECONFIG={kubeconfig}
  kubectl apply -f {web}
  kubectl get nodeclaims,nodes,pods
  cargo xtask world spot-notice NODE                   EC2 takes a Spot instance in two minutes
  cargo xtask world capacity take spot '*' {zone}  no Spot capacity in a zone
  cargo xtask world status
  cargo xtask world --help                             what else there is

{services}

EC2   {ec2}; tests/ec2/README.md: faults, calls
Logs  {folder}/*.log, those of the control plane in cp/logs
      {folder}/audit.jsonl: what the services ask of the API server",
        kubeconfig = running.kubeconfig.display(),
        web = web.display(),
        services = super::status::addresses(&running.services),
        ec2 = running.cloud.endpoint,
        folder = state.folder.display(),
    )
}

fn keep(world: &mut World, events: &Receiver<Event>) -> Result<()> {
    loop {
        match events.recv_timeout(LOOK_EVERY) {
            Ok(Event::Stop) => return Ok(()),
            Ok(Event::Restart { kind, reply }) => {
                PROGRESS.say(&format!("restarting the {}s", kind.name()));
                let result = world.services()?.restart(kind).map_err(|error| format!("{error:#}"));
                PROGRESS.say(&match &result {
                    Ok(()) => format!("the {}s are ready", kind.name()),
                    Err(error) => format!("the {}s are not ready: {error}", kind.name()),
                });
                // The requester may have disconnected.
                let _ = reply.send(result);
            }
            Err(RecvTimeoutError::Timeout) => {
                for ended in world.services()?.ended()? {
                    PROGRESS.say(&ended);
                }
                if let Some(ended) = world.ended_part()? {
                    bail!("{ended}");
                }
            }
            Err(RecvTimeoutError::Disconnected) => bail!("the channel of stop requests is closed"),
        }
    }
}

/// Ends all processes, the services first. Returns errors.
fn stop(mut world: World) -> Vec<String> {
    drop(world.services.take());
    PROGRESS.say("the services have ended");
    let troubles = world.troubles().unwrap_or_else(|error| vec![format!("{error:#}")]);
    drop(world);
    troubles
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_new_or_empty_folder_with_a_short_path_is_taken() -> Result<()> {
        let parent = tempfile::tempdir()?;
        let told =
            |path: &Path| folder(Some(path)).map_or_else(|error| format!("{error:#}"), |_| "no error".to_owned());
        assert_eq!(folder(Some(&parent.path().join("a/b")))?, (parent.path().join("a/b"), false));
        assert_eq!(told(&parent.path().join("a/b")), "no error", "it is empty still");
        assert!(told(&parent.path().join("a")).contains("not empty"));
        let long = parent.path().join("x".repeat(100));
        assert!(told(&long).contains("too long a path"), "{}", told(&long));
        assert!(!long.exists());
        Ok(())
    }

    #[test]
    fn the_default_pools_name_the_cluster_wherever_it_belongs() -> Result<()> {
        let text = include_str!("../../../docs/examples/world/pools.yaml");
        // In the comment, the role and both selectors.
        assert_eq!(text.matches(CLUSTER_NAME).count(), 4);
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), text)?;
        let start = Start {
            pools: Some(file.path().to_owned()),
            keep: None,
            replicas: 1,
            boot_delay: Duration::ZERO,
            ec2_seed: None,
            cluster_name: "demo".to_owned(),
            region: "us-east-1".to_owned(),
            no_build: true,
        };
        let text = pools(&start, Path::new("/"))?;
        assert!(text.contains("role: KarpenterNodeRole-demo") && !text.contains('$'), "{text}");
        let missing = Start { pools: Some("/no/such/file.yaml".into()), ..start };
        assert!(pools(&missing, Path::new("/")).is_err_and(|error| error.to_string() == "--pools /no/such/file.yaml"));
        Ok(())
    }
}
