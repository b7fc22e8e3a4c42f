//! Objects in their types: no unknown field, no value of another type.

use super::{Manifest, ManifestError, strict};
use serde::de::DeserializeOwned;
use serde_ignored::Path;
use serde_json::Value;
use serde_path_to_error::Segment;
use std::cell::Cell;

/// Reads a Kubernetes object; fields that its type does not have are errors, but for those that a server wrote, which
/// may be newer: those of a status, and those of an object with a UID. The latter are noted.
pub(super) fn read<T: DeserializeOwned>(manifest: &Manifest) -> Result<T, Vec<ManifestError>> {
    strict::read(&manifest.value).map_or_else(|| read_with_paths(manifest), Ok)
}

/// Reads the object and checks it.
pub(super) fn checked<T: DeserializeOwned>(
    manifest: &Manifest,
    check: fn(&Manifest, &T) -> Result<(), Vec<ManifestError>>,
) -> Result<T, Vec<ManifestError>> {
    let object = read(manifest)?;
    check(manifest, &object)?;
    Ok(object)
}

/// Like [`read`] at a multiple of the cost, with the path of each field that is wrong.
pub(super) fn read_with_paths<T: DeserializeOwned>(manifest: &Manifest) -> Result<T, Vec<ManifestError>> {
    let (mut unknown, ignored) = (Vec::new(), Cell::new(false));
    let server_wrote = manifest.has_uid();
    let mut track = serde_path_to_error::Track::new();
    let read = {
        let deserializer = strict::deserializer(&manifest.value, &ignored);
        let deserializer = serde_path_to_error::Deserializer::new(deserializer, &mut track);
        let mut note = |path: Path<'_>| {
            // A null is how YAML writes nothing at all.
            let null = value_at(&manifest.value, &path).is_some_and(Value::is_null);
            let field = text(&path, true);
            if null || field.starts_with("status.") {
                return;
            }
            if server_wrote {
                manifest.note_unknown(&text(&path, false));
            } else {
                unknown.push(manifest.fault(field, "no such field"));
            }
        };
        // Behind one type, since the two wrappers grow with each level: unerased, every Kubernetes type is compiled
        // once per depth.
        let mut erased =
            <dyn erased_serde::Deserializer<'_>>::erase(serde_ignored::Deserializer::new(deserializer, &mut note));
        erased_serde::deserialize(&mut erased)
    };
    let object = read.map_err(|error: erased_serde::Error| {
        let (path, problem) = (track.path(), for_users(&error.to_string()));
        let field = path.to_string();
        let is_time = field.ends_with("Time") || field.ends_with("Timestamp");
        let problem = match string_at(&manifest.value, &path).filter(|_| is_time) {
            Some(text) => format!("{text:?} is not a time such as 2026-01-31T12:00:00Z: {problem}"),
            None => problem,
        };
        vec![manifest.fault(field, problem)]
    })?;
    if unknown.is_empty() { Ok(object) } else { Err(unknown) }
}

/// The error without names of Rust's types, and what to do about a value with quotes too many or too few: YAML reads
/// `yes` and `1` as no strings.
fn for_users(error: &str) -> String {
    let Some((found, expected)) = error.rsplit_once(", expected ") else { return error.to_owned() };
    let value = found.strip_prefix("invalid type: ").unwrap_or_default();
    let text = value.strip_prefix("string \"").and_then(|rest| rest.strip_suffix('"')).unwrap_or_default();
    let is_scalar = ["boolean ", "integer ", "floating point "].iter().any(|it| value.starts_with(*it));
    let advice = match expected {
        "a string" if is_scalar => "; quote it",
        "i32" | "i64" if text.parse::<i64>().is_ok() => "; remove the quotes",
        "a boolean" if text.parse::<bool>().is_ok() => "; remove the quotes",
        _ => "",
    };
    let expected = match expected {
        "i32" => "a 32-bit integer",
        "i64" => "a 64-bit integer",
        "a sequence" => "a list",
        other => other,
    };
    format!("{found}, expected {expected}{advice}")
}

/// `spec.containers[0].image`, or `spec.containers[].image` without the indices.
fn text(path: &Path<'_>, indices: bool) -> String {
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } if indices => format!("{}[{index}]", text(parent, indices)),
        Path::Seq { parent, .. } => format!("{}[]", text(parent, indices)),
        Path::Map { parent, key } => {
            let parent = text(parent, indices);
            if parent.is_empty() { key.clone() } else { format!("{parent}.{key}") }
        }
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            text(parent, indices)
        }
    }
}

/// The string that could not be read, if it is one.
fn string_at<'value>(value: &'value Value, path: &serde_path_to_error::Path) -> Option<&'value str> {
    let below = |value: &'value Value, segment: &Segment| match segment {
        Segment::Seq { index } => value.get(*index),
        Segment::Map { key } => value.get(key),
        Segment::Enum { .. } | Segment::Unknown => None,
    };
    path.iter().try_fold(value, below)?.as_str()
}

fn value_at<'value>(value: &'value Value, path: &Path<'_>) -> Option<&'value Value> {
    match path {
        Path::Root => Some(value),
        Path::Seq { parent, index } => value_at(value, parent)?.get(index),
        Path::Map { parent, key } => value_at(value, parent)?.get(key),
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            value_at(value, parent)
        }
    }
}
