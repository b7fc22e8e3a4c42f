//! deploy/kubernetes: the chart's objects without Helm, one file for each template.

use super::helm::Helm;
use super::{CHART, CRD_CHART};
use anyhow::{Context as _, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const FOLDER: &str = "deploy/kubernetes";
/// The only file of the folder that is not generated.
const BY_HAND: &str = "kustomization.yaml";
const VALUES: &str = "ci/plain.yaml";
const HEADER: &str = "# Rendered from deploy/helm/plimsoll by `cargo xtask chart --write`: change the chart.\n";
/// Line before each object in the output of Helm.
const SOURCE: &str = "# Source: plimsoll/templates/";
/// Labels of objects that Helm installs.
const HELM_LABELS: [&str; 3] = ["app.kubernetes.io/instance: ", "app.kubernetes.io/managed-by: ", "helm.sh/chart: "];

/// Writes the files, and removes files of templates that no longer exist.
///
/// # Errors
/// If Helm cannot render the chart, or a file cannot be written.
pub(super) fn write(root: &Path, helm: &Helm) -> Result<()> {
    let files = rendered(root, helm)?;
    for (name, text) in &files {
        let path = root.join(FOLDER).join(name);
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    for name in present(root)?.difference(&files.keys().cloned().collect()) {
        let path = root.join(FOLDER).join(name);
        std::fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
    }
    super::PROGRESS.say(&format!("{} files of {FOLDER} written", files.len()));
    copy_crds(root)
}

/// Copies the definitions to their chart, because a chart cannot include files outside of its folder.
fn copy_crds(root: &Path) -> Result<()> {
    let (from, to) = (root.join("deploy/crds"), root.join(CRD_CHART).join("files"));
    for entry in std::fs::read_dir(&from).with_context(|| format!("reading {}", from.display()))? {
        let name = entry?.file_name();
        std::fs::copy(from.join(&name), to.join(&name))
            .with_context(|| format!("copying {}", from.join(&name).display()))?;
    }
    Ok(())
}

/// Compares the files with the output of `write`.
///
/// # Errors
/// If they differ, with the name of the first different file.
pub(super) fn check(root: &Path, helm: &Helm) -> Result<()> {
    let files = rendered(root, helm)?;
    let present = present(root)?;
    for (name, text) in &files {
        let stored = std::fs::read_to_string(root.join(FOLDER).join(name)).unwrap_or_default();
        if stored != *text {
            bail!("{FOLDER}/{name} is not what the chart renders: run `cargo xtask chart --write`");
        }
    }
    match present.iter().find(|name| !files.contains_key(*name)) {
        Some(name) => bail!("{FOLDER}/{name} is none of the chart's: run `cargo xtask chart --write`"),
        None => Ok(()),
    }
}

fn rendered(root: &Path, helm: &Helm) -> Result<BTreeMap<String, String>> {
    let chart = root.join(CHART);
    split(&helm.template(&chart, Some(&chart.join(VALUES)))?)
}

fn present(root: &Path) -> Result<BTreeSet<String>> {
    let folder = root.join(FOLDER);
    let entries = std::fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut names = BTreeSet::new();
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != BY_HAND {
            names.insert(name);
        }
    }
    Ok(names)
}

/// Objects by template, in the order in which Helm installs them.
fn split(rendered: &str) -> Result<BTreeMap<String, String>> {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for document in format!("\n{rendered}").split("\n---\n").filter(|document| !document.trim().is_empty()) {
        let (first, object) = document.split_once('\n').context("a document of one line")?;
        let name = first.strip_prefix(SOURCE).with_context(|| format!("a document without its source: {first}"))?;
        let file = files.entry(name.to_owned()).or_insert_with(|| HEADER.to_owned());
        if file.len() > HEADER.len() {
            file.push_str("---\n");
        }
        for line in object.lines().filter(|line| !is_helm_label(line)) {
            file.push_str(line);
            file.push('\n');
        }
    }
    Ok(files)
}

fn is_helm_label(line: &str) -> bool {
    HELM_LABELS.iter().any(|label| line.trim_start().starts_with(label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_go_to_the_file_of_their_template_without_helm_labels() {
        let rendered = "---\n# Source: plimsoll/templates/a.yaml\n# Why.\nkind: A\nlabels:\n  app.kubernetes.io/managed-by: Helm\n  x: y\n\
                        ---\n# Source: plimsoll/templates/b.yaml\nkind: B\n---\n# Source: plimsoll/templates/a.yaml\nkind: C\n";
        let files = split(rendered).unwrap();
        assert_eq!(files.keys().collect::<Vec<_>>(), ["a.yaml", "b.yaml"]);
        assert_eq!(files["a.yaml"], format!("{HEADER}# Why.\nkind: A\nlabels:\n  x: y\n---\nkind: C\n"));
        assert!(split("---\nkind: A\n").is_err());
    }
}
