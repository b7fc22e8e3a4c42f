//! Checks the image of the `plimsoll` command.

use crate::harness::confine::{self, Mount};
use anyhow::{Context as _, Result, bail};
use std::path::Path;

const PROGRAM: &str = "/usr/bin/plimsoll";
const EXAMPLE: &str = "docs/examples/plan";

/// Runs version, help, and a plan of the example.
///
/// # Errors
/// If a command fails or its output lacks an expected part.
pub(super) fn check(repository: &Path, root: &Path) -> Result<()> {
    let version = run(root, &[], &["--version"])?;
    if version.trim() != concat!("plimsoll ", env!("CARGO_PKG_VERSION")) {
        bail!("plimsoll --version says {version:?}");
    }
    let help = run(root, &[], &["--help"])?;
    if !help.contains("Usage: plimsoll") {
        bail!("plimsoll --help says {help:?}");
    }
    let example = copy(&repository.join(EXAMPLE))?;
    let mount = Mount { from: example.path().to_owned(), to: "manifests".to_owned(), writable: false };
    let plan = run(root, &[mount], &["plan", "-f", "/manifests", "-o", "json"])?;
    serde_json::from_str::<serde_json::Value>(&plan).context("plimsoll plan -o json: no JSON")?;
    Ok(())
}

/// Creates certificates for the three services with the image, in a folder of its user.
///
/// # Errors
/// If the certificates cannot be created.
pub(super) fn certificates(root: &Path, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    let mount = Mount { from: folder.to_owned(), to: "out".to_owned(), writable: true };
    run(root, &[mount], &["certificates", "--out", "/out"]).map(drop)
}

/// Copies a folder, because mounts change the owner and must not change the repository.
fn copy(folder: &Path) -> Result<tempfile::TempDir> {
    let copy = tempfile::tempdir()?;
    for entry in std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        if path.is_file() {
            std::fs::copy(&path, copy.path().join(path.file_name().context("a file without name")?))?;
        }
    }
    Ok(copy)
}

fn run(root: &Path, mounts: &[Mount], args: &[&str]) -> Result<String> {
    let owned: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
    let output = confine::command(root, mounts, PROGRAM, &owned).output().context("starting unshare")?;
    if !output.status.success() {
        bail!("plimsoll {}: {}: {}", args.join(" "), output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("plimsoll {}: no UTF-8", args.join(" ")))
}
