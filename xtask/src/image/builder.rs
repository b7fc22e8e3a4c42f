//! Docker, Podman or Buildah: builds an archive of one image from a context.

use super::context::{Context, FOLDER, succeed};
use super::program::{Platform, Program};
use super::{Args, Release};
use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};

/// A program that builds images from a Dockerfile.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Builder {
    /// Docker with `BuildKit`, and its daemon.
    Docker,
    /// Podman.
    Podman,
    /// Buildah.
    Buildah,
}

/// Build request for one image.
#[derive(Debug)]
pub(super) struct Order<'a> {
    pub(super) context: &'a Context,
    pub(super) program: &'a Program,
    pub(super) platform: Platform,
    pub(super) release: &'a Release,
    pub(super) args: &'a Args,
}

impl fmt::Display for Builder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.program())
    }
}

/// The requested builder, or the first that works on this machine.
///
/// # Errors
/// If there is none, with installation instructions.
pub(super) fn find(wanted: Option<Builder>) -> Result<Builder> {
    let candidates = wanted.map_or_else(|| Builder::value_variants().to_vec(), |one| vec![one]);
    let mut reasons = Vec::new();
    for builder in candidates {
        match builder.trouble() {
            None => return Ok(builder),
            Some(reason) => reasons.push(format!("{builder}: {reason}")),
        }
    }
    bail!(
        "no builder of images runs here ({}). Install one of: Docker 23 or later, Podman 4 or later, Buildah 1.28 or later \
         (Debian, Ubuntu: apt-get install buildah)",
        reasons.join("; ")
    );
}

impl Builder {
    fn program(self) -> &'static str {
        match self {
            Builder::Docker => "docker",
            Builder::Podman => "podman",
            Builder::Buildah => "buildah",
        }
    }

    /// Why the builder cannot be used. A docker command without a daemon is common.
    fn trouble(self) -> Option<String> {
        let question: &[&str] = match self {
            Builder::Docker => &["info", "--format", "{{.ServerVersion}}"],
            Builder::Podman | Builder::Buildah => &["--version"],
        };
        let output = Command::new(self.program()).args(question).stdin(Stdio::null()).output();
        match output {
            Ok(output) if output.status.success() => None,
            Ok(output) => {
                let text = String::from_utf8_lossy(&output.stderr);
                Some(text.lines().last().unwrap_or("failed").trim().to_owned())
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some("not installed".to_owned()),
            Err(error) => Some(error.to_string()),
        }
    }

    /// Builds one image and writes it as an archive.
    ///
    /// # Errors
    /// If the builder fails; its output has the reason.
    pub(super) fn build(self, order: &Order<'_>, archive: &Path) -> Result<()> {
        // Left over from an earlier run: builders append to it or fail.
        if archive.exists() {
            std::fs::remove_file(archive).with_context(|| format!("removing {}", archive.display()))?;
        }
        let tag = format!("{}:{}", order.program.image, order.release.version);
        match self {
            Builder::Docker => {
                let mut build = Command::new("docker");
                build.args(["build", "--provenance=false"]).env("SOURCE_DATE_EPOCH", order.release.epoch.to_string());
                succeed(
                    build.args(["--platform", &format!("linux/{}", order.platform)]).args(arguments(order, &tag)?),
                )?;
                succeed(Command::new("docker").args(["save", "--output"]).arg(archive).arg(&tag))
            }
            Builder::Podman | Builder::Buildah => {
                let storage = Storage::of(order.context, archive)?;
                let mut build = self.command(storage.as_ref());
                build.args(["build", "--format=oci"]).arg(format!("--timestamp={}", order.release.epoch));
                build.args(["--platform", &format!("linux/{}", order.platform)]);
                if storage.is_some() {
                    build.arg("--isolation=chroot");
                }
                succeed(build.args(arguments(order, &tag)?))?;
                let mut save = self.command(storage.as_ref());
                if self == Builder::Podman {
                    save.args(["save", "--quiet", "--format=oci-archive", "--output"]).arg(archive).arg(&tag);
                } else {
                    let mut to = OsString::from("oci-archive:");
                    to.push(archive);
                    save.args(["push", "--quiet", &tag]).arg(to);
                }
                succeed(&mut save)
            }
        }
    }

    fn command(self, storage: Option<&Storage>) -> Command {
        let mut command = Command::new(self.program());
        if let Some(Storage(folder)) = storage {
            command.arg("--root").arg(folder.path().join("root")).arg("--runroot").arg(folder.path().join("run"));
            command.arg("--storage-driver=vfs");
        }
        command
    }
}

/// Separate storage for this build. It works on any file system and in containers, and is removed at the end. It copies
/// whole layers, which is acceptable only for small images.
#[derive(Debug)]
struct Storage(tempfile::TempDir);

impl Storage {
    /// For a build without other images. Other builds use the user's storage.
    fn of(context: &Context, archive: &Path) -> Result<Option<Storage>> {
        if !context.is_closed() {
            return Ok(None);
        }
        let folder = archive.parent().context("the archive has no folder")?;
        Ok(Some(Storage(tempfile::Builder::new().prefix("storage-").tempdir_in(folder)?)))
    }
}

/// Arguments that all builders support.
fn arguments(order: &Order<'_>, tag: &str) -> Result<Vec<OsString>> {
    let Order { context, program, release, args, .. } = order;
    let mut all: Vec<OsString> = vec!["--target".into(), program.image.into(), "--tag".into(), tag.into()];
    let values = [
        ("PROGRAMS", context.programs.to_owned()),
        ("BASE", context.base.clone()),
        ("VERSION", release.version.to_owned()),
        ("REVISION", release.revision.clone()),
        ("SOURCE", args.source.clone()),
        ("CREATED", release.created()?),
        ("SOURCE_DATE_EPOCH", release.epoch.to_string()),
    ];
    let given = args.build_arg.iter().cloned();
    for argument in values.into_iter().map(|(name, value)| format!("{name}={value}")).chain(given) {
        all.extend(["--build-arg".into(), argument.into()]);
    }
    all.extend(["--file".into(), context.folder.join(FOLDER).join("Dockerfile").into(), context.folder.clone().into()]);
    Ok(all)
}
