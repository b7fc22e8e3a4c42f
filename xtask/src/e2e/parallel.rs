//! Which scenarios run at the same time: a scenario mostly waits, so that one after the other leaves the machine idle.

use super::scenarios::Scenario;
use anyhow::{Result, anyhow};
use std::sync::{Mutex, PoisonError};

/// Runs the scenarios, `jobs` of them at a time and then, one by one, those that must run alone. The results have the
/// order of the scenarios.
///
/// # Errors
/// The first error of `play`. Scenarios that have not started then do not start.
pub(super) fn run<T: Send>(
    chosen: &[&'static Scenario],
    jobs: usize,
    play: impl Fn(&'static Scenario) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let numbered = chosen.iter().enumerate();
    let (alone, beside): (Vec<_>, Vec<_>) = numbered.partition(|(_, scenario)| scenario.alone);
    let waiting = Mutex::new(beside.into_iter());
    let worker = || -> Result<Vec<(usize, T)>> {
        let mut played = Vec::new();
        loop {
            // In its own statement: the lock must not be held while a scenario runs.
            let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((number, scenario)) = next else { return Ok(played) };
            match play(scenario) {
                Ok(result) => played.push((number, result)),
                Err(error) => {
                    waiting.lock().unwrap_or_else(PoisonError::into_inner).by_ref().for_each(drop);
                    return Err(error);
                }
            }
        }
    };
    let results = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
    });
    let mut played = Vec::new();
    for result in results {
        played.extend(result.map_err(|_| anyhow!("a scenario panicked"))??);
    }
    for (number, scenario) in alone {
        played.push((number, play(scenario)?));
    }
    played.sort_by_key(|(number, _)| *number);
    Ok(played.into_iter().map(|(_, result)| result).collect())
}

#[cfg(test)]
mod tests {
    use super::super::scenarios::SCENARIOS;
    use super::*;
    use anyhow::bail;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn all() -> Vec<&'static Scenario> {
        SCENARIOS.iter().collect()
    }

    #[test]
    fn results_are_in_the_order_of_the_scenarios() -> Result<()> {
        let names: Vec<_> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
        for jobs in [0, 1, 3, 100] {
            assert_eq!(run(&all(), jobs, |scenario| Ok(scenario.name))?, names);
        }
        Ok(())
    }

    #[test]
    fn only_scenarios_that_may_run_beside_others_do() -> Result<()> {
        let running = AtomicUsize::new(0);
        let most = run(&all(), 3, |scenario| {
            let now = running.fetch_add(1, Ordering::SeqCst) + 1;
            std::thread::yield_now();
            running.fetch_sub(1, Ordering::SeqCst);
            Ok((scenario.alone, now))
        })?;
        assert!(most.iter().all(|&(alone, now)| now <= if alone { 1 } else { 3 }), "{most:?}");
        Ok(())
    }

    #[test]
    fn scenarios_run_at_the_same_time() -> Result<()> {
        let beside: Vec<_> = SCENARIOS.iter().filter(|scenario| !scenario.alone).take(2).collect();
        // Each waits for the other.
        let both = Barrier::new(2);
        run(&beside, 2, |_| Ok(both.wait()))?;
        Ok(())
    }

    #[test]
    fn after_an_error_no_scenario_starts() {
        let started = AtomicUsize::new(0);
        let result = run(&all(), 1, |scenario| -> Result<()> {
            started.fetch_add(1, Ordering::SeqCst);
            bail!("{} could not start", scenario.name)
        });
        assert_eq!(result.map_err(|error| error.to_string()), Err("harness could not start".to_owned()));
        assert_eq!(started.load(Ordering::SeqCst), 1);
    }
}
