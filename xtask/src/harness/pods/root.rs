//! Root file system of a program that was built on this machine: only the contents of its image.

use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The AWS SDK needs it to trust servers.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Path of the program in its root file system.
pub(super) fn program_path(name: &str) -> String {
    format!("/usr/bin/{name}")
}

/// Creates `root` with the program `name` and its shared libraries.
///
/// # Errors
/// If the program or a library is missing.
pub(super) fn make(program: &Path, name: &str, root: &Path) -> Result<()> {
    let output = Command::new("ldd").arg(program).output().context("starting ldd")?;
    if !output.status.success() {
        bail!("ldd {}: {}", program.display(), String::from_utf8_lossy(&output.stderr).trim());
    }
    for library in libraries(&String::from_utf8_lossy(&output.stdout)) {
        copy(&library, &below(root, &library))?;
    }
    let authorities = Path::new(AUTHORITIES);
    if authorities.exists() {
        copy(authorities, &below(root, authorities))?;
    }
    // Only /etc/hosts: names are never resolved outside this machine.
    write(&root.join("etc/nsswitch.conf"), "hosts: files\n")?;
    let target = below(root, Path::new(&program_path(name)));
    parent(&target)?;
    // A program of the test profile is large. A hard link avoids a copy on the same file system.
    fs::hard_link(program, &target)
        .or_else(|_| fs::copy(program, &target).map(drop))
        .with_context(|| format!("copying {}", program.display()))
}

/// Files in the output of ldd. A library without a file, such as that of the kernel, has no path.
fn libraries(told: &str) -> Vec<PathBuf> {
    let path = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
    told.lines().filter_map(path).collect()
}

fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn parent(path: &Path) -> Result<()> {
    let folder = path.parent().with_context(|| format!("{} has no folder", path.display()))?;
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    parent(to)?;
    fs::copy(from, to).map(drop).with_context(|| format!("copying {}", from.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    parent(path)?;
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::libraries;
    use std::path::PathBuf;

    #[test]
    fn libraries_are_those_with_a_file() {
        let told = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f)\n\t/lib64/ld-linux-x86-64.so.2 (0x0000)\n";
        assert_eq!(
            libraries(told),
            ["/lib/x86_64-linux-gnu/libm.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from)
        );
    }
}
