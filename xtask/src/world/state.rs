//! The file by which subcommands find the running world, and the lock that shows that the world runs.

use crate::harness::cloud::Cloud;
use crate::harness::services::Kind;
use crate::harness::wait::{Poll, until};
use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use std::fs::{File, TryLockError};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time for which a subcommand holds the lock to see that it is free.
const LOCK: Duration = Duration::from_secs(1);
const NOT_RUNNING: &str = "no world is running; start one with: cargo xtask world";

/// State of the world for subcommands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct State {
    /// Process that runs the world.
    pub(super) pid: u32,
    /// Folder of logs, kubeconfigs and data.
    pub(super) folder: PathBuf,
    /// Socket for requests.
    pub(super) socket: PathBuf,
    /// `None` while the world starts.
    pub(super) parts: Option<Parts>,
}

/// Addresses of the components of a started world.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Parts {
    pub(super) kubeconfig: PathBuf,
    pub(super) cloud: Cloud,
    pub(super) services: Vec<Service>,
}

/// A replica of a service and its addresses.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Service {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) metrics: SocketAddr,
    pub(super) health: SocketAddr,
    /// Open gRPC port; only schedulers have one.
    pub(super) open: Option<SocketAddr>,
}

/// Environment variable with the folder of both files, for a second world.
pub(crate) const HOME: &str = "PLIMSOLL_WORLD";

/// The folder with both files.
#[derive(Clone, Debug)]
pub(super) struct Home(PathBuf);

/// Held while the world runs. The kernel releases the lock however the process ends.
#[derive(Debug)]
pub(super) struct Claim {
    home: Home,
    _lock: File,
}

impl Home {
    /// In cargo's target folder, unless the environment variable is set: each clone has its own world.
    pub(super) fn find(target: &Path) -> Result<Home> {
        Home::at(std::env::var_os(HOME).map_or_else(|| target.join("world"), PathBuf::from))
    }

    fn at(folder: PathBuf) -> Result<Home> {
        std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        Ok(Home(folder))
    }

    fn file(&self) -> PathBuf {
        self.0.join("state.json")
    }

    fn lock(&self) -> Result<File> {
        let path = self.0.join("lock");
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        file.with_context(|| format!("opening {}", path.display()))
    }

    /// Claims the lock for the process that runs the world.
    ///
    /// # Errors
    /// If a world of this target folder runs already.
    pub(super) fn claim(&self) -> Result<Claim> {
        let lock = self.lock()?;
        let locked = until("the lock is free", LOCK, || match lock.try_lock() {
            Ok(()) => Ok(Poll::Yes(())),
            Err(TryLockError::WouldBlock) => Ok(Poll::NotYet("it is held".to_owned())),
            Err(TryLockError::Error(error)) => Err(error.into()),
        });
        if let Err(error) = locked {
            let other = self.read().map_or_else(|_| error.to_string(), |state| format!("process {}", state.pid));
            bail!("a world runs already ({other}); see: cargo xtask world status; end it with: cargo xtask world stop");
        }
        let claim = Claim { home: self.clone(), _lock: lock };
        claim.forget()?;
        Ok(claim)
    }

    /// The world, which may still be starting.
    ///
    /// # Errors
    /// If no world runs. For a world that was killed, the error contains the path of its logs.
    pub(super) fn world(&self) -> Result<State> {
        let state = self.read();
        if !self.is_claimed()? {
            match state {
                Ok(State { pid, folder, .. }) => {
                    bail!(
                        "{NOT_RUNNING}\nThe last one, process {pid}, was killed; its logs are in {}",
                        folder.display()
                    )
                }
                Err(_) => bail!("{NOT_RUNNING}"),
            }
        }
        state.context("the world has only just begun to start; try again")
    }

    /// The world and its parts.
    ///
    /// # Errors
    /// If no world runs, or if it is still starting.
    pub(super) fn find_parts(&self) -> Result<(State, Parts)> {
        let state = self.world()?;
        let parts = state.parts.clone();
        let parts = parts.with_context(|| {
            format!("the world (process {}) is still starting; its logs are in {}", state.pid, state.folder.display())
        })?;
        Ok((state, parts))
    }

