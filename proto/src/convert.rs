//! Conversion between wire format and model: `From<&Model>` for messages, and validating `TryFrom<Message>` for the
//! model.
//!
//! ```
//! use plimsoll_model::snapshot::{LedgerPosition, Snapshot};
//! use plimsoll_proto::snapshot::v1 as wire;
//!
//! let model = Snapshot { sequence: 7, ledger: LedgerPosition { epoch: 1, sequence: 40 }, ..Snapshot::default() };
//! let message = wire::Snapshot::from(&model);
//! assert_eq!(Snapshot::try_from(message.clone())?, model);
//!
//! let pod = wire::Pod { uid: "u".to_owned(), shape: "s".to_owned(), ..wire::Pod::default() };
//! let error = Snapshot::try_from(wire::Snapshot { pods: vec![pod], ..message }).unwrap_err();
//! assert_eq!(error.to_string(), "snapshot.pods[0].state: is not set");
//! # Ok::<(), plimsoll_proto::convert::ConvertError>(())
//! ```

mod catalog;
mod execution;
mod plan;
mod requirements;
mod resources;
mod shape;
mod snapshot;
#[cfg(test)]
pub(crate) mod strategies;
#[cfg(test)]
mod tests;

pub use execution::known_outcome;
pub use plan::{
    SharedLists, SharedReasons, append_fragment, unshared_sizes, with_shared_lists, with_shared_reasons,
    without_sharers,
};
pub use resources::{resources_from_wire, resources_to_wire};
pub(crate) use snapshot::{check, check_references, partial, without_pods};
pub use snapshot::{check_catalogs, check_snapshot};

use std::collections::BTreeSet;

/// Maximum errors reported for one message: those after that are mostly more of the same.
const MAX_ERRORS: usize = 20;

/// An invalid message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}{}", further(more))]
pub struct ConvertError {
    /// Path of the field from the outermost message, such as `snapshot.pods[3].shape`.
    pub path: String,
    /// Description of the error.
    pub message: String,
    /// Further errors of the same message, of other fields; bounded. They have no further errors themselves.
    pub more: Vec<ConvertError>,
}

fn further(more: &[ConvertError]) -> String {
    more.iter().map(|error| format!("; {}: {}", error.path, error.message)).collect()
}

impl ConvertError {
    /// Creates the error of one field.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: field.into(), message: message.into(), more: Vec::new() }
    }

    /// Prefixes the paths with the `field` of the enclosing message.
    pub(crate) fn within(self, field: &str) -> Self {
        self.with_paths(|path| format!("{field}.{path}"))
    }

    /// Replaces the path of this and of all further errors.
    #[must_use]
    pub fn with_paths(mut self, replace: impl Fn(&str) -> String) -> Self {
        self.path = replace(&self.path);
        self.more.iter_mut().for_each(|error| error.path = replace(&error.path));
        self
    }

    /// Combines errors of one message; `None` if there are none.
    #[must_use]
    pub fn combined(errors: impl IntoIterator<Item = Self>) -> Option<Self> {
        let mut errors = errors.into_iter();
        let mut first = errors.next()?;
        for mut error in errors {
            if first.more.len() + 1 >= MAX_ERRORS {
                break;
            }
            let further = std::mem::take(&mut error.more);
            first.more.push(error);
            first.more.extend(further);
        }
        first.more.truncate(MAX_ERRORS - 1);
        Some(first)
    }

    /// This error and the further ones, as pairs of path and message.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        std::iter::once(self).chain(&self.more).map(|error| (error.path.as_str(), error.message.as_str()))
    }
}

