//! Checks that replaced names do not reappear.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers fail by panicking")]

mod common;

use common::{root, rust_files};
use std::fs;

/// Words that no identifier may contain, each with its replacement. Only words without another meaning in the field.
const RETIRED: &[(&str, &str)] = &[
    ("chore", "task"),
    ("concession", "relaxation"),
    ("crowd", "domain count"),
    ("desk", "state"),
    ("director", "fake watcher"),
    ("essence", "key"),
    ("guests", "placed buffer pods"),
    ("keeper", "primary claim"),
    ("ladder", "relaxation levels"),
    ("ladders", "relaxation levels"),
    ("likeness", "key"),
    ("lot", "pod group"),
    ("lots", "pod groups"),
    ("mistake", "invalid flag"),
    ("mistakes", "invalid flags"),
    ("owed", "pending replacement"),
    ("refit", "local search"),
    ("rehearsal", "replay"),
    ("rehearse", "replay"),
    ("rehearsed", "replayed"),
    ("rung", "relaxation level"),
    ("rungs", "relaxation levels"),
    ("salvage", "read partially"),
    ("scene", "cluster"),
    ("scenery", "config"),
    ("scenes", "clusters"),
    ("shelf", "history"),
    ("shelves", "histories"),
    ("surest", "most reliable"),
    ("surroundings", "objects"),
    ("torn", "broken constraint"),
    ("unled", "without self-affinity"),
    ("vanguard", "early batch"),
    ("ware", "offering node"),
    ("wares", "offering nodes"),
    ("wish", "preference"),
    ("wished", "preferred"),
    ("wishes", "preferences"),
    ("wishing", "with preferences"),
];

/// Names of external crates and generated messages.
const FOREIGN: &[&str] = &["OnDemandWish", "parking_lot"];

/// A line without strings and comments, precise enough for identifiers.
fn code(line: &str) -> String {
    let mut quoted = line.split('"');
    let outside: Vec<&str> = std::iter::from_fn(|| {
        let part = quoted.next()?;
        quoted.next();
        Some(part)
    })
    .collect();
    outside.join(" ").split("//").next().unwrap_or_default().to_owned()
}

/// The words of an identifier, in lower case: `PodGroup` and `pod_group` are both `pod` and `group`.
fn words(identifier: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut after_lower = false;
    for letter in identifier.chars() {
        if letter == '_' {
            words.push(String::new());
        } else if words.is_empty() || (letter.is_uppercase() && after_lower) {
            words.push(letter.to_lowercase().collect());
        } else if let Some(word) = words.last_mut() {
            word.extend(letter.to_lowercase());
        }
        after_lower = letter.is_lowercase();
    }
    words
}

fn retired(code: &str) -> Vec<String> {
    let identifiers = code.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let became = |word: &str| RETIRED.iter().find(|(old, _)| *old == word).map(|(_, new)| *new);
    identifiers
        .filter(|identifier| !FOREIGN.contains(identifier))
        .flat_map(|identifier| {
            words(identifier)
                .into_iter()
                .filter_map(|word| Some(format!("{identifier} ({})", became(&word)?)))
                .collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn retired_words_are_found_in_any_spelling() {
    assert_eq!(retired("let lots = Vec::new();").len(), 1);
    assert_eq!(retired("struct BufferGuests;").len(), 1);
    assert_eq!(retired("const MAX_RUNGS: usize = 1;").len(), 1);
    assert_eq!(retired("fn slot(allotted: Slot, ballot: u8)"), Vec::<String>::new(), "words within words");
    assert_eq!(retired(&code("call(\"lots\") // of rungs")), Vec::<String>::new(), "strings and comments");
}

#[test]
fn no_identifier_has_a_retired_word() {
    let files = rust_files(&root());
    assert!(files.len() > 500, "looked in the wrong place");
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| !file.ends_with("xtask/tests/words.rs")) {
        for (number, line) in fs::read_to_string(file).unwrap().lines().enumerate() {
            let words = retired(&code(line));
            violations.extend(words.iter().map(|word| format!("{}:{}: {word}", file.display(), number + 1)));
        }
    }
    assert!(violations.is_empty(), "names that were replaced:\n{}", violations.join("\n"));
}
