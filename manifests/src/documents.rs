//! Documents of a file, and the objects in them.

use super::{ManifestError, Place, json};
use serde_json::Value;
use std::sync::Arc;

/// Maximum nodes and events of one YAML document. The caller's bound on the input's size is what limits the work.
const MAX_NODES: usize = 1 << 30;
/// The deepest nesting of YAML: twice that of the longest custom resource definitions.
const MAX_DEPTH: usize = 128;

/// What the YAML library advises programmers to do about a repeated key.
const LIBRARY_ADVICE: &str = ", set DuplicateKeyPolicy in Options if acceptable";
/// Parts of messages that the YAML library writes for programmers, and what they mean for users. The first one counts.
const MEANINGS: [(&str, &str); 7] = [
    ("multiple YAML documents", "the document has ended with `...`; the next one must begin with `---`"),
    ("recursive references", "an anchor is used within its own value"),
    ("breached: Depth", "nested too deeply"),
    ("recursion limit", "nested too deeply"),
    ("budget breached", "too many values with aliases and merge keys"),
    ("alias replay", "too many values with aliases and merge keys"),
    ("expected string scalar", "the key of a mapping must be a string"),
];
/// What to do if the line has a Go template.
const TEMPLATE_ADVICE: &str =
    "; a Go template must be rendered first, such as a Helm chart with `helm template`, or quoted";

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
    match json::value(&text.content) {
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
    let json_error = match json_values(text) {
        Some(Ok(values)) => {
            let documents = values.into_iter().enumerate();
            return documents.map(|(index, value)| Document { place: place(index), value }).collect();
        }
        Some(Err(error)) => Some(error),
        None => None,
    };
    let parts = parts(text);
    // Lines with `---` are no JSON, so the JSON reader's error says nothing about one of several documents.
    let json_error = json_error.filter(|_| parts.len() == 1);
    let mut documents = Vec::new();
    for (index, part) in parts.into_iter().enumerate() {
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
/// Two braces begin a Go template.
fn json_values(text: &str) -> Option<Result<Vec<Value>, String>> {
    let start = text.trim_start();
    let is_json = start.starts_with('{') && !start.starts_with("{{");
    is_json.then(|| json::values(text).map_err(|error| format!("not JSON: {error}")))
}

fn yaml(part: &Part) -> Result<Value, String> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_nodes: MAX_NODES,
            max_events: MAX_NODES,
            max_total_scalar_bytes: MAX_NODES,
            max_reader_input_bytes: Some(MAX_NODES),
            max_depth: MAX_DEPTH,
            // Many objects may share one anchor. The library's limit of replayed events stops bombs.
            enforce_alias_anchor_ratio: false,
        },
        with_snippet: false,
        // As kubectl: `defaultMode: 0440`.
        legacy_octal_numbers: true,
    };
    serde_saphyr::from_str_with_options(&part.text, options).map_err(|error| {
        let text = error.without_snippet().to_string();
        let Some(location) = error.location() else { return format!("not YAML: {text}") };
        let (line, column) = (location.line(), location.column());
        let message = for_users(&text.replace(&format!(" at line {line}, column {column}"), ""));
        let line = usize::try_from(line).unwrap_or(usize::MAX);
        let is_template = part.text.lines().nth(line.saturating_sub(1)).is_some_and(|line| line.contains("{{"));
        let advice = if is_template { TEMPLATE_ADVICE } else { "" };
        let line = line.saturating_add(part.lines_before);
        format!("not YAML: line {line}, column {column}: {message}{advice}")
    })
}

/// A message of the YAML library without what concerns only programmers.
fn for_users(message: &str) -> String {
    if let Some((_, meaning)) = MEANINGS.iter().find(|(part, _)| message.contains(*part)) {
        return (*meaning).to_owned();
    }
    let message = message.replace(LIBRARY_ADVICE, "").replace(" rejected by the configured policy", "");
    message.replace("non-finite float", "no finite number:")
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

/// The objects of a List and of Lists within it, or the one object. Objects of an inner List have its index.
pub(super) fn objects(document: Document, errors: &mut Vec<ManifestError>) -> Vec<Object> {
    let Document { place, mut value } = document;
    if !value.is_object() {
        errors.push(ManifestError::Document { place, problem: "not an object".to_owned() });
        return Vec::new();
    }
    let Some(item_kind) = kind_of_items(&value) else { return vec![Object { place, value }] };
    let version = value.get("apiVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
    let items = match value.get_mut("items").map(Value::take) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(items)) => items,
        Some(_) => {
            errors.push(ManifestError::Document { place, problem: "items: not a list".to_owned() });
            return Vec::new();
        }
    };
    let mut found = Vec::with_capacity(items.len());
    for (item, mut value) in items.into_iter().enumerate() {
        // Items of a PodList and its like are pods without saying so.
        if let Some(fields) = value.as_object_mut().filter(|_| !item_kind.is_empty()) {
            fields.entry("kind").or_insert_with(|| Value::from(item_kind.clone()));
            fields.entry("apiVersion").or_insert_with(|| Value::from(version.clone()));
        }
        let place = Place { item: place.item.or(Some(item)), ..place.clone() };
        match kind_of_items(&value) {
            Some(_) => found.extend(objects(Document { place, value }, errors)),
            None => found.push(Object { place, value }),
        }
    }
    found
}

/// The kind of a List's items, empty if they may be of any kind. `None` if the value is no List.
fn kind_of_items(value: &Value) -> Option<String> {
    let kind = value.get("kind")?.as_str()?.strip_suffix("List")?;
    (kind.is_empty() || value.get("items").is_some()).then(|| kind.to_owned())
}
