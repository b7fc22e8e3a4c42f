//! `plimsoll plan`.

pub(crate) mod render;
pub(crate) mod table;

use crate::output::{self, Format};
use crate::{CommandError, ask, input};
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Manifests: a file, a folder (with all below it) or - for stdin.
    #[arg(short, long = "filename", value_name = "PATH", required = true, num_args = 1..)]
    filename: Vec<PathBuf>,
    #[command(flatten)]
    catalog: input::CatalogArguments,
    #[command(flatten)]
    server: ask::ServerArguments,
    #[command(flatten)]
    policies: input::PolicyArguments,
    /// How the plan is printed.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
    /// The time to plan for (RFC 3339) in place of the present.
    #[arg(long, value_name = "TIME")]
    now: Option<jiff::Timestamp>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<String, CommandError> {
    let question = input::from_files(&arguments.filename, &arguments.catalog, arguments.now)?;
    let question = arguments.policies.with(question);
    let plan = ask::plan(question.request(), &arguments.server)?;
    match arguments.output {
        Format::Table => Ok(table::render(&plan)),
        Format::Json => output::json(&render::plan(&plan)),
        Format::Yaml => output::yaml(&render::plan(&plan)),
    }
}
