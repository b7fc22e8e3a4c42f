//! The programs that a run is made of: found where they were built before, or built.

use super::say;
use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
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
        let (root, target) = workspace()?;
        let parts = Parts {
            controlplane: script(&root.join("tests/controlplane/build.sh"))?,
            python: script(&root.join("tests/ec2/venv.sh"))?.join("bin/python"),
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

/// Runs a script that prints one path.
fn script(path: &Path) -> Result<PathBuf> {
    let output =
        Command::new(path).stderr(Stdio::inherit()).output().with_context(|| format!("starting {}", path.display()))?;
    if !output.status.success() {
        bail!("{}: {}", path.display(), output.status);
    }
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

/// The repository's root and cargo's target folder.
fn workspace() -> Result<(PathBuf, PathBuf)> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version=1", "--manifest-path"])
        .arg(manifest)
        .output()
        .context("starting cargo metadata")?;
    let facts: Value = serde_json::from_slice(&output.stdout).context("cargo metadata did not write JSON")?;
    let folder =
        |key: &str| facts[key].as_str().map(PathBuf::from).with_context(|| format!("cargo metadata has no {key}"));
    Ok((folder("workspace_root")?, folder("target_directory")?))
}
