//! Names and sizes of the files of a recording.

use plimsoll_model::time::Timestamp;
use std::io;
use std::path::{Path, PathBuf};

/// How names begin. Other files in the folder are left alone.
const PREFIX: &str = "plimsoll-";
/// How names end.
const SUFFIX: &str = ".recording.gz";
/// Maximum number of files before another one begins. Each leader begins one, so a watcher that keeps restarting would
/// fill the folder with small files.
const MAX_FILES: usize = 1000;

/// Name of a file that begins at `at`. Names sort by time.
pub(crate) fn name(at: Timestamp) -> String {
    let time = jiff::Timestamp::from_millisecond(at.0).unwrap_or_default();
    format!("{PREFIX}{}{SUFFIX}", time.strftime("%Y%m%dT%H%M%S%.3fZ"))
}

/// The files of a recording, oldest first. `path` is a folder, or one file.
///
/// # Errors
/// If the path cannot be read.
pub fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !path.metadata()?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in path.read_dir()? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX)) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Deletes the oldest files but one while all together have more than `limit` bytes, or are too many.
pub(crate) fn prune(folder: &Path, limit: u64) -> io::Result<()> {
    let files = files(folder)?;
    let mut sizes = Vec::new();
    for file in files {
        let size = file.metadata()?.len();
        sizes.push((file, size));
    }
    let mut total: u64 = sizes.iter().map(|(_, size)| size).sum();
    let mut count = sizes.len();
    for (file, size) in sizes.into_iter().take(count.saturating_sub(1)) {
        if total <= limit && count <= MAX_FILES {
            break;
        }
        std::fs::remove_file(file)?;
        total -= size;
        count -= 1;
    }
    Ok(())
}