/// Succeeds if there is no error in the list; otherwise returns them combined.
pub(crate) fn no_errors<'e>(errors: impl IntoIterator<Item = Option<&'e ConvertError>>) -> ConvertResult<()> {
    match ConvertError::combined(errors.into_iter().flatten().cloned()) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

pub(crate) type ConvertResult<T> = Result<T, ConvertError>;

/// An enumeration of the model with a corresponding wire enumeration.
pub(crate) trait WireEnum: Sized {
    fn to_wire(self) -> i32;
    fn from_wire(wire: i32) -> Option<Self>;
}

macro_rules! wire_enum {
    ($wire:path, $model:path, [$($variant:ident),+]) => {
        impl From<$model> for $wire {
            fn from(word: $model) -> Self {
                use $model as Model;
                match word { $(Model::$variant => Self::$variant),+ }
            }
        }

        impl crate::convert::WireEnum for $model {
            fn to_wire(self) -> i32 {
                <$wire>::from(self).into()
            }

            fn from_wire(wire: i32) -> Option<Self> {
                use $wire as Wire;
                match Wire::try_from(wire).ok()? {
                    Wire::Unspecified => None,
                    $(Wire::$variant => Some(Self::$variant)),+
                }
            }
        }
    };
}
pub(crate) use wire_enum;

pub(crate) fn enum_value<W: WireEnum>(field: &str, wire: i32) -> ConvertResult<W> {
    W::from_wire(wire).ok_or_else(|| {
        let message = if wire == 0 { "is not set".to_owned() } else { format!("unknown value {wire}") };
        ConvertError::new(field, message)
    })
}

pub(crate) fn key(field: &str, text: String) -> ConvertResult<String> {
    if text.is_empty() { Err(ConvertError::new(field, "is empty")) } else { Ok(text) }
}

pub(crate) fn optional_key(field: &str, text: Option<String>) -> ConvertResult<Option<String>> {
    text.map(|text| key(field, text)).transpose()
}

pub(crate) fn not_negative<N: PartialOrd + Default + std::fmt::Display>(field: &str, number: N) -> ConvertResult<N> {
    if number < N::default() {
        return Err(ConvertError::new(field, format!("is negative: {number}")));
    }
    Ok(number)
}

pub(crate) fn required<W, M: TryFrom<W, Error = ConvertError>>(field: &str, wire: Option<W>) -> ConvertResult<M> {
    let wire = wire.ok_or_else(|| ConvertError::new(field, "is not set"))?;
    M::try_from(wire).map_err(|error| error.within(field))
}

pub(crate) fn optional<W, M: TryFrom<W, Error = ConvertError>>(
    field: &str,
    wire: Option<W>,
) -> ConvertResult<Option<M>> {
    wire.map(|wire| M::try_from(wire).map_err(|error| error.within(field))).transpose()
}

pub(crate) fn list<W, M: TryFrom<W, Error = ConvertError>>(field: &str, wire: Vec<W>) -> ConvertResult<Vec<M>> {
    let mut converted = Vec::with_capacity(wire.len());
    let mut errors = Vec::new();
    for (index, wire) in wire.into_iter().enumerate() {
        match M::try_from(wire) {
            Ok(model) => converted.push(model),
            Err(error) => errors.push(error.within(&format!("{field}[{index}]"))),
        }
        if errors.len() >= MAX_ERRORS {
            break;
        }
    }
    match ConvertError::combined(errors) {
        Some(error) => Err(error),
        None => Ok(converted),
    }
}

/// Size of a message in bytes, as it is sent.
#[must_use]
pub fn encoded_size(message: &impl prost::Message) -> usize {
    message.encoded_len()
}

pub(crate) fn to_wire<'model, M: 'model, W: From<&'model M>>(model: &'model [M]) -> Vec<W> {
    model.iter().map(W::from).collect()
}

/// Rejects a list with repeated keys; the error names the second occurrence.
pub(crate) fn check_unique<'list, T, K: Ord>(
    list: &'list [T],
    field: &str,
    key_field: &str,
    key: impl Fn(&'list T) -> K,
) -> ConvertResult<()> {
    // A list in canonical order needs no set.
    if list.is_sorted_by(|first, second| key(first) < key(second)) {
        return Ok(());
    }
    let mut seen = BTreeSet::new();
    match list.iter().position(|item| !seen.insert(key(item))) {
        Some(index) => Err(ConvertError::new(format!("{field}[{index}]{key_field}"), "is there twice")),
        None => Ok(()),
    }
}
