//! The peer as a process that serves many requests.

use super::answer::Answer;
use super::say;
use crate::workspace;
use anyhow::{Context as _, Result, bail};
use plimsoll_workloads::Case;
use serde_json::json;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Time limit of Karpenter, enough for any case with dozens of pods.
const SOLVE_SECONDS_MAX: u32 = 60;

/// Started with the first request.
pub(super) struct Program {
    root: PathBuf,
    folder: PathBuf,
    running: Option<Running>,
}

struct Running {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
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
        let running = self.start()?;
        writeln!(running.to, "{question}")?;
        running.to.flush()?;
        let mut line = String::new();
        if running.from.read_line(&mut line)? == 0 {
            bail!("the peer ended at {}", case.title());
        }
        std::fs::remove_file(&catalog)?;
        let answer: Answer = serde_json::from_str(&line).context("the peer's answer")?;
        Ok(answer)
    }

    fn start(&mut self) -> Result<&mut Running> {
        if self.running.is_none() {
            let path = workspace::script(&self.root.join("tests/peers/karpenter/build.sh"))?;
            say("asking Karpenter's scheduler");
            let mut child = Command::new(&path)
                .arg("serve")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .with_context(|| format!("starting {}", path.display()))?;
            let to = child.stdin.take().context("the peer has no stdin")?;
            let from = BufReader::new(child.stdout.take().context("the peer has no stdout")?);
            self.running = Some(Running { child, to, from });
        }
        self.running.as_mut().context("the peer does not run")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It ends with its input; otherwise there is no reason to wait for it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
