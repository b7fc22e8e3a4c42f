//! The `plimsoll` command: arguments, output and exit status.

mod ask;
mod catalog;
mod certificates;
mod cluster;
mod commands;
#[cfg(feature = "demo")]
mod demo;
mod explain;
mod hints;
mod input;
mod kubectl_kinds;
pub mod manifests;
pub mod offline;
mod output;
mod plan;
mod prices;
mod progress;
mod replay;
#[cfg(feature = "requests")]
mod requests;

pub use commands::{Cli, split_subject};
pub use output::{Answer, Outcome, Stream};

use clap::Parser;
use std::process::ExitCode;

/// Exit status for bad input; other errors have status 1.
const BAD_INPUT: u8 = 2;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The input is invalid: exit status 2.
    #[error("{0}")]
    BadInput(String),
    /// Any other error: exit status 1.
    #[error("{0}")]
    Failed(String),
}

impl CommandError {
    /// Exit status of the process.
    #[must_use]
    pub fn status(&self) -> u8 {
        match self {
            Self::BadInput(_) => BAD_INPUT,
            Self::Failed(_) => 1,
        }
    }
}

/// The innermost error is the most specific: `connection refused` instead of `transport error`.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// The error with its innermost cause: `client error (Connect): Connection refused`.
fn with_cause(error: &dyn std::error::Error) -> String {
    let (text, cause) = (error.to_string(), innermost(error));
    if text.contains(&cause) { text } else { format!("{text}: {cause}") }
}

/// Runs the command line of this process. Errors go to stderr; stdout is then empty.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse_from(split_subject(std::env::args_os()));
    match cli.run().and_then(|outcome| output::write(outcome.answer).map(|()| outcome.status)) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            output::report(&error);
            ExitCode::from(error.status())
        }
    }
}
