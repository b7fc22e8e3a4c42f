//! Runs the same random cases with Plimsoll's solver and with Karpenter's scheduler (tests/peers/karpenter): Plimsoll
//! must place at least as many pods, and must not cost more. Each exception is reported with its reason: an error of
//! Karpenter's plan, or the entry in docs/agreement.md.

mod answer;
mod judge;
mod known;
mod program;
mod record;
mod report;

use crate::progress::Reporter;
use anyhow::{Context as _, Result, bail};
use plimsoll_solver::Move;
use plimsoll_workloads::{Profile, case};
use program::Program;
use std::path::PathBuf;
use std::time::Instant;

use record::Record;

const PROGRESS: Reporter = Reporter("peer");

/// Number of Karpenter's results per case, because it breaks ties between equal pods at random.
const SEEDS_DEFAULT: u64 = 5;

/// Arguments of `cargo xtask peer`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  cargo xtask peer                       1,000 cases from seed 1; Karpenter's results are cached
  cargo xtask peer --only 17,42          both plans in full, with their files in the work folder
  cargo xtask peer --cases 200 --seed 5000")]
pub(crate) struct Args {
    /// Number of cases.
    #[arg(long, default_value_t = 1000, value_name = "N")]
    cases: u64,
    /// Seed of the first case; the others follow.
    #[arg(long, default_value_t = 1, value_name = "S")]
    seed: u64,
    /// Only the cases of these seeds; their files and both plans are stored.
    #[arg(long, value_delimiter = ',', value_name = "SEED")]
    only: Vec<u64>,
    /// Number of Karpenter's results; the best counts.
    #[arg(long, default_value_t = SEEDS_DEFAULT, value_name = "N")]
    seeds: u64,
    /// Plan without these repairs, to measure their effect (`cargo xtask moves`).
    #[arg(long, value_delimiter = ',', value_name = "MOVE")]
    without: Vec<Move>,
    /// Folder for results and the report (default: peer in cargo's target folder). An interrupted run resumes from it.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Compares the plans, and writes `report.md` to the work folder.
///
/// # Errors
/// If the peer cannot be built or started, or if a case has an exception without a reason in docs/agreement.md.
pub(crate) fn run(args: Args) -> Result<()> {
    let Args { cases, seed, only, seeds, without, dir } = args;
    let (root, target) = crate::workspace::folders()?;
    let dir = dir.unwrap_or_else(|| target.join("peer"));
    std::fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    let mut record = Record::open(&dir.join("answers.jsonl"), seeds)?;
    let mut program = Program::new(&root, &dir);
    let known = known::read(&root)?;
    let wanted: Vec<u64> = if only.is_empty() { (seed..seed.saturating_add(cases)).collect() } else { only.clone() };
    let mut judgements = Vec::new();
    let started = Instant::now();
    for (done, seed) in wanted.iter().enumerate() {
        let case = case(*seed, &Profile::karpenter());
        let question = case.question()?;
        let answer = match record.find(&case)? {
            Some(answer) => answer,
            None => {
                let answer = program.ask(&case, seeds)?;
                record.keep(&case, &answer)?;
                answer
            }
        };
        let mut judgement = judge::judge(&case, &question, &answer, &without);
        judgement.note(known.get(seed));
        if !only.is_empty() {
            let folder = dir.join(seed.to_string());
            case.write(&folder)?;
            PROGRESS.say(&format!("files: {}\n{}", folder.display(), report::in_full(&judgement)));
        } else if judgement.is_exception() {
            PROGRESS.say(&report::line(&judgement));
        }
        judgements.push(judgement);
        if (done + 1).is_multiple_of(100) {
            PROGRESS.say(&format!("{} of {} cases, {:.0} s", done + 1, wanted.len(), started.elapsed().as_secs_f64()));
        }
    }
    let path = dir.join("report.md");
    std::fs::write(&path, report::whole(&judgements, seeds, &record))?;
    PROGRESS.say(&report::summary(&judgements));
    PROGRESS.say(&format!("report: {}", path.display()));
    let gone = |it: &&judge::Judgement| !it.is_exception() && known.contains_key(&it.seed);
    let gone: Vec<String> = judgements.iter().filter(gone).map(|it| it.seed.to_string()).collect();
    if !gone.is_empty() {
        PROGRESS.say(&format!("no longer exceptions, remove from docs/agreement.md: {}", gone.join(", ")));
    }
    let unexplained = judgements.iter().filter(|it| it.is_unexplained()).count();
    if unexplained > 0 {
        bail!("{unexplained} of {} cases have an exception without a reason", judgements.len());
    }
    Ok(())
}
