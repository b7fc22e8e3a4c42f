//! Finds and reads files.

use super::MAX_INPUT_BYTES;
use plimsoll_manifests::{ManifestError, Text};
use std::fmt;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Maximum depth of folders. Deeper folders are probably a loop.
const MAX_DEPTH: usize = 32;

/// Files in the order of `paths`; files of a folder by name.
pub(super) fn read(paths: &[PathBuf], stdin: &mut dyn Read) -> Result<Vec<Text>, ManifestError> {
    let mut files = Vec::new();
    let mut room = MAX_INPUT_BYTES;
    for path in paths {
        if path.as_os_str() == "-" {
            files.push(content("-".to_owned(), stdin, &mut room)?);
            continue;
        }
        let mut found = Vec::new();
        if fs::metadata(path).map_err(|error| unreadable(path, error))?.is_dir() {
            walk(path, 0, &mut found)?;
        } else {
            found.push(path.clone());
        }
        for path in found {
            let mut file = fs::File::open(&path).map_err(|error| unreadable(&path, error))?;
            files.push(content(path.display().to_string(), &mut file, &mut room)?);
        }
    }
    Ok(files)
}

fn walk(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), ManifestError> {
    if depth > MAX_DEPTH {
        return Err(unreadable(folder, format!("more than {MAX_DEPTH} folders deep")));
    }
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| unreadable(folder, error))? {
        entries.push(entry.map_err(|error| unreadable(folder, error))?.path());
    }
    entries.sort();
    for path in entries {
        let metadata = fs::symlink_metadata(&path).map_err(|error| unreadable(&path, error))?;
        if metadata.is_dir() {
            walk(&path, depth + 1, found)?;
        } else if path.is_dir() {
            // A link to a folder may lead to a parent, or to a folder that is read anyway: mounted ConfigMaps have such
            // links.
        } else if path.extension().is_some_and(|it| it == "yaml" || it == "yml" || it == "json") {
            found.push(path);
        }
    }
    Ok(())
}

fn content(name: String, from: &mut dyn Read, room: &mut u64) -> Result<Text, ManifestError> {
    let mut bytes = Vec::new();
    let problem = |problem: String| ManifestError::Unreadable { path: name.clone(), problem };
    let read = from.take(*room + 1).read_to_end(&mut bytes).map_err(|error| problem(error.to_string()))?;
    let left = room.checked_sub(u64::try_from(read).unwrap_or(u64::MAX));
    *room = left.ok_or_else(|| problem(format!("the input is larger than {MAX_INPUT_BYTES} bytes")))?;
    let content = String::from_utf8(bytes).map_err(|error| {
        let valid = error.as_bytes().iter().take(error.utf8_error().valid_up_to());
        problem(format!("line {}: not UTF-8", valid.filter(|byte| **byte == b'\n').count() + 1))
    })?;
    Ok(Text { name, content })
}

fn unreadable(path: &Path, problem: impl fmt::Display) -> ManifestError {
    ManifestError::Unreadable { path: path.display().to_string(), problem: problem.to_string() }
}
