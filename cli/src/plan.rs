//! `plimsoll plan`.

mod assumptions;
pub(crate) mod render;
mod request;
pub(crate) mod staying;
mod summary;
pub(crate) mod table;
mod weights;

use crate::output::{self, Answer, Outcome};
use crate::{CommandError, ask, cluster, input};
use clap::{Args, ValueEnum};
use plimsoll_model::plan::Plan;
use plimsoll_scheduler::answer::place_waiting;
use std::path::PathBuf;
use std::time::Instant;

/// With `--detailed-exitcode`: the plan launches or removes nodes. Terraform uses 2, which means bad input here.
const CHANGES: u8 = 3;
/// With `--fail-on-unschedulable`: a pod is unschedulable.
const UNSCHEDULABLE: u8 = 4;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Manifests: a file, a folder (read recursively) or - for stdin. Without them, the cluster of the kubeconfig is
    /// read.
    #[arg(short, long = "filename", value_name = "PATH", num_args = 1..)]
    filename: Vec<PathBuf>,
    #[command(flatten)]
    cluster: cluster::ClusterArguments,
    #[command(flatten)]
    catalog: input::CatalogArguments,
    #[command(flatten)]
    server: ask::ServerArguments,
    #[command(flatten)]
    policies: input::PolicyArguments,
    #[command(flatten)]
    assumptions: assumptions::AssumptionArguments,
    /// How the plan is printed.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
    /// Time of the plan (RFC 3339) [default: now]
    #[arg(long, value_name = "TIME")]
    now: Option<jiff::Timestamp>,
    /// Exit with 3 if nodes would be launched or removed, and with 0 if nothing would change.
    #[arg(long)]
    detailed_exitcode: bool,
    /// Exit with 4 if a pod is unschedulable.
    #[arg(long)]
    fail_on_unschedulable: bool,
    /// Print the seconds for reading, planning and checking to stderr, as one line of JSON.
    #[arg(long)]
    timings: bool,
}

/// How a plan is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Tables for people.
    Table,
    /// JSON for programs.
    Json,
    /// The same in YAML.
    Yaml,
    /// No plan, but the request to the scheduler's gRPC method Plan, as JSON for grpcurl.
    Request,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, CommandError> {
    let started = Instant::now();
    let Arguments { filename, cluster, catalog, now, .. } = arguments;
    let (question, namespace) = input::read(filename, cluster, catalog, *now)?;
    let mut question = arguments.policies.with(question);
    let is_table = arguments.output == Format::Table;
    let present = if is_table { arguments.assumptions.present(&question) } else { None };
    let assumed = arguments.assumptions.apply(&mut question, &namespace)?;
    let read = started.elapsed();
    if arguments.output == Format::Request {
        return Ok(Answer::Text(request::json(&question)?).into());
    }
    let (mut plan, timings) = ask::plan(&question, &arguments.server)?;
    // In a large burst, the launches of the early part come first.
    plan.sort_launches();
    place_waiting(&question.snapshot, &mut plan);
    let staying = staying::take(&question.snapshot, &mut plan);
    if is_table && let Some(hint) = weights::hint(&mut question, &plan, &arguments.server) {
        output::hint(&hint);
    }
    if arguments.timings {
        output::timings(read, timings.plan, timings.check);
    }
    let status = arguments.status(&plan);
    let answer = match arguments.output {
        Format::Json => Answer::Stream(Box::new(move |writer| render::write_json(&plan, writer))),
        Format::Yaml => Answer::Text(output::yaml(&render::plan(&plan))?),
        Format::Table | Format::Request => {
            let protected = summary::protected(&mut question, &plan, &arguments.server);
            let notes = table::Notes { protected, staying, prices: question.prices.clone() };
            let compared = present.map(|present| present.line(&mut question, &arguments.server)).unwrap_or_default();
            Answer::Text(assumed + &table::render(&plan, &notes) + &compared)
        }
    };
    Ok(Outcome { answer, status })
}

impl Arguments {
    /// Exit status. An unschedulable pod takes precedence over changes, because it needs attention.
    fn status(&self, plan: &Plan) -> u8 {
        if self.fail_on_unschedulable && !plan.unschedulable.is_empty() {
            UNSCHEDULABLE
        } else if self.detailed_exitcode && summary::changes(plan) {
            CHANGES
        } else {
            0
        }
    }
}
