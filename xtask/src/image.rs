//! `cargo xtask image`: builds the container images of deploy/images with an installed builder, and checks each image.

mod builder;
mod checks;
mod context;
mod crates;
mod manifest;
mod oci;
mod program;
mod sbom;
mod start;

use crate::harness::pods::spec;
use crate::progress::Reporter;
use crate::workspace;
use anyhow::{Context as _, Result, bail};
use builder::Builder;
use checks::Expected;
use context::{Context, Origin};
use oci::Image;
use program::{Platform, Program};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRESS: Reporter = Reporter("image");

/// Arguments of `cargo xtask image`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Use built programs (a folder such as target/release) instead of compiling in the builder.
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// Only these images.
    #[arg(long, value_delimiter = ',', value_name = "IMAGE")]
    only: Vec<String>,
    /// Base of the images: `packages` (Debian's, within the builder), `local` (Debian's, on this machine) or an image.
    #[arg(long, default_value = "packages", value_name = "BASE")]
    base: String,
    /// Target platforms.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Platform::of_this_machine()])]
    platform: Vec<Platform>,
    /// The builder to use [default: the first one that works].
    #[arg(long, value_enum)]
    builder: Option<Builder>,
    /// Replace another argument of the Dockerfile, such as DEBIAN=mirror/debian:bookworm-slim.
    #[arg(long, value_name = "NAME=VALUE")]
    build_arg: Vec<String>,
    /// URL of the source, for the label org.opencontainers.image.source.
    #[arg(long, default_value = "unknown", value_name = "URL")]
    source: String,
    /// Folder for archives, debug files, contents lists and SBOMs [default: target/images].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Do not start the programs.
    #[arg(long)]
    no_start: bool,
}

/// Common properties of all images of this run.
#[derive(Debug)]
struct Release {
    version: &'static str,
    revision: String,
    /// Time of the commit, in seconds since 1970, used for every timestamp in the images.
    epoch: i64,
}

/// An image that has passed its checks.
#[derive(Debug)]
struct Built {
    program: &'static Program,
    platform: Platform,
    image: Image,
    archive: PathBuf,
}

/// Builds and checks the images.
///
/// # Errors
/// If no builder is installed, a build fails, or an image fails a check. The message contains all faults of all images.
pub(crate) fn run(args: &Args) -> Result<()> {
    let (root, target) = workspace::folders()?;
    let chosen = program::choose(&args.only)?;
    let out = std::path::absolute(args.out.clone().unwrap_or_else(|| target.join("images")))?;
    fs::create_dir_all(&out).with_context(|| format!("making {}", out.display()))?;
    let release = Release::find(&root)?;
    let builder = builder::find(args.builder)?;
    let mut built = Vec::new();
    let mut faults = Vec::new();
    for platform in &args.platform {
        let origin = Origin { root: &root, programs: args.programs.as_deref(), base: &args.base };
        let context = Context::prepare(&origin, &chosen, *platform, &out, release.epoch)?;
        let trees = crates::of_programs(&root, *platform)?;
        for program in &chosen {
            let archive = out.join(format!("{}-{platform}.tar", program.image));
            PROGRESS.say(&format!("{} for {platform}, with {builder}", program.image));
            let order = builder::Order { context: &context, program, platform: *platform, release: &release, args };
            builder.build(&order, &archive)?;
            let image = oci::read(&archive)?;
            faults.extend(check(&root, program, *platform, &release, &image)?);
            fs::write(out.join(format!("{}-{platform}.contents.txt", program.image)), image.listing())?;
            let document = sbom::document(program, *platform, &release, &image, &trees)?;
            fs::write(out.join(format!("{}-{platform}.cdx.json", program.image)), document)?;
            built.push(Built { program, platform: *platform, image, archive });
        }
    }
    let boms: Vec<_> =
        built.iter().map(|image| out.join(format!("{}-{}.cdx.json", image.program.image, image.platform))).collect();
    sbom::validate(&root, &boms)?;
    report(&built)?;
    if !faults.is_empty() {
        bail!("{}", faults.join("\n"));
    }
    if args.no_start {
        return Ok(());
    }
    for platform in &args.platform {
        let images: Vec<&Built> = built.iter().filter(|image| image.platform == *platform).collect();
        if platform.runs_here() {
            PROGRESS.say(&format!("starting the programs for {platform}"));
            start::all(&root, &images)?;
        } else {
            PROGRESS
                .say(&format!("the programs for {platform} are not started: this machine has no emulator for them"));
        }
    }
    Ok(())
}

fn check(root: &Path, program: &Program, platform: Platform, release: &Release, image: &Image) -> Result<Vec<String>> {
    let ports = match program.manifest {
        Some(path) => {
            let pod = manifest::read(root, path)?;
            spec::container(&pod)?.ports.iter().flatten().map(|port| port.container_port).collect()
        }
        None => BTreeSet::new(),
    };
    let expected = Expected {
        program: program.path(),
        architecture: platform.to_string(),
        ports,
        version: release.version.to_owned(),
        revision: release.revision.clone(),
    };
    Ok(checks::faults(image, &expected)
        .into_iter()
        .map(|fault| format!("{} ({platform}): {fault}", program.image))
        .collect())
}

impl Release {
    fn find(root: &Path) -> Result<Release> {
        let git = |args: &[&str]| {
            let output = Command::new("git").current_dir(root).args(args).output().context("starting git")?;
            if !output.status.success() {
                bail!("git {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
            }
            Ok(String::from_utf8(output.stdout)?.trim().to_owned())
        };
        let changed = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
        let mut revision = git(&["rev-parse", "HEAD"])?;
        if changed {
            revision.push_str("-dirty");
        }
        let epoch = git(&["log", "-1", "--format=%ct"])?.parse().context("git log prints no time of HEAD")?;
        Ok(Release { version: env!("CARGO_PKG_VERSION"), revision, epoch })
    }

    fn created(&self) -> Result<String> {
        Ok(jiff::Timestamp::from_second(self.epoch)?.to_string())
    }
}

fn report(built: &[Built]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    for one in built {
        writeln!(
            out,
            "{:<20} {:<6} {:>5.1} MB compressed, {:>5.1} MB unpacked, {} files, user {}, {}",
            one.program.image,
            one.platform,
            megabytes(one.image.compressed),
            megabytes(one.image.unpacked()),
            one.image.files(),
            one.image.config.user,
            one.archive.display(),
        )?;
    }
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "sizes of images, to one digit")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
