//! Changes to the values of a valid YAML document. Random changes of bytes would rarely keep it valid.
//!
//! The bytes are the number of changes, four bytes for each change, and the document.

use crate::cursor::Cursor;
use serde_json::{Value, json};

/// Maximum number of changes to one document. More changes would leave nothing of it.
const MOST: u8 = 8;
/// Replacements for values.
const WORDS: [&str; 16] = [
    "",
    "-1",
    "0",
    "1",
    "a",
    "In",
    "Gt",
    "DoesNotExist",
    "100%",
    "9223372036854775808",
    "1e30",
    "-5m",
    "0.0.0.0/0",
    "a/b/c",
    "Never",
    "*/1 * * * *",
];
/// Names for new and renamed fields.
const FIELDS: [&str; 16] = [
    "name",
    "namespace",
    "labels",
    "operator",
    "values",
    "key",
    "minValues",
    "topologyKey",
    "labelSelector",
    "requests",
    "hostPort",
    "nodeName",
    "replicas",
    "generateName",
    "selector",
    "resources",
];

/// The changed document; `None` if the bytes contain no document or the document is not YAML.
pub(super) fn changed(bytes: &[u8]) -> Option<String> {
    let mut cursor = Cursor::new(bytes);
    let count = cursor.byte() % (MOST + 1);
    let changes: Vec<[usize; 3]> = (0..count)
        .map(|_| [cursor.below(usize::from(u16::MAX)), usize::from(cursor.byte()), usize::from(cursor.byte())])
        .collect();
    let text = str::from_utf8(cursor.rest()).ok()?;
    let mut documents: Vec<Value> = serde_saphyr::from_multiple(text).ok()?;
    let mut root = Value::Array(std::mem::take(&mut documents));
    for [place, action, with] in changes {
        let sum = size(&root);
        let mut place = place.checked_rem(sum)?;
        change(&mut root, &mut place, action, with);
    }
    // JSON is valid YAML. Each document is written separately.
    let Value::Array(documents) = root else { return None };
    Some(documents.iter().map(|document| format!("---\n{document}\n")).collect())
}

/// Number of values in a value, including itself.
fn size(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(fields) => fields.values().map(size).sum::<usize>(),
        _ => 0,
    }
}

/// Changes the value at this position; returns whether the position exists.
fn change(value: &mut Value, place: &mut usize, action: usize, with: usize) -> bool {
    if *place == 0 {
        *value = replaced(value.take(), action, with);
        return true;
    }
    *place -= 1;
    match value {
        Value::Array(items) => items.iter_mut().any(|item| change(item, place, action, with)),
        Value::Object(fields) => fields.values_mut().any(|field| change(field, place, action, with)),
        _ => false,
    }
}

fn replaced(value: Value, action: usize, with: usize) -> Value {
    let word = WORDS[with % WORDS.len()];
    match (action % 12, value) {
        (0, _) => Value::Null,
        (1, _) => json!(word),
        (2, _) => json!(i64::try_from(with).unwrap_or(0) - 2),
        (3, _) => json!(with & 1 == 0),
        (4, _) => json!([]),
        (5, _) => json!({}),
        (6, value) => json!([value]),
        (7, value) => json!({ FIELDS[with % FIELDS.len()]: value }),
        (8, Value::Array(mut items)) => {
            let again = items.get(with.checked_rem(items.len()).unwrap_or(0)).cloned();
            items.extend(again);
            Value::Array(items)
        }
        (8 | 9, Value::Object(mut fields)) => {
            fields.insert(FIELDS[with % FIELDS.len()].to_owned(), json!(WORDS[with / 16 % WORDS.len()]));
            Value::Object(fields)
        }
        (10, Value::Object(mut fields)) => {
            let key = fields.keys().nth(with.checked_rem(fields.len()).unwrap_or(0)).cloned();
            key.map(|key| fields.remove(&key));
            Value::Object(fields)
        }
        (10, Value::Array(mut items)) if !items.is_empty() => {
            items.remove(with % items.len());
            Value::Array(items)
        }
        (11, Value::String(text)) => json!(format!("{text}{word}")),
        (_, Value::Number(_)) => json!(word),
        (_, value) => value,
    }
}
