//! The memory of instance types as a ConfigMap, one entry of its data per type and image. Pure functions.

use crate::durable::{self, FormError};
use crate::settings::ObjectName;
use crate::state::discovered_memory::{MemoryEntries, MemoryKey, SeenMemory};
use jiff::civil::Date;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plimsoll_model::names::annotation::{OWNER, OWNER_VALUE};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Separates type and image. Neither contains it.
const SEPARATOR: char = '_';

/// The value of an entry.
#[derive(Debug, Serialize, Deserialize)]
struct StoredMemory {
    #[serde(rename = "memoryMiB")]
    memory_mib: i64,
    seen: Date,
}

/// The ConfigMap belongs to somebody else. It is neither read nor written.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("ConfigMap {0}: metadata.annotations[{OWNER}]: is not {OWNER_VALUE}, so it is left alone")]
pub(super) struct ForeignError(ObjectName);

/// An entry cannot be read. It is ignored.
#[derive(Debug, thiserror::Error)]
#[error("ConfigMap {config_map}: data[{field}]: {problem}")]
pub(super) struct EntryError {
    config_map: ObjectName,
    field: String,
    problem: Problem,
}

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("is not an instance type and an image joined by {SEPARATOR}")]
    Name,
    #[error(transparent)]
    Form(#[from] FormError),
}

/// Checks that a ConfigMap is ours.
pub(super) fn check_owner(name: &ObjectName, map: &ConfigMap) -> Result<(), ForeignError> {
    let owner = map.metadata.annotations.as_ref().and_then(|annotations| annotations.get(OWNER));
    if owner.is_some_and(|owner| owner == OWNER_VALUE) { Ok(()) } else { Err(ForeignError(name.clone())) }
}

/// The readable entries of a ConfigMap, and an error for each other one.
pub(super) fn read(name: &ObjectName, map: &ConfigMap) -> Result<(MemoryEntries, Vec<EntryError>), ForeignError> {
    check_owner(name, map)?;
    let mut errors = Vec::new();
    let mut entries = MemoryEntries::new();
    for (field, text) in map.data.iter().flatten() {
        match entry(field, text) {
            Ok((key, value)) => drop(entries.insert(key, value)),
            Err(problem) => errors.push(EntryError { config_map: name.clone(), field: field.clone(), problem }),
        }
    }
    Ok((entries, errors))
}

fn entry(field: &str, text: &str) -> Result<(MemoryKey, SeenMemory), Problem> {
    let (instance_type, image) = field.split_once(SEPARATOR).ok_or(Problem::Name)?;
    if instance_type.is_empty() || image.is_empty() {
        return Err(Problem::Name);
    }
    let StoredMemory { memory_mib, seen } = durable::read(text)?;
    let key = MemoryKey { instance_type: instance_type.to_owned(), image: image.to_owned() };
    Ok((key, SeenMemory { mib: memory_mib, seen }))
}

/// The data of the ConfigMap with these entries.
pub(super) fn data(entries: &MemoryEntries) -> Result<BTreeMap<String, String>, serde_json::Error> {
    let fields = entries.iter().map(|(key, entry)| {
        let text = durable::write(&StoredMemory { memory_mib: entry.mib, seen: entry.seen })?;
        Ok((format!("{}{SEPARATOR}{}", key.instance_type, key.image), text))
    });
    fields.collect()
}

/// The ConfigMap with this data.
pub(super) fn object(name: &ObjectName, data: BTreeMap<String, String>) -> ConfigMap {
    let metadata = ObjectMeta {
        name: Some(name.name.clone()),
        namespace: Some(name.namespace.clone()),
        annotations: Some([(OWNER.to_owned(), OWNER_VALUE.to_owned())].into()),
        ..ObjectMeta::default()
    };
    ConfigMap { metadata, data: Some(data), ..ConfigMap::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;

    fn name() -> ObjectName {
        ObjectName::new("ns", "memory")
    }

    fn entries() -> MemoryEntries {
        let key = |image: &str| MemoryKey { instance_type: "u-6tb1.metal".to_owned(), image: image.to_owned() };
        let seen = |mib| SeenMemory { mib, seen: date(2026, 11, 26) };
        [(key("ami-1"), seen(7577)), (key("ami-2"), seen(7570))].into()
    }

    #[test]
    fn entries_survive_the_way_through_a_config_map() {
        let written = object(&name(), data(&entries()).unwrap());
        assert_eq!(
            written.data.as_ref().unwrap()["u-6tb1.metal_ami-1"],
            r#"{"v":1,"memoryMiB":7577,"seen":"2026-11-26"}"#
        );
        let (read, errors) = read(&name(), &written).unwrap();
        assert_eq!(read, entries());
        assert!(errors.is_empty(), "{errors:?}");
    }

    #[test]
    fn an_unreadable_entry_is_an_error_that_names_it_and_the_others_remain() {
        let mut map = object(&name(), data(&entries()).unwrap());
        let bad = [
            ("a.large_ami-1", "7577"),
            ("b.large_ami-1", r#"{"v":2,"memoryMiB":7577,"seen":"2026-11-26"}"#),
            ("c.large_ami-1", r#"{"memoryMiB":7577,"seen":"yesterday"}"#),
            ("d.large_ami-1", r#"{"memoryMiB":"much","seen":"2026-11-26"}"#),
            ("d.large", r#"{"memoryMiB":7577,"seen":"2026-11-26"}"#),
        ];
        let own = bad.map(|(field, text)| (field.to_owned(), text.to_owned()));
        map.data.get_or_insert_default().extend(own);
        let (read, errors) = read(&name(), &map).unwrap();
        assert_eq!(read, entries());
        let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let expected = bad.map(|(field, _)| format!("ConfigMap ns/memory: data[{field}]: "));
        let mut expected: Vec<&String> = expected.iter().collect();
        expected.sort();
        assert_eq!(messages.len(), expected.len());
        for (message, start) in messages.iter().zip(expected) {
            assert!(message.starts_with(start.as_str()), "{message}");
        }
    }

    #[test]
    fn a_config_map_of_somebody_else_is_left_alone() {
        let mut map = object(&name(), data(&entries()).unwrap());
        map.metadata.annotations = None;
        assert_eq!(read(&name(), &map).unwrap_err(), ForeignError(name()));
        map.metadata.annotations = Some([(OWNER.to_owned(), "other".to_owned())].into());
        let message = check_owner(&name(), &map).unwrap_err().to_string();
        assert_eq!(
            message,
            "ConfigMap ns/memory: metadata.annotations[plimsoll.dev/owner]: is not plimsoll, so it is left alone"
        );
    }
}
