//! Cache of the peer's results: they take most of the time, and change only with the case.

use super::answer::Answer;
use anyhow::{Context as _, Result};
use plimsoll_model::identity::ContentHasher;
use plimsoll_workloads::Case;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;

/// One line of the file.
#[derive(Serialize, Deserialize)]
struct Line {
    seed: u64,
    /// Hash of the request.
    content: String,
    /// Number of the peer's seeds.
    seeds: u64,
    answer: Answer,
}

/// A file of results, written as they arrive.
pub(super) struct Record {
    known: BTreeMap<String, Answer>,
    seeds: u64,
    file: File,
    version: Option<String>,
}

impl Record {
    pub(super) fn open(path: &Path, seeds: u64) -> Result<Self> {
        let mut known = BTreeMap::new();
        if let Ok(file) = File::open(path) {
            for line in BufReader::new(file).lines() {
                // The last line of an interrupted run may be incomplete: that case runs again.
                let Ok(line) = serde_json::from_str::<Line>(&line?) else { continue };
                if line.seeds >= seeds {
                    known.insert(line.content, line.answer);
                }
            }
        }
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.with_context(|| format!("opening {}", path.display()))?;
        Ok(Self { known, seeds, file, version: None })
    }

    pub(super) fn find(&mut self, case: &Case) -> Result<Option<Answer>> {
        let line = self.known.get(&content(case)?).cloned();
        if let Some(answer) = &line {
            self.version = Some(answer.karpenter.clone());
        }
        Ok(line)
    }

    pub(super) fn keep(&mut self, case: &Case, answer: &Answer) -> Result<()> {
        self.version = Some(answer.karpenter.clone());
        let line = Line { seed: case.seed, content: content(case)?, seeds: self.seeds, answer: answer.clone() };
        writeln!(self.file, "{}", serde_json::to_string(&line)?)?;
        Ok(())
    }

    /// Version of Karpenter.
    pub(super) fn version(&self) -> &str {
        self.version.as_deref().unwrap_or("unknown")
    }
}

/// A hash of the complete input of the peer.
fn content(case: &Case) -> Result<String> {
    let mut bytes = Vec::new();
    case.write_manifests(&mut bytes)?;
    let mut hasher = ContentHasher::new("peer");
    hasher.part(&bytes);
    hasher.text(&case.catalog.catalog().id().to_string());
    Ok(hasher.hex(32))
}
