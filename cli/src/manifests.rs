//! Files, folders and stdin as manifests.

mod files;

pub use plimsoll_manifests::{
    DEFAULT_REGION, MAX_PODS, ManifestError, ManifestErrors, Manifests, Offers, Place, Question, cluster_question,
};

use std::io::Read;
use std::path::PathBuf;

/// Maximum size of all files together: well above what the objects of a large cluster come to.
pub const MAX_INPUT_BYTES: u64 = 1 << 30;

/// Reads all of `paths`; `-` is `stdin`.
///
/// # Errors
///
/// Every file, document and field that cannot be used. Nothing is read from the input then.
pub fn read(paths: &[PathBuf], stdin: &mut dyn Read) -> Result<Manifests, ManifestErrors> {
    plimsoll_manifests::read(&files::read(paths, stdin)?, MAX_PODS)
}

#[cfg(test)]
mod tests;
