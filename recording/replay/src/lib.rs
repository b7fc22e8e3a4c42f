//! What can be learned from a recording: whether the solver still makes the same plans, and what other NodePools would
//! have cost.

#![deny(clippy::indexing_slicing)]

mod figures;
pub mod same;
#[cfg(test)]
mod samples;
pub mod simulate;

pub use figures::Figures;

/// Why a recording cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A file cannot be read.
    #[error(transparent)]
    Read(#[from] plimsoll_recording::ReadError),
    /// The folder cannot be listed.
    #[error("{}: {error}", path.display())]
    Folder {
        /// The folder.
        path: std::path::PathBuf,
        /// The error.
        error: std::io::Error,
    },
    /// There is no file of a recording.
    #[error("{}: no file of a recording (plimsoll-*.recording.gz)", .0.display())]
    Empty(std::path::PathBuf),
}

/// The files of a recording, oldest first.
///
/// # Errors
/// If the path cannot be read, or has no such file.
pub fn files(path: &std::path::Path) -> Result<Vec<std::path::PathBuf>, ReplayError> {
    let folder = |error| ReplayError::Folder { path: path.to_owned(), error };
    let files = plimsoll_recording::files(path).map_err(folder)?;
    if files.is_empty() { Err(ReplayError::Empty(path.to_owned())) } else { Ok(files) }
}
