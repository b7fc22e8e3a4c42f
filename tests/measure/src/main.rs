//! Measures the solver, one workload in one process, so that peak memory is its own. `cargo xtask bench` runs it.

mod gaps;
mod make;
mod solve;
mod workload;

use clap::Parser;
use std::io::Write as _;

/// Makes workloads and measures what the solver does with them. All output is JSON, one object on a line.
#[derive(Debug, Parser)]
#[command(name = "plimsoll-measure")]
enum Command {
    /// Write a workload below a folder: request.bin for `solve`, and, on request, manifests and catalog for other planners.
    Make(make::Arguments),
    /// Plan what `make` wrote: time for each step, cost, lower bound and peak memory.
    Solve(solve::Arguments),
    /// Plan many random instances of 10 to 3,000 pods on the real catalog: cost and lower bound of each.
    Gaps(gaps::Arguments),
}

fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::Make(arguments) => make::run(&arguments),
        Command::Solve(arguments) => solve::run(&arguments),
        Command::Gaps(arguments) => gaps::run(&arguments),
    }
}

/// Writes one line of output.
fn tell(value: &serde_json::Value) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{value}")?;
    out.flush()?;
    Ok(())
}
