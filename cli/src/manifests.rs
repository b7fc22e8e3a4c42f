//! Manifests: files, folders and stdin become the objects that a snapshot is made from.

mod documents;
mod files;
mod kinds;
mod typed;
mod workloads;

use plimsoll_snapshot::Objects;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Read;
use std::path::PathBuf;

/// The most that is read from all files together: well above what a large cluster's objects come to.
pub const MAX_INPUT_BYTES: u64 = 1 << 30;
/// The most pods that workloads are expanded into: more than Kubernetes supports in one cluster.
pub const MAX_PODS: usize = 1_000_000;

/// What the manifests hold.
#[derive(Debug, Default)]
pub struct Manifests {
    /// Objects, workloads expanded into pods.
    pub objects: Objects,
    /// Kinds that mean nothing here, and how many objects of each there are.
    pub ignored: BTreeMap<String, usize>,
}

/// Where something is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Place {
    /// The file, or `-` for stdin.
    pub file: String,
    /// Which of its documents, counted from 1.
    pub document: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: document {}", self.file, self.document)
    }
}

/// Why manifests cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// A file or folder that cannot be read.
    #[error("{path}: {problem}")]
    Unreadable {
        /// The path.
        path: String,
        /// Why.
        problem: String,
    },
    /// Not YAML or JSON, or no Kubernetes object.
    #[error("{place}: {problem}")]
    Document {
        /// Where.
        place: Place,
        /// What is wrong.
        problem: String,
    },
    /// A field of an object.
    #[error("{place}: {object}: {field}: {problem}")]
    Field {
        /// Where.
        place: Place,
        /// Kind and name.
        object: String,
        /// The field, such as `spec.replicas`.
        field: String,
        /// What is wrong.
        problem: String,
    },
    /// Two objects of one name.
    #[error("{second}: {object} is also in {first}")]
    Duplicate {
        /// Kind and name.
        object: String,
        /// Where it is first.
        first: String,
        /// Where it is again.
        second: String,
    },
}

/// One object of the input.
pub(crate) struct Manifest {
    place: Place,
    kind: kinds::Kind,
    /// `namespace/name`, or the name alone.
    name: String,
    value: Value,
}

impl Manifest {
    /// Kind and name, as errors have it.
    fn object(&self) -> String {
        format!("{} {}", self.kind.name(), self.name)
    }

    fn fault(&self, field: impl Into<String>, problem: impl fmt::Display) -> ManifestError {
        ManifestError::Field {
            place: self.place.clone(),
            object: self.object(),
            field: field.into(),
            problem: problem.to_string(),
        }
    }
}

/// Reads all of `paths`; `-` is `stdin`.
///
/// # Errors
///
/// The first file, document or field that cannot be used.
pub fn read(paths: &[PathBuf], stdin: &mut dyn Read) -> Result<Manifests, ManifestError> {
    let mut manifests = Manifests::default();
    let mut found = Vec::new();
    for file in files::read(paths, stdin)? {
        for (place, value) in documents::split(&file)? {
            for value in documents::items(&place, value)? {
                match kinds::classify(&place, value)? {
                    Ok(manifest) => found.push(manifest),
                    Err(kind) => *manifests.ignored.entry(kind).or_default() += 1,
                }
            }
        }
    }
    refuse_duplicates(&found)?;
    let names: BTreeSet<(kinds::Kind, String)> = found.iter().map(|it| (it.kind, it.name.clone())).collect();
    let mut workloads = Vec::new();
    for manifest in found {
        if let Some(workload) = typed::add(manifest, &mut manifests.objects)? {
            workloads.push(workload);
        }
    }
    workloads::expand(workloads, &names, &mut manifests.objects)?;
    Ok(manifests)
}

fn refuse_duplicates(manifests: &[Manifest]) -> Result<(), ManifestError> {
    let mut places = BTreeMap::new();
    for manifest in manifests {
        if let Some(first) = places.insert((manifest.kind, manifest.name.as_str()), &manifest.place) {
            return Err(ManifestError::Duplicate {
                object: manifest.object(),
                first: first.to_string(),
                second: manifest.place.to_string(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
