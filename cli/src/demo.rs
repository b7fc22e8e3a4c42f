//! `plimsoll demo`: runs all services in this process, on an in-memory cluster and EC2, in virtual time.

mod closing;
mod measure;
mod script;
mod state;
mod view;

use crate::CommandError;
use std::io::IsTerminal;

/// Default simulated seconds per second in a terminal: slow enough to follow.
const WATCHABLE_SPEED: f64 = 25.0;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Seed of all random choices of the simulation.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
    /// Simulated seconds per second; 0 for no limit. In a terminal 25, elsewhere 0.
    #[arg(long, value_name = "FACTOR")]
    speed: Option<f64>,
}

/// Runs the demo. Events are printed as they happen; the result is the final table.
pub(crate) fn run(arguments: &Arguments) -> Result<String, CommandError> {
    let terminal = std::io::stdout().is_terminal();
    let speed = arguments.speed.unwrap_or(if terminal { WATCHABLE_SPEED } else { 0.0 });
    if !speed.is_finite() || speed < 0.0 {
        return Err(CommandError::BadInput(format!("--speed {speed} is not a factor of 0 or more")));
    }
    play(arguments.seed, view::View::new(terminal, speed)).1
}

/// The state after each step, and the final table or the error.
fn play(seed: u64, view: view::View) -> (Vec<state::StepResult>, Result<String, CommandError>) {
    let failed = |error: &dyn std::fmt::Display| (Vec::new(), Err(CommandError::Failed(error.to_string())));
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = match runtime.enable_time().start_paused(true).build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    runtime.block_on(async {
        let demo = match state::Demo::start(seed, view) {
            Ok(demo) => demo,
            Err(error) => return failed(&error),
        };
        let played = script::play(&demo).await;
        demo.end();
        let table = closing::table(&demo);
        let answer = match played {
            Ok(()) => Ok(table),
            Err(missing) => Err(CommandError::Failed(format!("{missing}\n{table}"))),
        };
        (demo.results(), answer)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::sync::Arc;
    use std::time::Duration;

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_demo_plays_to_its_end_and_says_what_it_shows() {
        let paper = Paper::default();
        let view = view::View::to(Box::new(paper.clone()), false, 0.0);
        let (results, answer) = play(1, view);
        let text = String::from_utf8(paper.0.lock().clone()).unwrap();
        let text = anstream::adapter::strip_str(&text).to_string();
        let table = answer.unwrap();

        // Singular and plural.
        for wrong in ["1 evictions", "1 replicas", "1 pods", "1 nodes"] {
            assert!(!text.contains(wrong), "{wrong}: {text}");
        }
        // Contains only the reason of the pool with the limit.
        let event = text.lines().find(|line| line.contains("Event of web-")).unwrap();
        assert!(event.contains("NodePool \"default\": LimitReached") && !event.contains("backend"), "{event}");
        // Objects in a step were introduced before.
        let (introduction, rest) = text.split_once("Scale up").unwrap();
        assert!(introduction.contains("NodePool backend") && introduction.contains("m6g.xlarge"), "{introduction}");
        assert!(rest.contains("as the NodePool backend asks: "), "{rest}");

        // Waits are measured in simulated time: no node boots in less than 20 s.
        let waits: Vec<Duration> = results.iter().filter_map(|result| result.to_running).collect();
        assert!(waits.len() >= 3 && waits.iter().all(|wait| *wait >= Duration::from_secs(20)), "{waits:?}");
        assert!(table.contains("PENDING TO RUNNING") && !table.contains(" 0 ms"), "{table}");
        // A step ends when its nodes are removed: there are no more nodes than pods after the interruption.
        let after = results.iter().find(|result| result.step == "Spot interruption").unwrap();
        assert!(after.nodes <= after.running, "{after:?}");
    }
}
