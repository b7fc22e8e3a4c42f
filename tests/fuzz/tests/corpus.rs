//! Replays every kept input through its property.
#![allow(clippy::unwrap_used, reason = "helpers of tests, which may fail like them")]

use plimsoll_fuzz::TARGETS;
use std::fs;
use std::path::{Path, PathBuf};

/// What is kept for one property: it is in everybody's clone.
const MOST_BYTES: u64 = 128 * 1024;

fn inputs(target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn every_kept_input_holds() {
    for (target, holds) in TARGETS {
        let files = inputs(target);
        assert!(files.len() >= 20, "{target}: there are only {} inputs", files.len());
        for file in files {
            let data = fs::read(&file).unwrap();
            let result = std::panic::catch_unwind(|| holds(&data));
            assert!(result.is_ok(), "{target} does not hold for {}", file.display());
        }
    }
}

#[test]
fn the_corpus_stays_small() {
    for (target, _) in TARGETS {
        let bytes: u64 = inputs(target).iter().map(|file| fs::metadata(file).unwrap().len()).sum();
        assert!(bytes <= MOST_BYTES, "{target}: {bytes} bytes are kept, {MOST_BYTES} at most");
    }
}

#[test]
fn the_empty_input_holds() {
    TARGETS.iter().for_each(|(_, holds)| holds(&[]));
}
