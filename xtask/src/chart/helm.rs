//! Helm at a pinned version.

use super::tools::{self, Program};
use anyhow::{Context as _, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

const HELM: Program = Program { name: "helm", package: "helm.sh/helm/v3/cmd/helm", version: "v3.19.0" };
/// A Helm binary that is built from its module has no default version of Kubernetes.
const KUBERNETES: &str = "1.36.0";
/// Name and namespace of the release, as in deploy/README.md.
const RELEASE: &str = "plimsoll";
const CRD_RELEASE: &str = "plimsoll-crd";
const NAMESPACE: &str = "plimsoll-system";

/// The Helm binary.
#[derive(Debug)]
pub(crate) struct Helm {
    binary: PathBuf,
}

impl Helm {
    /// Finds or builds Helm.
    ///
    /// # Errors
    /// If Helm cannot be built.
    pub(crate) fn find() -> Result<Helm> {
        Ok(Helm { binary: tools::find(HELM)? })
    }

    /// Installs the custom resources, as deploy/README.md says.
    ///
    /// # Errors
    /// With the errors of Helm or the API server.
    pub(crate) fn install_crds(&self, kubeconfig: &Path, root: &Path) -> Result<()> {
        let mut command = self.upgrade(kubeconfig, CRD_RELEASE, &root.join(super::CRD_CHART));
        tools::output(command.arg("--create-namespace")).map(drop)
    }

    /// Installs the services, or upgrades them to other values.
    ///
    /// # Errors
    /// With the errors of Helm or the API server.
    pub(crate) fn install(&self, kubeconfig: &Path, root: &Path, values: &Path) -> Result<()> {
        let mut command = self.upgrade(kubeconfig, RELEASE, &root.join(super::CHART));
        tools::output(command.arg("--values").arg(values)).map(drop)
    }

    fn upgrade(&self, kubeconfig: &Path, release: &str, chart: &Path) -> Command {
        let mut command = self.release(kubeconfig, &["upgrade", "--install", release]);
        command.arg(chart);
        command
    }

    /// Rolls back to the previous revision.
    ///
    /// # Errors
    /// With the errors of Helm or the API server.
    pub(crate) fn rollback(&self, kubeconfig: &Path) -> Result<()> {
        tools::output(&mut self.release(kubeconfig, &["rollback", RELEASE])).map(drop)
    }

    fn release(&self, kubeconfig: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(args).args(["--namespace", NAMESPACE, "--kubeconfig"]).arg(kubeconfig);
        command
    }

    /// # Errors
    /// Errors of `helm lint --strict`.
    pub(crate) fn lint(&self, chart: &Path, values: Option<&Path>) -> Result<()> {
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
    pub(crate) fn template(&self, chart: &Path, values: Option<&Path>) -> Result<String> {
        let output = tools::output(&mut self.render(chart, values))?;
        String::from_utf8(output.stdout).context("what helm rendered is not UTF-8")
    }

    /// Prepares a `helm template` command, to which flags can be added.
    pub(crate) fn render(&self, chart: &Path, values: Option<&Path>) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(["template", RELEASE, "--namespace", NAMESPACE, "--kube-version", KUBERNETES]);
        command.arg(chart);
        if let Some(values) = values {
            command.arg("--values").arg(values);
        }
        command
    }
}
