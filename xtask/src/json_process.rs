//! A process that answers each line of JSON with a line of JSON.

use anyhow::{Context as _, Result, bail};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};

pub(crate) struct JsonProcess {
    /// For errors.
    name: &'static str,
    child: Child,
    from: BufReader<ChildStdout>,
}

impl JsonProcess {
    pub(crate) fn start(name: &'static str, command: &mut Command) -> Result<Self> {
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = started.with_context(|| format!("starting {name}"))?;
        let from = child.stdout.take().with_context(|| format!("{name} has no stdout"))?;
        Ok(Self { name, child, from: BufReader::new(from) })
    }

    /// Sends a line, and reads the next line of the process.
    pub(crate) fn ask<T: DeserializeOwned>(&mut self, question: &Value) -> Result<T> {
        let to = self.child.stdin.as_mut().with_context(|| format!("{} has no stdin", self.name))?;
        writeln!(to, "{question}").with_context(|| format!("asking {}", self.name))?;
        self.read()
    }

    /// Reads the next line of the process.
    pub(crate) fn read<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        if self.from.read_line(&mut line)? == 0 {
            bail!("{} ended without an answer", self.name);
        }
        serde_json::from_str(&line).with_context(|| format!("the answer of {}", self.name))
    }

    /// Closes the input of the process, with which it ends.
    pub(crate) fn end(mut self) -> Result<()> {
        // `wait` closes the input.
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { bail!("{}: {status}", self.name) }
    }
}

impl Drop for JsonProcess {
    fn drop(&mut self) {
        // It ends with its input; otherwise there is no reason to wait for it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
