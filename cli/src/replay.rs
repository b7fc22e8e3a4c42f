//! `plimsoll replay`: makes the plans of a recording again, or simulates the period with other NodePools.

mod pools;

use crate::output::{self, Answer, Format, Outcome};
use crate::progress::Progress;
use crate::{CommandError, manifests};
use clap::Args;
use comfy_table::CellAlignment;
use plimsoll_model::time::{Millis, Timestamp, duration_text};
use plimsoll_replay::same::Summary;
use plimsoll_replay::simulate::Comparison;
use plimsoll_replay::{Figures, ReplayError};
use pools::OtherPools;
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::path::PathBuf;

/// Exit status if a plan differs from the recorded one.
const DIFFERENT: u8 = 3;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The recording: a folder, or one of its files.
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Manifests with NodePools, with which the recorded period is simulated: a file, a folder (read recursively) or -
    /// for stdin.
    #[arg(long = "with", value_name = "POOLS", num_args = 1..)]
    pools: Vec<PathBuf>,
    /// Time from purchase to service of a simulated node, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600), requires = "pools")]
    boot_seconds: u64,
    /// How the result is printed.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, CommandError> {
    let files = plimsoll_replay::files(&arguments.path).map_err(|error| failed(&error))?;
    if arguments.pools.is_empty() {
        return same(arguments, &files);
    }
    let manifests = manifests::read(&arguments.pools, &mut std::io::stdin().lock())
        .map_err(|error| CommandError::BadInput(error.to_string()))?;
    let pools = OtherPools::new(manifests)?;
    let boot = Millis::from_seconds(arguments.boot_seconds);
    let progress = Progress::start("simulating");
    let pools_at = |recorded: &_, nodes: &_| pools.at(recorded, nodes);
    let comparison = plimsoll_replay::simulate::compare(&files, &pools_at, boot, |plans| {
        progress.count("plans", plans);
        if pools.are_wrong() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    drop(progress);
    let comparison = comparison.map_err(|error| failed(&error))?;
    pools.problems()?;
    check_complete(arguments, comparison.plans, &comparison.truncated)?;
    let text = match arguments.output {
        Format::Table => table(&comparison, arguments.boot_seconds),
        Format::Json => output::json(&view(&comparison))?,
        Format::Yaml => output::yaml(&view(&comparison))?,
    };
    Ok(Answer::Text(text).into())
}

/// A recording that cannot be read is bad input, unless the system fails.
fn failed(error: &ReplayError) -> CommandError {
    CommandError::BadInput(error.to_string())
}

/// Tells of truncated files. A recording without a plan is bad input: nothing was compared.
fn check_complete(arguments: &Arguments, plans: usize, truncated: &[PathBuf]) -> Result<(), CommandError> {
    if plans == 0 {
        return Err(CommandError::BadInput(format!("no complete plan in {}", arguments.path.display())));
    }
    for file in truncated {
        output::hint(&format!("{} ends in the middle of an entry; what is complete was replayed", file.display()));
    }
    Ok(())
}

fn same(arguments: &Arguments, files: &[PathBuf]) -> Result<Outcome, CommandError> {
    let progress = Progress::start("replaying");
    let summary = plimsoll_replay::same::replay(files, |plans| progress.count("plans", plans));
    drop(progress);
    let summary = summary.map_err(|error| failed(&error))?;
    check_complete(arguments, summary.plans, &summary.truncated)?;
    let status = if summary.difference.is_some() { DIFFERENT } else { 0 };
    let text = match arguments.output {
        Format::Table => sentences(&summary, files.len()),
        Format::Json => output::json(&summary_view(&summary))?,
        Format::Yaml => output::yaml(&summary_view(&summary))?,
    };
    Ok(Outcome { answer: Answer::Text(text), status })
}

fn sentences(summary: &Summary, files: usize) -> String {
    let Summary { cluster, plans, launches, removals, outcomes, .. } = summary;
    let files = counted(files, "file");
    let mut lines =
        vec![format!("Cluster {cluster}: {} in {files}, {}.", counted(*plans, "plan"), period(summary.period))];
    match &summary.difference {
        None => lines.push(format!(
            "All plans are the same: {}, {}, {} of actions.",
            counted(*launches, "launch"),
            counted(*removals, "removal"),
            counted(*outcomes, "outcome")
        )),
        Some(difference) => {
            let (file, at) = (difference.file.display(), time(difference.at));
            lines.push(format!("Plan {} of {at} ({file}) differs:", difference.cycle_id));
            lines.push(format!("  {}", difference.first()));
            let (own, theirs) = (env!("CARGO_PKG_VERSION"), &difference.version);
            let may_differ = if own == theirs { "" } else { ", which may plan differently" };
            lines.push(format!("Recorded by version {theirs}, replayed by version {own}{may_differ}."));
        }
    }
    lines.push(String::new());
    lines.join("\n")
}

fn summary_view(summary: &Summary) -> Value {
    let difference = summary.difference.as_ref().map(|difference| {
        json!({
            "file": difference.file, "cycleId": difference.cycle_id, "time": time(difference.at),
            "version": difference.version, "first": difference.first(),
            "recorded": difference.recorded, "now": difference.now,
        })
    });
    json!({
        "cluster": summary.cluster, "from": summary.period.map(|(from, _)| time(from)),
        "to": summary.period.map(|(_, to)| time(to)), "plans": summary.plans, "launches": summary.launches,
        "removals": summary.removals, "outcomes": summary.outcomes, "difference": difference,
        "truncated": summary.truncated,
    })
}

fn table(comparison: &Comparison, boot_seconds: u64) -> String {
    let Comparison { cluster, period: of, plans, recorded, same_pools, other_pools, .. } = comparison;
    let columns = [recorded, same_pools, other_pools];
    let mut table = output::table(&["", "recorded", "simulated, same pools", "simulated, other pools"]);
    let mut row = |name: &str, value: &dyn Fn(&Figures) -> String| {
        table.add_row(std::iter::once(name.to_owned()).chain(columns.iter().map(|figures| value(figures))));
    };
    row("cost, USD", &|figures| usd(figures.micro_usd));
    row("USD per hour at the end", &|figures| usd(figures.hourly.0));
    row("nodes at the end", &|figures| figures.nodes.to_string());
    row("launches", &|figures| figures.launched.to_string());
    row("removals", &|figures| figures.removed.to_string());
    row("evictions", &|figures| figures.evicted.to_string());
    row("pods waited, all together", &|figures| duration_text(figures.waited));
    row("pods waiting at the end", &|figures| figures.waiting.to_string());
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!(
        "Cluster {cluster}: {}, {}. Simulated nodes boot in {boot_seconds} s.\n\n{}\nCompare the two simulated \
         columns. The recorded one shows how exact the simulation is.\n",
        counted(*plans, "plan"),
        period(*of),
        output::render(&table)
    )
}

fn view(comparison: &Comparison) -> Value {
    let figures = |figures: &Figures| {
        json!({
            "usd": micro(figures.micro_usd), "usdPerHourAtEnd": micro(figures.hourly.0), "nodesAtEnd": figures.nodes,
            "launches": figures.launched, "removals": figures.removed, "evictions": figures.evicted,
            "waitedSeconds": figures.waited.0 / 1000, "waitingAtEnd": figures.waiting,
        })
    };
    json!({
        "cluster": comparison.cluster, "from": comparison.period.map(|(from, _)| time(from)),
        "to": comparison.period.map(|(_, to)| time(to)), "plans": comparison.plans,
        "recorded": figures(&comparison.recorded), "samePools": figures(&comparison.same_pools),
        "otherPools": figures(&comparison.other_pools), "truncated": comparison.truncated,
    })
}

fn micro(micro_usd: i64) -> f64 {
    plimsoll_model::money::MicroUsdPerHour(micro_usd).usd()
}

fn usd(micro_usd: i64) -> String {
    format!("{:.4}", micro(micro_usd))
}

fn counted(count: usize, what: &str) -> String {
    let plural = match (count, what) {
        (1, _) => "",
        (_, "launch") => "es",
        _ => "s",
    };
    format!("{count} {what}{plural}")
}

fn period(period: Option<(Timestamp, Timestamp)>) -> String {
    period.map_or_else(|| "no plan".to_owned(), |(from, to)| format!("{} to {}", time(from), time(to)))
}

fn time(at: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(at.0).unwrap_or_default().to_string()
}
