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

pub use plan::{SharedLists, append_fragment, with_shared_lists, without_launches};
pub use resources::{resources_from_wire, resources_to_wire};
pub(crate) use snapshot::{check, check_references, partial};
pub use snapshot::{check_catalogs, check_snapshot};

use std::collections::BTreeSet;

/// An invalid message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct ConvertError {
    /// Path of the field from the outermost message, such as `snapshot.pods[3].shape`.
    pub path: String,
    /// Description of the error.
    pub message: String,
}

impl ConvertError {
    pub(crate) fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: field.into(), message: message.into() }
    }

    /// Prefixes the path with the `field` of the enclosing message.
    pub(crate) fn within(mut self, field: &str) -> Self {
        self.path = format!("{field}.{}", self.path);
        self
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
    let convert =
        |(index, wire)| M::try_from(wire).map_err(|error: ConvertError| error.within(&format!("{field}[{index}]")));
    wire.into_iter().enumerate().map(convert).collect()
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
