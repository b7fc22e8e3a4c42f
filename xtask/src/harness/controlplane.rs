//! The real control plane of tests/controlplane as a process of this run.

use super::process::{self, Guard, Process};
use super::tools;
use anyhow::{Context as _, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// 3 s on an idle machine, 8 s on a busy machine; longer with a cold disk.
const START: Duration = Duration::from_secs(120);

/// A running control plane. Dropping this value ends it.
#[derive(Debug)]
pub(crate) struct ControlPlane {
    /// Where the API server is.
    pub(crate) server: String,
    /// Kubeconfig of a user with all permissions.
    pub(crate) kubeconfig: PathBuf,
    /// Certificate of the API server's certificate authority.
    pub(crate) authority: PathBuf,
    pub(super) process: Process,
}

/// The binary, built if it is missing. It is cached outside the clone.
///
/// # Errors
/// If the binary cannot be built, with the required version of Go.
pub(crate) fn binary(root: &Path, guard: &Guard) -> Result<PathBuf> {
    let script = root.join("tests/controlplane/build.sh");
    let path = process::build("tests/controlplane/build.sh", &mut Command::new(script), guard);
    let path = path.with_context(|| format!("building the control plane ({})", tools::GO.needed()))?;
    Ok(PathBuf::from(path.trim()))
}

/// Data folder of the control plane in `dir`. The path must be short, because it contains a socket.
pub(crate) fn data(dir: &Path) -> PathBuf {
    dir.join("cp")
}

/// A client with the rights of a kubeconfig.
///
/// # Errors
/// If the kubeconfig is unreadable or incomplete.
pub(crate) async fn client(kubeconfig: &Path) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Client::try_from(config).context("a client of the control plane")
}

impl ControlPlane {
    /// Starts `binary` with additional flags, and waits until it is ready. Data, logs and kubeconfig are in `dir`.
    ///
    /// # Errors
    /// If the control plane does not start in time.
    pub(crate) fn start(binary: &Path, flags: &[OsString], guard: &Arc<Guard>, dir: &Path) -> Result<ControlPlane> {
        let kubeconfig = dir.join("admin.kubeconfig");
        let data = data(dir);
        let mut command = Command::new(binary);
        command.arg("start").arg("-dir").arg(&data).arg("-kubeconfig").arg(&kubeconfig).args(flags);
        let mut process = Process::start("controlplane", &mut command, dir, guard)?;
        let line: Value = serde_json::from_str(&process.first_line(START)?)?;
        Ok(ControlPlane {
            server: line["server"].as_str().context("the control plane reported no server")?.to_owned(),
            kubeconfig,
            authority: data.join("pki/ca.crt"),
            process,
        })
    }
}
