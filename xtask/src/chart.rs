//! `cargo xtask chart`: checks the Helm charts with Helm and kubeconform, and renders the plain manifests of
//! `deploy/kubernetes` from them.

mod conform;
pub(crate) mod helm;
mod plain;
mod refused;
mod rendered;
mod schema;
mod tools;

use crate::progress::Reporter;
use crate::workspace;
use anyhow::{Context as _, Result, bail, ensure};
use helm::Helm;
use std::path::{Path, PathBuf};

const PROGRESS: Reporter = Reporter("chart");

/// The chart of the services, below the root.
const CHART: &str = "deploy/helm/plimsoll";
/// The chart of the custom resources, below the root.
const CRD_CHART: &str = "deploy/helm/plimsoll-crd";

/// Arguments of `cargo xtask chart`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Write deploy/kubernetes from the chart, without checks.
    #[arg(long)]
    write: bool,
}

/// Renders the plain manifests, or checks charts and manifests.
///
/// # Errors
/// If a tool cannot be built, or a check fails.
pub(crate) fn run(args: &Args) -> Result<()> {
    let (root, _) = workspace::folders()?;
    let helm = Helm::find()?;
    if args.write {
        return plain::write(&root, &helm);
    }
    let cases = cases(&root.join(CHART))?;
    for case in &cases {
        helm.lint(&root.join(CHART), Some(&case.values)).with_context(|| case.name.clone())?;
    }
    helm.lint(&root.join(CRD_CHART), None)?;
    PROGRESS.say(&format!("helm lint: {} value files", cases.len()));

    let folder = tempfile::tempdir().context("creating a temporary folder")?;
    let mut rendered = Vec::new();
    for case in &cases {
        let text = helm.template(&root.join(CHART), Some(&case.values)).with_context(|| case.name.clone())?;
        rendered::check_flags(&text).with_context(|| case.name.clone())?;
        rendered.push(save(folder.path(), &case.name, &text)?);
    }
    rendered.push(save(folder.path(), "plimsoll-crd", &helm.template(&root.join(CRD_CHART), None)?)?);
    for version in conform::VERSIONS {
        let count = conform::check(version, &rendered).with_context(|| format!("Kubernetes {version}"))?;
        ensure!(count > 0, "kubeconform saw no object");
        PROGRESS.say(&format!("kubeconform, Kubernetes {version}: {count} objects valid"));
    }
    PROGRESS.say(&format!("{} bad values refused", refused::check(&root.join(CHART), &helm)?));
    PROGRESS.say(&format!("{} parts of rendered objects are as expected", rendered::check(&root, &helm)?));
    plain::check(&root, &helm)?;
    PROGRESS.say("deploy/kubernetes is what the chart renders");
    Ok(())
}

fn save(folder: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = folder.join(format!("{name}.yaml"));
    std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}

/// A values file in the chart's folder ci.
#[derive(Debug)]
struct Case {
    name: String,
    values: PathBuf,
}

fn cases(chart: &Path) -> Result<Vec<Case>> {
    let folder = chart.join("ci");
    let entries = std::fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut cases = Vec::new();
    for entry in entries {
        let values = entry?.path();
        let name = values.file_stem().and_then(|name| name.to_str()).context("a name that is not UTF-8")?.to_owned();
        cases.push(Case { name, values });
    }
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    if cases.is_empty() {
        bail!("{} has no values", folder.display());
    }
    Ok(cases)
}
