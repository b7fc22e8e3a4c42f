//! The programs that a run is made of: found where they were built before, or built.

use super::process::{self, Guard};
use super::{controlplane, tools};
use crate::workspace;
use anyhow::{Context as _, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packages with the programs under test. The actuator's takes minutes the first time: the EC2 SDK.
const PACKAGES: [&str; 4] = ["plimsoll-watcher", "plimsoll-objects", "plimsoll-actuator-aws", "plimsoll-cli"];

/// Where everything is.
#[derive(Debug)]
pub(crate) struct Parts {
    /// The repository.
    pub(crate) root: PathBuf,
    /// The control plane's binary.
    pub(crate) controlplane: PathBuf,
    /// The Python of the virtual environment.
    pub(crate) python: PathBuf,
    /// The folder with the programs under test. It may be empty if nothing needs them.
    pub(crate) programs: PathBuf,
}

impl Parts {
    /// Builds what is missing: the control plane and the virtual environment are cached outside the clone.
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

/// Builds the programs of packages in the profile of tests.
pub(crate) fn build_packages(root: &Path, packages: &[&str], guard: &Guard) -> Result<()> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).args(["build", "--quiet", "--bins"]);
    for package in packages {
        command.args(["--package", package]);
    }
    process::build("cargo build", &mut command, guard).map(drop)
}
