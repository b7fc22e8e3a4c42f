//! Documents of a file, and the items of a List.

use super::files::File;
use super::{ManifestError, Place};
use serde_json::Value;

/// The documents of a file that are not empty.
pub(super) fn split(file: &File) -> Result<Vec<(Place, Value)>, ManifestError> {
    let mut documents = Vec::new();
    for (index, text) in texts(&file.text).into_iter().enumerate() {
        let place = Place { file: file.name.clone(), document: index + 1 };
        if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            continue;
        }
        let value = parse(&text).map_err(|problem| ManifestError::Document { place: place.clone(), problem })?;
        if !value.is_null() {
            documents.push((place, value));
        }
    }
    Ok(documents)
}

/// JSON is read as such: YAML's reader would take longer and differ in escapes.
fn parse(text: &str) -> Result<Value, String> {
    if text.trim_start().starts_with('{') {
        if let Ok(value) = serde_json::from_str(text) {
            return Ok(value);
        }
    }
    serde_saphyr::from_str(text).map_err(|error| error.to_string())
}

/// Parts between lines that begin with `---`, as kubectl splits them.
fn texts(text: &str) -> Vec<String> {
    let mut texts = vec![String::new()];
    for line in text.split_inclusive('\n') {
        match line.strip_prefix("---").filter(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace)) {
            // What follows on the same line belongs to the new document.
            Some(rest) => {
                let only_blank = texts.len() == 1 && texts.iter().all(|text| text.trim().is_empty());
                if only_blank {
                    texts.clear();
                }
                texts.push(rest.to_owned());
            }
            None => {
                if let Some(last) = texts.last_mut() {
                    last.push_str(line);
                }
            }
        }
    }
    texts
}

/// The objects of a List, or the one object.
pub(super) fn items(place: &Place, value: Value) -> Result<Vec<Value>, ManifestError> {
    let problem = |problem: &str| ManifestError::Document { place: place.clone(), problem: problem.to_owned() };
    let Value::Object(mut fields) = value else { return Err(problem("not an object")) };
    let is_list = fields.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
    if !is_list {
        return Ok(vec![Value::Object(fields)]);
    }
    match fields.remove("items") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => Ok(items),
        Some(_) => Err(problem("items: not a list")),
    }
}
