//! Identifiers: what names what, and content hashes that are the same on every machine.

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
            /// The text.
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
    /// A pod's UID; for pods from files, which have none, `namespace/name`.
    PodUid
);
name_type!(
    /// Names one node in a snapshot: the Node's name, or the NodeClaim's while there is no Node.
    NodeName
);
name_type!(
    /// A NodePool's name.
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
    /// Names one action of a plan, the same on every replica: a hash of what the action is about.
    ActionId
);

/// Collects parts into a hash that depends on nothing but them: each part is length-prefixed, so `ab, c` differs from `a, bc`.
#[derive(Debug, Clone, Default)]
pub struct ContentHasher(Sha256);

impl ContentHasher {
    /// Starts a hash for one kind of thing; equal content of another kind hashes differently.
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

    /// Adds a text.
    pub fn text(&mut self, text: &str) {
        self.part(text.as_bytes());
    }

    /// The first `digits` hexadecimal digits (at most 64).
    #[must_use]
    pub fn hex(self, digits: usize) -> String {
        let mut text = hex::encode(self.0.finalize());
        text.truncate(digits);
        text
    }
}
