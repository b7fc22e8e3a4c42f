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
    delete_oldest(files(folder)?, limit)
}

fn delete_oldest(files: Vec<PathBuf>, limit: u64) -> io::Result<()> {
    let mut sizes = Vec::new();
    for file in files {
        if let Some(metadata) = if_there(file.metadata())? {
            sizes.push((file, metadata.len()));
        }
    }
    let mut total: u64 = sizes.iter().map(|(_, size)| size).sum();
    let mut count = sizes.len();
    for (file, size) in sizes.into_iter().take(count.saturating_sub(1)) {
        if total <= limit && count <= MAX_FILES {
            break;
        }
        if_there(std::fs::remove_file(file))?;
        total -= size;
        count -= 1;
    }
    Ok(())
}

/// `None` if the file is gone: for a moment, the former leader may delete files in the same folder.
fn if_there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_another_leader_deletes_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        for name in ["2", "3", "4"] {
            std::fs::write(file(name), "12345").unwrap();
        }
        // The second deletion of "2" finds no file.
        delete_oldest(["1", "2", "2", "3", "4"].map(file).into(), 10).unwrap();
        let is_there = ["2", "3", "4"].map(|name| file(name).exists());
        assert_eq!(is_there, [false, true, true], "the missing one has no size");
    }
}
