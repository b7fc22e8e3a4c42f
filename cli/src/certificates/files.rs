//! Writes the certificate files: all of them, or none if one exists already. Only their owner can read private keys.

use super::issue::Issued;
use crate::CommandError;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const SECRET: u32 = 0o600;
const PUBLIC: u32 = 0o644;
const FOLDER: u32 = 0o700;

struct File<'text> {
    path: PathBuf,
    text: &'text str,
    mode: u32,
}

pub(super) fn write(folder: &Path, issued: &Issued, force: bool) -> Result<(), CommandError> {
    let authority = &issued.authority;
    let mut files = vec![
        File { path: folder.join("ca.crt"), text: &authority.cert, mode: PUBLIC },
        File { path: folder.join("ca.key"), text: &authority.key, mode: SECRET },
    ];
    for (service, pair) in &issued.services {
        let folder = folder.join(service);
        files.push(File { path: folder.join("tls.crt"), text: &pair.cert, mode: PUBLIC });
        files.push(File { path: folder.join("tls.key"), text: &pair.key, mode: SECRET });
        files.push(File { path: folder.join("ca.crt"), text: &authority.cert, mode: PUBLIC });
    }
    if let Some(there) = files.iter().find(|file| !force && file.path.symlink_metadata().is_ok()) {
        let path = there.path.display();
        return Err(CommandError::Failed(format!("{path} is there already; --force writes over it")));
    }
    let failed = |path: &Path, error: std::io::Error| CommandError::Failed(format!("{}: {error}", path.display()));
    for file in &files {
        if let Some(folder) = file.path.parent() {
            let created = fs::DirBuilder::new().recursive(true).mode(FOLDER).create(folder);
            created.map_err(|error| failed(folder, error))?;
        }
        put(file).map_err(|error| failed(&file.path, error))?;
    }
    Ok(())
}

/// Writes a temporary file and renames it, so that other processes see neither a partial file nor the mode of an older
/// one.
fn put(file: &File<'_>) -> std::io::Result<()> {
    let beside = file.path.with_extension(format!("new-{}", std::process::id()));
    let written = (|| {
        let mut to = OpenOptions::new().write(true).create_new(true).mode(file.mode).open(&beside)?;
        to.write_all(file.text.as_bytes())?;
        to.sync_all()?;
        fs::rename(&beside, &file.path)
    })();
    if written.is_err() {
        // Removes the rest of a failed attempt; the first error is the relevant one.
        let _ = fs::remove_file(&beside);
    }
    written
}
