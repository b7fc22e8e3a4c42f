//! Replays every stored input through its property.
#![allow(clippy::unwrap_used, reason = "test helpers fail by panicking")]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use plimsoll_fuzz::TARGETS;
use std::fs;
use std::path::{Path, PathBuf};

/// Maximum size of the inputs of one property, because they are part of every clone.
const MOST_BYTES: usize = 128 * 1024;

/// An input, and the name that failure messages show.
struct Input {
    name: String,
    data: Vec<u8>,
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Inputs in the archive of a target. Each line has a name and the input in base64.
fn archived(target: &str) -> Vec<Input> {
    let text = fs::read_to_string(folder("corpus").join(format!("{target}.base64"))).unwrap();
    let read = |line: &str| {
        let (name, data) = line.split_once(' ').unwrap();
        Input { name: name.to_owned(), data: STANDARD.decode(data).unwrap() }
    };
    text.lines().map(read).collect()
}

/// Inputs that once violated the property, by description.
fn regressions(target: &str) -> Vec<Input> {
    let Ok(entries) = fs::read_dir(folder("regressions").join(target)) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| Input { name: file.display().to_string(), data: fs::read(file).unwrap() }).collect()
}

#[test]
fn every_kept_input_holds() {
    for (target, holds) in TARGETS {
        let inputs = archived(target);
        assert!(inputs.len() >= 20, "{target}: there are only {} inputs", inputs.len());
        for Input { name, data } in inputs.iter().chain(&regressions(target)) {
            let result = std::panic::catch_unwind(|| holds(data));
            assert!(result.is_ok(), "{target} does not hold for {name}");
        }
    }
}

#[test]
fn regressions_are_of_targets_and_archives_are_sorted() {
    let targets: Vec<&str> = TARGETS.iter().map(|(target, _)| *target).collect();
    for entry in fs::read_dir(folder("regressions")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(targets.contains(&name.as_str()) && !regressions(&name).is_empty(), "regressions/{name}");
    }
    for target in targets {
        // `run.sh --keep` writes the archive sorted and without duplicates.
        assert!(archived(target).is_sorted_by(|first, second| first.name < second.name), "{target}");
    }
}

#[test]
fn the_corpus_stays_small() {
    for (target, _) in TARGETS {
        let bytes: usize = archived(target).iter().chain(&regressions(target)).map(|input| input.data.len()).sum();
        assert!(bytes <= MOST_BYTES, "{target}: {bytes} bytes are stored, at most {MOST_BYTES}");
    }
}

#[test]
fn the_empty_input_holds() {
    TARGETS.iter().for_each(|(_, holds)| holds(&[]));
}
