//! The final table.

use super::stage::{Stage, clock, counted, seconds};
use crate::output;

/// State after each step, and the totals.
pub(super) fn table(stage: &Stage) -> String {
    let mut table =
        output::table(&["STEP", "PODS RUNNING", "PENDING", "NODES", "USD PER HOUR", "PENDING TO RUNNING", "TOOK"]);
    for standing in stage.standings() {
        table.add_row([
            standing.step,
            standing.running.to_string(),
            standing.pending.to_string(),
            standing.nodes.to_string(),
            standing.hourly.to_string(),
            standing.to_running.map_or_else(|| "-".to_owned(), seconds),
            seconds(standing.took),
        ]);
    }
    let launched = stage.world.ec2.read(|cloud, _| cloud.ever_launched().len());
    format!(
        "\n{}\nPENDING TO RUNNING is the longest wait of a pod of the step; a node boots in 20 s and is ready 5 s later.\n\
         {} launched in {} simulated minutes, {} of real time. Simulated times count waits, not computing.\n",
        output::render(&table),
        counted(launched, "instance"),
        clock(stage.time()),
        seconds(stage.real.elapsed()),
    )
}
