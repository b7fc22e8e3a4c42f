//! What is wrong with manifests, and where.

use std::fmt;
use std::sync::Arc;

/// The most errors that are shown: those after that are mostly more of the same.
const MAX_SHOWN: usize = 20;

/// Where something is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file, or `-` for stdin.
    pub file: Arc<str>,
    /// Which of its documents, counted from 1.
    pub document: usize,
    /// Index in a List.
    pub item: Option<usize>,
}

impl Default for Place {
    /// Nowhere in the input.
    fn default() -> Self {
        Self { file: Arc::from(""), document: 0, item: None }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.document == 0 {
            return f.write_str("input");
        }
        write!(f, "{}: document {}", self.file, self.document)
    }
}

/// The item of a List, for errors about objects without a name, and about two of one name.
fn item(place: &Place) -> String {
    place.item.map(|item| format!(": items[{item}]")).unwrap_or_default()
}

/// A field's path without line breaks, and without characters that a terminal acts on: keys can have any characters.
fn printable(field: &str) -> String {
    let mut shown = String::with_capacity(field.len());
    for one in field.chars() {
        match one {
            '"' | '\'' | '\\' => shown.push(one),
            _ => shown.extend(one.escape_debug()),
        }
    }
    shown
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
    #[error("{place}{}: {problem}", item(place))]
    Document {
        /// Where.
        place: Place,
        /// What is wrong.
        problem: String,
    },
    /// A field of an object.
    #[error("{place}: {object}: {}: {problem}", printable(field))]
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
    #[error("{second}{}: {object} is also in {first}{}", item(second), item(first))]
    Duplicate {
        /// Kind and name.
        object: String,
        /// Where it is first.
        first: Place,
        /// Where it is again.
        second: Place,
    },
}

/// All that is wrong with the input, never empty; shown one to a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestErrors(pub Vec<ManifestError>);

impl std::error::Error for ManifestErrors {}

impl fmt::Display for ManifestErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().take(MAX_SHOWN).enumerate() {
            let line_break = if index == 0 { "" } else { "\n" };
            write!(f, "{line_break}{error}")?;
        }
        match self.0.len().saturating_sub(MAX_SHOWN) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl From<ManifestError> for ManifestErrors {
    fn from(error: ManifestError) -> Self {
        Self(vec![error])
    }
}
