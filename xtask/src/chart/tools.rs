//! Go programs and modules with pinned versions. Programs are built once into the user's cache.

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A program that `go install` can build.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    /// Name of the binary.
    pub(super) name: &'static str,
    /// Package path.
    pub(super) package: &'static str,
    /// Version of the module.
    pub(super) version: &'static str,
}

/// Plimsoll's folder in the user's cache.
///
/// # Errors
/// If the user has no home.
pub(super) fn cache() -> Result<PathBuf> {
    let folder = match std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()) {
        Some(path) => PathBuf::from(path),
        None => {
            PathBuf::from(std::env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set")?).join(".cache")
        }
    };
    Ok(folder.join("plimsoll"))
}

/// The binary of a program, built if it is missing.
///
/// # Errors
/// If it cannot be built.
pub(super) fn find(program: Program) -> Result<PathBuf> {
    let folder = cache()?.join(format!("{}-{}", program.name, program.version));
    let binary = folder.join(program.name);
    if binary.is_file() {
        return Ok(binary);
    }
    super::PROGRESS.say(&format!("building {} {} (2 to 4 minutes the first time)", program.name, program.version));
    std::fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    // The rename is atomic, also when two builds run at the same time.
    let build = tempfile::tempdir_in(&folder).context("creating a folder for the build")?;
    let package = format!("{}@{}", program.package, program.version);
    let mut command = Command::new("go");
    // Two compilers in parallel, because each takes up to 1 GiB.
    command.args(["install", "-trimpath", "-p=2", &package]).env("GOBIN", build.path()).env("CGO_ENABLED", "0");
    // Outside of any module, because a go.mod would affect the versions of dependencies.
    output(command.current_dir(build.path()))?;
    let built = build.path().join(program.name);
    std::fs::rename(&built, &binary).with_context(|| format!("moving {} into place", built.display()))?;
    Ok(binary)
}

/// Output of `go mod download -json`.
#[derive(Deserialize, Debug)]
struct Downloaded {
    #[serde(rename = "Dir")]
    dir: PathBuf,
}

/// The folder of a module's sources, downloaded if they are missing.
///
/// # Errors
/// If the module cannot be downloaded.
pub(super) fn module(path: &str, version: &str) -> Result<PathBuf> {
    let outside = tempfile::tempdir().context("creating a temporary folder")?;
    let mut command = Command::new("go");
    command.args(["mod", "download", "-json", &format!("{path}@{version}")]).current_dir(outside.path());
    let output = output(&mut command)?;
    let told: Downloaded = serde_json::from_slice(&output.stdout).with_context(|| format!("go mod download {path}"))?;
    Ok(told.dir)
}

/// Runs a command to its end.
///
/// # Errors
/// If the command cannot be started or fails, with its output.
pub(super) fn output(command: &mut Command) -> Result<Output> {
    let name = |text: &OsStr| Path::new(text).file_name().unwrap_or(text).to_string_lossy().into_owned();
    let what = name(command.get_program());
    let output = command.output().with_context(|| format!("starting {what}"))?;
    if !output.status.success() {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        bail!("{what}: {}\n{}\n{}", output.status, text(&output.stdout), text(&output.stderr));
    }
    Ok(output)
}
