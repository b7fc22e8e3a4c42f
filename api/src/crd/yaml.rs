//! Renders JSON values as YAML: block style, keys in their order, strings quoted only if necessary.
//!
//! Written by hand because the files are read by people and compared byte for byte, so their format must not depend on
//! a library version.

use serde_json::Value;
use std::fmt::Write as _;

/// Renders `value` as a YAML document.
pub(super) fn render(value: &Value) -> String {
    let mut out = String::from("---\n");
    block(value, 0, &mut out);
    out
}

/// Writes `value` at the start of a line.
fn block(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(entries) if !entries.is_empty() => {
            for (position, (key, value)) in entries.iter().enumerate() {
                if position > 0 || !out.ends_with("- ") {
                    spaces(indent, out);
                }
                scalar(key, out);
                out.push(':');
                nested(value, indent, out);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                spaces(indent, out);
                out.push_str("- ");
                match item {
                    Value::Object(entries) if !entries.is_empty() => block(item, indent + 2, out),
                    other => inline(other, out),
                }
            }
        }
        other => inline(other, out),
    }
}

/// Writes the value after a key. Lists are not indented relative to their key, as is common in CRDs.
fn nested(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(entries) if !entries.is_empty() => {
            out.push('\n');
            block(value, indent + 2, out);
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            block(value, indent, out);
        }
        other => {
            out.push(' ');
            inline(other, out);
        }
    }
}

/// Writes a value and ends the line. Nested lists do not occur in CRDs and would be written as JSON.
fn inline(value: &Value, out: &mut String) {
    match value {
        Value::String(text) => scalar(text, out),
        other => {
            let _ = write!(out, "{other}");
        }
    }
    out.push('\n');
}

fn spaces(count: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', count));
}

fn scalar(text: &str, out: &mut String) {
    if text.chars().any(char::is_control) {
        // JSON string escapes are valid in YAML's double quotes.
        let _ = write!(out, "{}", Value::from(text));
    } else if is_plain(text) {
        out.push_str(text);
    } else {
        let _ = write!(out, "'{}'", text.replace('\'', "''"));
    }
}

/// Whether YAML 1.1 and 1.2 parse the unquoted `text` as this string.
fn is_plain(text: &str) -> bool {
    const WORDS: [&str; 13] = ["", "~", "null", "true", "false", "yes", "no", "on", "off", "y", "n", ".inf", ".nan"];
    let looks_like_number = text.trim_start_matches(['+', '-', '.']).starts_with(|c: char| c.is_ascii_digit());
    let begins_like_syntax = text.starts_with(|c: char| "!&*-?|>@`%#{}[],:'\" =<".contains(c));
    let has_syntax = text.contains(": ") || text.contains(" #") || text.ends_with(':') || text.ends_with(' ');
    let is_word = WORDS.iter().any(|word| word.eq_ignore_ascii_case(text));
    // `720h` and `10%` are no numbers, but `0x1f`, `1e3` and `12:30` are. Everything that looks like a number is
    // quoted.
    !(looks_like_number || begins_like_syntax || has_syntax || is_word)
}
