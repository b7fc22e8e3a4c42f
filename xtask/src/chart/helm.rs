//! Helm at a pinned version.

use super::tools::{self, Program};
use anyhow::{Context as _, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

const HELM: Program = Program { name: "helm", package: "helm.sh/helm/v3/cmd/helm", version: "v3.19.0" };
/// Helm that is built from its module knows no version of Kubernetes by itself.
const KUBERNETES: &str = "1.36.0";
/// Name of the release and its namespace, as in deploy/README.md.
const RELEASE: &str = "plimsoll";
const NAMESPACE: &str = "plimsoll-system";

/// The program.
#[derive(Debug)]
pub(super) struct Helm {
    binary: PathBuf,
}

impl Helm {
    /// Finds it, or builds it.
    ///
    /// # Errors
    /// If it cannot be built.
    pub(super) fn find() -> Result<Helm> {
        Ok(Helm { binary: tools::find(HELM)? })
    }

    /// # Errors
    /// What `helm lint --strict` has against the chart.
    pub(super) fn lint(&self, chart: &Path, values: Option<&Path>) -> Result<()> {
        let mut command = Command::new(&self.binary);
        command
            .args(["lint", "--strict", "--quiet", "--namespace", NAMESPACE, "--kube-version", KUBERNETES])
            .arg(chart);
        if let Some(values) = values {
            command.arg("--values").arg(values);
        }
        tools::output(&mut command).map(drop)
    }

    /// All objects of the chart with these values.
    ///
    /// # Errors
    /// If Helm cannot render them.
    pub(super) fn template(&self, chart: &Path, values: Option<&Path>) -> Result<String> {
        let output = tools::output(&mut self.render(chart, values))?;
        String::from_utf8(output.stdout).context("what helm rendered is not UTF-8")
    }

    /// `helm template`, to which flags can be added.
    pub(super) fn render(&self, chart: &Path, values: Option<&Path>) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(["template", RELEASE, "--namespace", NAMESPACE, "--kube-version", KUBERNETES]);
        command.arg(chart);
        if let Some(values) = values {
            command.arg("--values").arg(values);
        }
        command
    }
}
