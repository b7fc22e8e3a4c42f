//! Reads manifests from files, folders and stdin.

mod files;

pub use plimsoll_manifests::{
    DEFAULT_REGION, MAX_PODS, ManifestError, ManifestErrors, Manifests, Offers, Place, Question, cluster_question,
};

use std::io::Read;
use std::path::PathBuf;

/// Maximum total size of all files, well above the objects of a large cluster.
pub const MAX_INPUT_BYTES: u64 = 1 << 30;

/// Reads all of `paths`; `-` is `stdin`.
///
/// # Errors
///
/// All files, documents and fields that are invalid. The input is then not used.
pub fn read(paths: &[PathBuf], stdin: &mut dyn Read) -> Result<Manifests, ManifestErrors> {
    plimsoll_manifests::read(&files::read(paths, stdin)?, MAX_PODS)
}

#[cfg(test)]
mod tests;
