//! What can be learned from a recording: whether the solver still makes the same plans, and what other NodePools would
//! have cost.

#![deny(clippy::indexing_slicing)]

mod figures;
pub mod same;
#[cfg(test)]
mod samples;
pub mod simulate;

pub use figures::Figures;

use plimsoll_recording::{ReadError, Reader};
use std::path::{Path, PathBuf};

/// Why a recording cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A file cannot be read to its end. The plans before are the same.
    #[error("{error} ({})", same_before(*plans))]
    ReadAfter {
        /// Number of plans that were compared.
        plans: usize,
        /// The error.
        error: ReadError,
    },
    /// The files are those of several clusters.
    #[error(
        "{}: recorded from cluster {own:?}, but the files before are from cluster {cluster:?}; replay each cluster's \
         files alone",
        file.display()
    )]
    OtherCluster {
        /// The file.
        file: PathBuf,
        /// Its cluster.
        own: String,
        /// The cluster of the files before.
        cluster: String,
    },
    /// The folder cannot be listed.
    #[error("{}: {error}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The error.
        error: std::io::Error,
    },
    /// There is no file of a recording.
    #[error("{}: no file of a recording (plimsoll-*.recording.gz)", .0.display())]
    Empty(PathBuf),
}

fn same_before(plans: usize) -> String {
    match plans {
        1 => "1 plan before this is the same".to_owned(),
        plans => format!("{plans} plans before this are the same"),
    }
}

/// The files of a recording, oldest first.
///
/// # Errors
/// If the path cannot be read, or has no such file.
pub fn files(path: &Path) -> Result<Vec<PathBuf>, ReplayError> {
    let folder = |error| ReplayError::Folder { path: path.to_owned(), error };
    let files = plimsoll_recording::files(path).map_err(folder)?;
    if files.is_empty() { Err(ReplayError::Empty(path.to_owned())) } else { Ok(files) }
}

/// Opens the next file. All have to be those of one `cluster`, which the first one names.
fn open(file: &Path, cluster: &mut String) -> Result<Reader, ReplayError> {
    let reader = Reader::open(file)?;
    let own = reader.cluster();
    if cluster.is_empty() {
        own.clone_into(cluster);
    } else if !own.is_empty() && own != cluster {
        let (file, own, cluster) = (file.to_owned(), own.to_owned(), cluster.clone());
        return Err(ReplayError::OtherCluster { file, own, cluster });
    }
    Ok(reader)
}
