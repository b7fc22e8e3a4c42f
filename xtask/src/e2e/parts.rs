//! The programs that a run is made of: found where they were built before, or built.

use super::say;
use crate::harness::controlplane;
use crate::workspace;
use anyhow::{Context as _, Result, bail};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Packages with the programs under test. The actuator's takes minutes the first time: the EC2 SDK.
const PACKAGES: [&str; 4] = ["plimsoll-watcher", "plimsoll-scheduler", "plimsoll-actuator-aws", "plimsoll-cli"];

/// Where everything is.
#[derive(Debug)]
pub(super) struct Parts {
    /// The repository.
    pub(super) root: PathBuf,
    /// The control plane's binary.
    pub(super) controlplane: PathBuf,
    /// The Python of the virtual environment.
    pub(super) python: PathBuf,
    /// The folder with the programs under test; none of them may be there if no scenario needs them.
    pub(super) programs: PathBuf,
}

impl Parts {
    /// Builds what is missing: the control plane and the virtual environment are cached outside the clone.
    pub(super) fn find(with_services: bool, build: bool) -> Result<Parts> {
        let (root, target) = workspace::folders()?;
        let parts = Parts {
            controlplane: controlplane::binary(&root)?,
            python: workspace::script(&root.join("tests/ec2/venv.sh"))?.join("bin/python"),
            programs: target.join("debug"),
            root,
        };
        Command::new("kubectl")
            .args(["version", "--client"])
            .stdout(Stdio::null())
            .status()
            .context("kubectl is needed on PATH")?;
        if with_services && build {
            parts.build_services()?;
        }
        Ok(parts)
    }

    /// One of the programs under test.
    pub(super) fn program(&self, name: &str) -> Result<PathBuf> {
        let path = self.programs.join(name);
        if !path.exists() {
            bail!("{} is missing: build it, or leave --no-build out", path.display());
        }
        Ok(path)
    }

    fn build_services(&self) -> Result<()> {
        say("building the three services and the command");
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(&self.root).args(["build", "--quiet", "--bins"]);
        for package in PACKAGES {
            command.args(["--package", package]);
        }
        let status = command.status().context("starting cargo")?;
        if !status.success() {
            bail!("cargo build: {status}");
        }
        Ok(())
    }
}
