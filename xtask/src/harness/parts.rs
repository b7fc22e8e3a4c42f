//! Programs of a run: found, or built if they are missing.

use super::process::{self, Guard};
use super::{controlplane, tools};
use crate::workspace;
use anyhow::{Context as _, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packages with the programs under test. The actuator takes minutes the first time because of the EC2 SDK.
const PACKAGES: [&str; 4] = ["plimsoll-watcher", "plimsoll-objects", "plimsoll-actuator-aws", "plimsoll-cli"];

/// Paths of all programs.
#[derive(Debug)]
pub(crate) struct Parts {
    /// The repository.
    pub(crate) root: PathBuf,
    /// The control plane's binary.
    pub(crate) controlplane: PathBuf,
    /// Python of the virtual environment.
    pub(crate) python: PathBuf,
    /// Folder with the programs under test. It may be empty if no scenario needs them.
    pub(crate) programs: PathBuf,
}

impl Parts {
    /// Builds missing programs. The control plane and the virtual environment are cached outside the clone.
    pub(crate) fn find(guard: &Guard, build_services: bool, say: fn(&str)) -> Result<Parts> {
        tools::require(&[&tools::PYTHON, &tools::KUBECTL])?;
        let (root, target) = workspace::folders()?;
        let parts = Parts {
            controlplane: controlplane::binary(&root, guard)?,
            python: python(&root, guard)?,
            programs: target.join("debug"),
            root,
        };
        if build_services {
            say("building the three services and the command; the first time this takes minutes");
            build_packages(&parts.root, &PACKAGES, guard)?;
        }
        Ok(parts)
    }

    /// One of the programs under test.
    pub(crate) fn program(&self, name: &str) -> Result<PathBuf> {
        let path = self.programs.join(name);
        if !path.exists() {
            bail!("{} is missing: build it, or leave --no-build out", path.display());
        }
        Ok(path)
    }
}

fn python(root: &Path, guard: &Guard) -> Result<PathBuf> {
    let venv = process::build("tests/ec2/venv.sh", &mut Command::new(root.join("tests/ec2/venv.sh")), guard);
    let venv = venv.with_context(|| format!("making the virtual environment ({})", tools::PYTHON.needed()))?;
    Ok(Path::new(venv.trim()).join("bin/python"))
}

/// Builds the programs of packages in the test profile.
pub(crate) fn build_packages(root: &Path, packages: &[&str], guard: &Guard) -> Result<()> {
    build(root, packages, &[], guard)
}

/// Builds the programs under test in the release profile.
pub(crate) fn build_release(root: &Path, guard: &Guard) -> Result<()> {
    build(root, &PACKAGES, &["--release"], guard)
}

fn build(root: &Path, packages: &[&str], profile: &[&str], guard: &Guard) -> Result<()> {
    let mut command = workspace::cargo();
    command.current_dir(root).args(["build", "--quiet", "--bins"]).args(profile);
    for package in packages {
        command.args(["--package", package]);
    }
    process::build("cargo build", &mut command, guard).map(drop)
}