    /// Whether a process runs a world.
    pub(super) fn is_claimed(&self) -> Result<bool> {
        match self.lock()?.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    }

    fn read(&self) -> Result<State> {
        let path = self.file();
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is not the state of a world", path.display()))
    }
}

impl Claim {
    /// Atomic, because a subcommand may be reading.
    pub(super) fn write(&self, state: &State) -> Result<()> {
        let (path, next) = (self.home.file(), self.home.0.join("state.json.next"));
        std::fs::write(&next, serde_json::to_vec_pretty(state)?)
            .with_context(|| format!("writing {}", next.display()))?;
        std::fs::rename(&next, &path).with_context(|| format!("writing {}", path.display()))
    }

    /// Removes the file after the world has stopped.
    pub(super) fn forget(&self) -> Result<()> {
        let path = self.home.file();
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("removing {}", path.display()))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(folder: &Path, parts: Option<Parts>) -> State {
        State { pid: 4711, folder: folder.to_owned(), socket: folder.join("control.sock"), parts }
    }

    fn parts(folder: &Path) -> Result<Parts> {
        let cloud = serde_json::json!({"endpoint": "http://127.0.0.1:1", "region": "us-east-1", "cluster": "world", "made": {}, "address": "127.0.0.1:1"});
        let open = Some(SocketAddr::from(([127, 0, 0, 1], 4)));
        let (metrics, health) = (SocketAddr::from(([127, 0, 0, 1], 2)), SocketAddr::from(([127, 0, 0, 1], 3)));
        let service = Service { name: "plimsoll-scheduler-0".to_owned(), kind: Kind::Scheduler, metrics, health, open };
        let kubeconfig = folder.join("admin.kubeconfig");
        Ok(Parts { kubeconfig, cloud: serde_json::from_value(cloud)?, services: vec![service] })
    }

    fn told<T>(result: Result<T>) -> String {
        result.map_or_else(|error| format!("{error:#}"), |_| "no error".to_owned())
    }

    #[test]
    fn a_world_is_found_with_its_parts_only_while_it_runs() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let home = Home::at(folder.path().join("world"))?;
        assert_eq!(told(home.world()), NOT_RUNNING);

        let claim = home.claim()?;
        assert!(told(home.world()).contains("only just begun to start"));
        claim.write(&state(folder.path(), None))?;
        assert_eq!(home.world()?.pid, 4711);
        assert!(told(home.find_parts()).contains("(process 4711) is still starting"), "{}", told(home.find_parts()));
        claim.write(&state(folder.path(), Some(parts(folder.path())?)))?;
        let (found, parts) = home.find_parts()?;
        assert_eq!(found.socket, folder.path().join("control.sock"));
        assert_eq!(parts.services[0].open.map(|it| it.port()), Some(4));

        claim.forget()?;
        drop(claim);
        assert_eq!(told(home.world()), NOT_RUNNING);
        Ok(())
    }

    #[test]
    fn there_is_one_world_at_a_time_and_its_process_is_named() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let home = Home::at(folder.path().join("world"))?;
        let claim = home.claim()?;
        claim.write(&state(folder.path(), None))?;
        assert!(told(home.claim()).starts_with("a world runs already (process 4711)"), "{}", told(home.claim()));
        drop(claim);
        home.claim().map(drop)
    }

    #[test]
    fn one_that_was_killed_is_no_world_but_its_logs_are_named() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let home = Home::at(folder.path().join("world"))?;
        let claim = home.claim()?;
        claim.write(&state(Path::new("/folder"), None))?;
        // As after SIGKILL: the lock is released, and the file remains.
        drop(claim);
        let error = told(home.world());
        assert!(error.starts_with(NOT_RUNNING) && error.contains("process 4711, was killed"), "{error}");
        assert!(error.ends_with("its logs are in /folder"), "{error}");
        drop(home.claim()?);
        assert_eq!(told(home.world()), NOT_RUNNING, "the next start forgets it");
        Ok(())
    }
}
