//! `plimsoll plan`.

pub(crate) mod render;
pub(crate) mod table;

use crate::output::{self, Answer, Format};
use crate::{CommandError, ask, input};
use clap::Args;
use std::path::PathBuf;
use std::time::Instant;

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
    /// Print to stderr how many seconds reading, planning and checking took, as one line of JSON.
    #[arg(long)]
    timings: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Answer, CommandError> {
    let started = Instant::now();
    let question = input::from_files(&arguments.filename, &arguments.catalog, arguments.now)?;
    let read = started.elapsed();
    let question = arguments.policies.with(question);
    let (plan, took) = ask::plan(&question, &arguments.server)?;
    if arguments.timings {
        output::timings(read, took.plan, took.check);
    }
    match arguments.output {
        Format::Table => Ok(Answer::Text(table::render(&plan))),
        Format::Json => Ok(Answer::Stream(Box::new(move |writer| render::write_json(&plan, writer)))),
        Format::Yaml => output::yaml(&render::plan(&plan)).map(Answer::Text),
    }
}
