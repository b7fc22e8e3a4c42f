//! Identifiers, and content hashes that are the same on every machine.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl $name {
            /// Returns the string.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name_type!(
    /// UID of a pod; `namespace/name` for pods from files, which have no UID.
    PodUid
);
name_type!(
    /// Name of a node in a snapshot: the Node's name, or the NodeClaim's name until there is a Node.
    NodeName
);
name_type!(
    /// Name of a NodePool.
    NodePoolName
);
name_type!(
    /// Content hash of a [`crate::snapshot::PodShape`].
    ShapeId
);
name_type!(
    /// Content hash of a [`crate::catalog::Catalog`].
    CatalogId
);
name_type!(
    /// Identifies an action of a plan. A hash of the action's content, so it is the same on every replica.
    ActionId
);

/// Computes a hash of a sequence of parts. Each part is length-prefixed, so `ab, c` differs from `a, bc`.
#[derive(Debug, Clone, Default)]
pub struct ContentHasher(Sha256);

impl ContentHasher {
    /// Starts a hash for one kind of object. Equal content of another kind has a different hash.
    #[must_use]
    pub fn new(kind: &str) -> Self {
        let mut hasher = Self(Sha256::new());
        hasher.part(kind.as_bytes());
        hasher
    }

    /// Adds a part.
    pub fn part(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    /// Adds a string.
    pub fn text(&mut self, text: &str) {
        self.part(text.as_bytes());
    }

    /// Returns the first `digits` hexadecimal digits (at most 64).
    #[must_use]
    pub fn hex(self, digits: usize) -> String {
        let mut text = hex::encode(self.0.finalize());
        text.truncate(digits);
        text
    }
}
