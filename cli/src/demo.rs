//! `plimsoll demo`: all of Plimsoll in this process, on a cluster and an EC2 in memory, in virtual time.

mod closing;
mod measure;
mod script;
mod stage;
mod view;

use crate::CommandError;
use std::io::IsTerminal;

/// Simulated seconds per second in a terminal, unless told otherwise: slow enough to follow.
const WATCHABLE_SPEED: f64 = 25.0;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Fixes all that is left to chance in the simulation.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
    /// Simulated seconds per second; 0 for as fast as it goes. In a terminal 25, elsewhere 0.
    #[arg(long, value_name = "FACTOR")]
    speed: Option<f64>,
}

/// Plays the demo. What happens is printed as it happens; the answer is the closing table.
pub(crate) fn run(arguments: &Arguments) -> Result<String, CommandError> {
    let terminal = std::io::stdout().is_terminal();
    let speed = arguments.speed.unwrap_or(if terminal { WATCHABLE_SPEED } else { 0.0 });
    if !speed.is_finite() || speed < 0.0 {
        return Err(CommandError::BadInput(format!("--speed {speed} is not a factor of 0 or more")));
    }
    let failed = |error: &dyn std::fmt::Display| CommandError::Failed(error.to_string());
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().map_err(|error| failed(&error))?;
    runtime.block_on(async {
        let stage =
            stage::Stage::set(arguments.seed, view::View::new(terminal, speed)).map_err(|error| failed(&error))?;
        let played = script::play(&stage).await;
        stage.end();
        let table = closing::table(&stage);
        match played {
            Ok(()) => Ok(table),
            Err(missing) => Err(CommandError::Failed(format!("{missing}\n{table}"))),
        }
    })
}
