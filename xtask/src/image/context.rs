//! The build context: the repository, or a folder with built programs.

use super::PROGRESS;
use super::program::{Platform, Program};
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folder of the Dockerfile and its scripts.
pub(super) const FOLDER: &str = "deploy/images";
/// Stage of the Dockerfile with the base from the context.
const LOCAL: &str = "local";
/// Length up to and including `e_machine`.
const ELF_HEAD: usize = 20;

/// Sources of programs and base.
#[derive(Debug)]
pub(super) struct Origin<'a> {
    /// The repository.
    pub(super) root: &'a Path,
    /// Folder with built programs, if any.
    pub(super) programs: Option<&'a Path>,
    /// Value on the command line.
    pub(super) base: &'a str,
}

/// A build context.
#[derive(Debug)]
pub(super) struct Context {
    /// The folder.
    pub(super) folder: PathBuf,
    /// The argument PROGRAMS of the Dockerfile.
    pub(super) programs: &'static str,
    /// The argument BASE of the Dockerfile.
    pub(super) base: String,
    /// Dropping this value removes the folder, if it was created for this run.
    _made: Option<tempfile::TempDir>,
}

impl Context {
    /// Creates the context. Debug files of built programs go to `out`.
    ///
    /// # Errors
    /// If a program is missing or has another architecture, or the base cannot be created.
    pub(super) fn prepare(
        origin: &Origin<'_>,
        chosen: &[&Program],
        platform: Platform,
        out: &Path,
        epoch: i64,
    ) -> Result<Context> {
        let base = origin.base.to_owned();
        let Some(programs) = origin.programs else {
            if base == LOCAL {
                bail!("--base local: needs --programs, as the repository itself is the context otherwise");
            }
            return Ok(Context { folder: origin.root.to_owned(), programs: "compiled", base, _made: None });
        };
        let made = tempfile::Builder::new().prefix("context-").tempdir_in(out)?;
        let scripts = made.path().join(FOLDER);
        fs::create_dir_all(&scripts)?;
        for name in ["Dockerfile", "base.sh", "split.sh"] {
            fs::copy(origin.root.join(FOLDER).join(name), scripts.join(name))
                .with_context(|| format!("copying {name}"))?;
        }
        let names: Vec<&str> = chosen.iter().map(|program| program.image).collect();
        for name in &names {
            check_architecture(&programs.join(name), platform)?;
        }
        PROGRESS.say("taking the debug information out of the programs");
        let mut split = Command::new(scripts.join("split.sh"));
        split.arg(programs).arg(made.path().join("programs")).arg(out.join(format!("debug-{platform}"))).args(&names);
        if platform != Platform::of_this_machine() {
            split.env("OBJCOPY", format!("{}-linux-gnu-objcopy", platform.cpu()));
        }
        succeed(&mut split)?;
        if base == LOCAL {
            PROGRESS.say("making the base of this machine's Debian packages");
            let mut script = Command::new(scripts.join("base.sh"));
            script.arg(made.path().join("base")).arg(platform.to_string()).env("SOURCE_DATE_EPOCH", epoch.to_string());
            succeed(&mut script)?;
        }
        Ok(Context { folder: made.path().to_owned(), programs: "prebuilt", base, _made: Some(made) })
    }

    /// Whether the build needs no other image and runs no command, so that any storage and any isolation works.
    pub(super) fn is_closed(&self) -> bool {
        self.programs == "prebuilt" && self.base == LOCAL
    }
}

/// Runs a command with visible output.
///
/// # Errors
/// If the command cannot be started or fails.
pub(super) fn succeed(command: &mut Command) -> Result<()> {
    let name = command.get_program().display().to_string();
    let status = command.status().with_context(|| format!("starting {name}"))?;
    if !status.success() {
        bail!("{name}: {status}");
    }
    Ok(())
}

/// Checks the architecture of a program, because builders do not.
fn check_architecture(program: &Path, platform: Platform) -> Result<()> {
    let mut head = [0; ELF_HEAD];
    let mut file = fs::File::open(program).with_context(|| format!("--programs: opening {}", program.display()))?;
    file.read_exact(&mut head).with_context(|| format!("{}: not a program", program.display()))?;
    match machine(&head) {
        Some(machine) if machine == platform.elf_machine() => Ok(()),
        Some(machine) => bail!("{}: built for ELF machine {machine}, not for {platform}", program.display()),
        None => bail!("{}: not an ELF file", program.display()),
    }
}

fn machine(head: &[u8; ELF_HEAD]) -> Option<u16> {
    let [0x7f, b'E', b'L', b'F', .., low, high] = head else { return None };
    Some(u16::from_le_bytes([*low, *high]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_another_architecture_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let mut head = [0; ELF_HEAD];
        head[..4].copy_from_slice(b"\x7fELF");
        // 0xB7 is AArch64 in the ELF specification.
        head[18] = 0xB7;
        fs::write(&path, head).unwrap();
        check_architecture(&path, Platform::Arm64).unwrap();
        assert!(check_architecture(&path, Platform::Amd64).unwrap_err().to_string().contains("183"));
        fs::write(&path, "#!/bin/sh\nexit 0\n# long enough").unwrap();
        assert!(check_architecture(&path, Platform::Amd64).unwrap_err().to_string().contains("not an ELF file"));
        check_architecture(&std::env::current_exe().unwrap(), Platform::of_this_machine()).unwrap();
    }

    #[test]
    fn a_local_base_needs_built_programs() {
        let origin = Origin { root: Path::new("."), programs: None, base: LOCAL };
        let error = Context::prepare(&origin, &[], Platform::Amd64, Path::new("."), 0).unwrap_err();
        assert!(error.to_string().contains("--programs"), "{error}");
    }
}
