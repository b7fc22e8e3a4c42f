//! Documents of a file, and the objects in them.

use super::{ManifestError, Place};
use serde_json::{Deserializer, Value};
use std::sync::Arc;

/// Maximum nodes and events of one YAML document. The caller's bound on the input's size is what limits the work.
const MAX_NODES: usize = 1 << 30;
/// The deepest nesting of YAML: twice that of the longest custom resource definitions.
const MAX_DEPTH: usize = 128;

/// The content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// Name of the file in errors.
    pub name: String,
    /// Its content.
    pub content: String,
}

/// A document.
pub(super) struct Document {
    place: Place,
    value: Value,
}

/// An object, not yet looked at.
pub(super) struct Object {
    pub(super) place: Place,
    pub(super) value: Value,
}

/// The text as one JSON value.
pub(super) fn json_document(text: &Text, errors: &mut Vec<ManifestError>) -> Option<Document> {
    let place = Place { file: Arc::from(text.name.as_str()), document: 1, item: None };
    match serde_json::from_str(&text.content) {
        Ok(value) => Some(Document { place, value }),
        Err(error) => {
            errors.push(ManifestError::Document { place, problem: format!("not JSON: {error}") });
            None
        }
    }
}

/// The documents of a file that are not empty.
pub(super) fn split(file: &Text, errors: &mut Vec<ManifestError>) -> Vec<Document> {
    let name: Arc<str> = Arc::from(file.name.as_str());
    let place = |index: usize| Place { file: Arc::clone(&name), document: index + 1, item: None };
    let text = file.content.trim_start_matches('\u{feff}');
    let json_error = match json(text) {
        Some(Ok(values)) => {
            let documents = values.into_iter().enumerate();
            return documents.map(|(index, value)| Document { place: place(index), value }).collect();
        }
        Some(Err(error)) => Some(error),
        None => None,
    };
    let mut documents = Vec::new();
    for (index, part) in parts(text).into_iter().enumerate() {
        if part.text.lines().all(is_blank) {
            continue;
        }
        match yaml(&part) {
            Ok(Value::Null) => {}
            Ok(value) => documents.push(Document { place: place(index), value }),
            Err(problem) => {
                let problem = json_error.clone().unwrap_or(problem);
                errors.push(ManifestError::Document { place: place(index), problem });
            }
        }
    }
    documents
}

/// What begins like JSON is read as such: YAML's reader would take longer and differ in escapes. `None` if it does not.
fn json(text: &str) -> Option<Result<Vec<Value>, String>> {
    if !text.trim_start().starts_with('{') {
        return None;
    }
    let values: Result<Vec<Value>, serde_json::Error> = Deserializer::from_str(text).into_iter().collect();
    Some(values.map_err(|error| format!("not JSON: {error}")))
}

fn yaml(part: &Part) -> Result<Value, String> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_nodes: MAX_NODES,
            max_events: MAX_NODES,
            max_total_scalar_bytes: MAX_NODES,
            max_reader_input_bytes: Some(MAX_NODES),
            max_depth: MAX_DEPTH,
        },
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(&part.text, options).map_err(|error| {
        let text = error.without_snippet().to_string();
        let Some(location) = error.location() else { return format!("not YAML: {text}") };
        let (line, column) = (location.line(), location.column());
        let message = text.replace(&format!(" at line {line}, column {column}"), "");
        let line = usize::try_from(line).unwrap_or(usize::MAX).saturating_add(part.lines_before);
        format!("not YAML: line {line}, column {column}: {message}")
    })
}

/// A piece of a file.
struct Part {
    lines_before: usize,
    text: String,
}

fn is_blank(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#') || line.starts_with('%')
}

/// Parts between lines that begin with `---`, as kubectl splits them. Comments before the first such line are no part.
fn parts(text: &str) -> Vec<Part> {
    let mut parts = vec![Part { lines_before: 0, text: String::new() }];
    let mut begun = false;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        match line.strip_prefix("---").filter(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace)) {
            // What follows on the same line belongs to the new document; blanks keep its columns.
            Some(rest) => {
                if !begun {
                    parts.retain(|part| !part.text.lines().all(is_blank));
                    begun = true;
                }
                parts.push(Part { lines_before: number, text: format!("   {rest}") });
            }
            None => {
                if let Some(last) = parts.last_mut() {
                    last.text.push_str(line);
                }
            }
        }
    }
    parts
}

/// The objects of a List, or the one object.
pub(super) fn objects(document: Document, errors: &mut Vec<ManifestError>) -> Vec<Object> {
    let Document { place, value } = document;
    let Value::Object(mut fields) = value else {
        errors.push(ManifestError::Document { place, problem: "not an object".to_owned() });
        return Vec::new();
    };
    let text = |field: &str| fields.get(field).and_then(Value::as_str).map(str::to_owned);
    let item_kind = text("kind").and_then(|kind| kind.strip_suffix("List").map(str::to_owned));
    let Some(item_kind) = item_kind.filter(|kind| kind.is_empty() || fields.contains_key("items")) else {
        return vec![Object { place, value: Value::Object(fields) }];
    };
    let version = text("apiVersion").unwrap_or_default();
    let items = match fields.remove("items") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(items)) => items,
        Some(_) => {
            errors.push(ManifestError::Document { place, problem: "items: not a list".to_owned() });
            return Vec::new();
        }
    };
    let of_list = |(item, mut value): (usize, Value)| {
        // Items of a PodList and its like are pods without saying so.
        if let Some(fields) = value.as_object_mut().filter(|_| !item_kind.is_empty()) {
            fields.entry("kind").or_insert_with(|| Value::from(item_kind.clone()));
            fields.entry("apiVersion").or_insert_with(|| Value::from(version.clone()));
        }
        Object { place: Place { item: Some(item), ..place.clone() }, value }
    };
    items.into_iter().enumerate().map(of_list).collect()
}
