//! The `plimsoll` command: what it takes, what it prints and how it ends.

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
pub mod manifests;
pub mod offline;
mod output;
mod plan;
mod prices;
mod progress;
#[cfg(feature = "requests")]
mod requests;

pub use commands::{Cli, split_subject};
pub use output::{Answer, Outcome, Stream};

use clap::Parser;
use std::process::ExitCode;

/// Bad input; anything else that goes wrong is 1.
const BAD_INPUT: u8 = 2;

/// Why a command could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// What was given cannot be used: exit status 2.
    #[error("{0}")]
    BadInput(String),
    /// Anything else: exit status 1.
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

/// Runs the command line of this process. Errors go to stderr; stdout has nothing then.
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
