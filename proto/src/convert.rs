//! Between the wire and the model: `From<&Model>` for messages, `TryFrom<Message>` for the model, refusing what makes no sense.
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

pub use plan::{SharedLists, append_fragment, shared, without_launches};
pub use resources::{resources_from_wire, resources_to_wire};
pub(crate) use snapshot::{check, check_references, partial};
pub use snapshot::{check_catalogs, check_snapshot};

use std::collections::BTreeSet;

/// A message that makes no sense, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct ConvertError {
    /// The field, from the outside in: `snapshot.pods[3].shape`.
    pub path: String,
    /// What is wrong with it.
    pub message: String,
}

impl ConvertError {
    pub(crate) fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: field.into(), message: message.into() }
    }

    /// The same, seen from the message that holds the failing one in `field`.
    pub(crate) fn within(mut self, field: &str) -> Self {
        self.path = format!("{field}.{}", self.path);
        self
    }
}

pub(crate) type Converted<T> = Result<T, ConvertError>;

/// An enumeration of the model that has one of its own on the wire.
pub(crate) trait Word: Sized {
    fn to_wire(self) -> i32;
    fn from_wire(wire: i32) -> Option<Self>;
}

macro_rules! words {
    ($wire:path, $model:path, [$($variant:ident),+]) => {
        impl From<$model> for $wire {
            fn from(word: $model) -> Self {
                use $model as Model;
                match word { $(Model::$variant => Self::$variant),+ }
            }
        }

        impl crate::convert::Word for $model {
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
pub(crate) use words;

pub(crate) fn word<W: Word>(field: &str, wire: i32) -> Converted<W> {
    W::from_wire(wire).ok_or_else(|| {
        let message = if wire == 0 { "is not set".to_owned() } else { format!("unknown value {wire}") };
        ConvertError::new(field, message)
    })
}

pub(crate) fn key(field: &str, text: String) -> Converted<String> {
    if text.is_empty() { Err(ConvertError::new(field, "is empty")) } else { Ok(text) }
}

pub(crate) fn optional_key(field: &str, text: Option<String>) -> Converted<Option<String>> {
    text.map(|text| key(field, text)).transpose()
}

pub(crate) fn not_negative<N: PartialOrd + Default + std::fmt::Display>(field: &str, number: N) -> Converted<N> {
    if number < N::default() {
        return Err(ConvertError::new(field, format!("is negative: {number}")));
    }
    Ok(number)
}

pub(crate) fn required<W, M: TryFrom<W, Error = ConvertError>>(field: &str, wire: Option<W>) -> Converted<M> {
    let wire = wire.ok_or_else(|| ConvertError::new(field, "is not set"))?;
    M::try_from(wire).map_err(|error| error.within(field))
}

pub(crate) fn optional<W, M: TryFrom<W, Error = ConvertError>>(field: &str, wire: Option<W>) -> Converted<Option<M>> {
    wire.map(|wire| M::try_from(wire).map_err(|error| error.within(field))).transpose()
}

pub(crate) fn list<W, M: TryFrom<W, Error = ConvertError>>(field: &str, wire: Vec<W>) -> Converted<Vec<M>> {
    let convert =
        |(index, wire)| M::try_from(wire).map_err(|error: ConvertError| error.within(&format!("{field}[{index}]")));
    wire.into_iter().enumerate().map(convert).collect()
}

pub(crate) fn to_wire<'model, M: 'model, W: From<&'model M>>(model: &'model [M]) -> Vec<W> {
    model.iter().map(W::from).collect()
}

/// Refuses a list that has a key twice, naming the second place.
pub(crate) fn each_once<'list, T, K: Ord>(
    list: &'list [T],
    field: &str,
    key_field: &str,
    key: impl Fn(&'list T) -> K,
) -> Converted<()> {
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
