//! The peer as a process that serves many requests.

use super::PROGRESS;
use super::answer::Answer;
use crate::json_process::JsonProcess;
use crate::workspace;
use anyhow::{Context as _, Result};
use plimsoll_workloads::Case;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Time limit of Karpenter, enough for any case with dozens of pods.
const SOLVE_SECONDS_MAX: u32 = 60;

/// Started with the first request.
pub(super) struct Program {
    root: PathBuf,
    folder: PathBuf,
    running: Option<JsonProcess>,
}

impl Program {
    pub(super) fn new(root: &Path, dir: &Path) -> Self {
        Self { root: root.to_owned(), folder: dir.join("asked"), running: None }
    }

    /// Karpenter's results, one per seed.
    pub(super) fn ask(&mut self, case: &Case, seeds: u64) -> Result<Answer> {
        case.write(&self.folder)?;
        // A separate file name for each catalog, because the program caches the last one by name.
        let catalog = self.folder.join(format!("catalog-{}.json", case.catalog.catalog().id()));
        std::fs::rename(self.folder.join("catalog.json"), &catalog)?;
        let question = json!({
            "input": self.folder.join("manifests"),
            "catalog": catalog,
            "seeds": (0..seeds).collect::<Vec<_>>(),
            "timeoutSeconds": SOLVE_SECONDS_MAX,
        });
        let answer = self.start()?.ask(&question).with_context(|| case.title())?;
        std::fs::remove_file(&catalog)?;
        Ok(answer)
    }

    fn start(&mut self) -> Result<&mut JsonProcess> {
        if self.running.is_none() {
            let path = workspace::script(&self.root.join("tests/peers/karpenter/build.sh"))?;
            PROGRESS.say("asking Karpenter's scheduler");
            self.running = Some(JsonProcess::start("the peer", Command::new(path).arg("serve"))?);
        }
        self.running.as_mut().context("the peer does not run")
    }
}
