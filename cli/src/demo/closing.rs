//! The final table.

use super::state::{Demo, clock, counted, seconds};
use crate::output;

/// State after each step, and the totals.
pub(super) fn table(demo: &Demo) -> String {
    let mut table =
        output::table(&["STEP", "PODS RUNNING", "PENDING", "NODES", "USD PER HOUR", "PENDING TO RUNNING", "TOOK"]);
    for result in demo.results() {
        table.add_row([
            result.step,
            result.running.to_string(),
            result.pending.to_string(),
            result.nodes.to_string(),
            result.hourly.to_string(),
            result.to_running.map_or_else(|| "-".to_owned(), seconds),
            seconds(result.took),
        ]);
    }
    let launched = demo.world.ec2.read(|cloud, _| cloud.ever_launched().len());
    format!(
        "\n{}\nPENDING TO RUNNING is the longest wait of a pod of the step; a node boots in 20 s and is ready 5 s later.\n\
         {} launched in {} simulated minutes, {} of real time. Simulated times count waits, not computing.\n",
        output::render(&table),
        counted(launched, "instance"),
        clock(demo.time()),
        seconds(demo.real.elapsed()),
    )
}
