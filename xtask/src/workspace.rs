//! Paths and programs of the workspace.

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The root of the repository and cargo's target folder.
pub(crate) fn folders() -> Result<(PathBuf, PathBuf)> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let output = cargo()
        .args(["metadata", "--no-deps", "--offline", "--format-version=1", "--manifest-path"])
        .arg(manifest)
        .output()
        .context("starting cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let folder =
        |key: &str| metadata[key].as_str().map(PathBuf::from).with_context(|| format!("cargo metadata has no {key}"));
    Ok((folder("workspace_root")?, folder("target_directory")?))
}

/// The cargo that started this program.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs a script that prints one path.
pub(crate) fn script(path: &Path) -> Result<PathBuf> {
    let output =
        Command::new(path).stderr(Stdio::inherit()).output().with_context(|| format!("starting {}", path.display()))?;
    if !output.status.success() {
        bail!("{}: {}", path.display(), output.status);
    }
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}
