//! kubeconform against the API of each supported version of Kubernetes.

use super::schema;
use super::tools::{self, Program};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

const KUBECONFORM: Program =
    Program { name: "kubeconform", package: "github.com/yannh/kubeconform/cmd/kubeconform", version: "v0.7.0" };
/// Versions of Kubernetes that the charts support. The module k8s.io/kubernetes contains the API of each.
pub(super) const VERSIONS: [&str; 3] = ["v1.35.3", "v1.36.3", "v1.37.2"];
/// Modules with CustomResourceDefinitions of objects in the chart, and the folder in the module.
const CRDS: [(&str, &str, &str); 2] = [
    ("github.com/cert-manager/cert-manager", "v1.19.1", "deploy/crds"),
    ("github.com/prometheus-operator/prometheus-operator", "v0.85.0", "example/prometheus-operator-crd"),
];

/// Checks rendered files and returns the number of objects in them.
///
/// # Errors
/// With the errors of kubeconform.
pub(super) fn check(version: &str, files: &[PathBuf]) -> Result<u64> {
    let schemas = schemas(version)?;
    let mut command = Command::new(tools::find(KUBECONFORM)?);
    let location = schemas.join("{{ .Group }}_{{ .ResourceAPIVersion }}_{{ .ResourceKind }}.json");
    command.args(["-strict", "-summary", "-output", "json", "-schema-location"]).arg(location).args(files);
    let output = tools::output(&mut command)?;
    let output_json: Value = serde_json::from_slice(&output.stdout).context("the answer of kubeconform")?;
    let count =
        |key: &str| output_json["summary"][key].as_u64().with_context(|| format!("kubeconform reports no {key}"));
    ensure!(count("skipped")? == 0, "kubeconform skipped {} objects", count("skipped")?);
    count("valid")
}

/// The folder with a JSON schema for each kind, created once in the user's cache.
fn schemas(version: &str) -> Result<PathBuf> {
    let modules: Vec<_> = CRDS.iter().map(|(_, version, _)| *version).collect();
    let folder = tools::cache()?.join(format!("schemas-{}-{version}-{}", schema::FORMAT, modules.join("-")));
    if folder.is_dir() {
        return Ok(folder);
    }
    super::PROGRESS.say(&format!("making JSON schemas of Kubernetes {version}"));
    let parent = tools::cache()?;
    std::fs::create_dir_all(&parent).with_context(|| format!("creating {}", parent.display()))?;
    let made = tempfile::tempdir_in(&parent).context("creating a folder for schemas")?;
    let swagger = tools::module("k8s.io/kubernetes", version)?.join("api/openapi-spec/swagger.json");
    let swagger: Value = serde_json::from_str(&read(&swagger)?).with_context(|| swagger.display().to_string())?;
    for (name, schema) in schema::of_swagger(&swagger)? {
        write(made.path(), &name, &schema)?;
    }
    for (module, version, below) in CRDS {
        for file in yaml_files(&tools::module(module, version)?.join(below))? {
            for (name, schema) in schema::of_crds(&read(&file)?).with_context(|| file.display().to_string())? {
                write(made.path(), &name, &schema)?;
            }
        }
    }
    // The rename is atomic. If another run was faster, its folder is equivalent.
    if let Err(error) = std::fs::rename(made.path(), &folder)
        && !folder.is_dir()
    {
        return Err(error).with_context(|| format!("moving schemas to {}", folder.display()));
    }
    Ok(folder)
}

fn yaml_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "yaml")).collect())
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

fn write(folder: &Path, name: &str, schema: &Value) -> Result<()> {
    let path = folder.join(name);
    std::fs::write(&path, serde_json::to_string(schema)?).with_context(|| format!("writing {}", path.display()))
}
