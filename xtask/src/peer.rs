//! The same random cases for Plimsoll's solver and for Karpenter's scheduler (tests/peers/karpenter): Plimsoll has to place the same
//! pods or more, and to pay the same or less. Each exception is told with its reason: what is wrong with Karpenter's plan, or what
//! docs/agreement.md says.

mod answer;
mod judge;
mod known;
mod program;
mod record;
mod report;

use anyhow::{Context as _, Result, bail};
use plimsoll_solver::Move;
use plimsoll_workloads::{Profile, case};
use program::Program;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use record::Record;

/// Several of Karpenter's answers: it breaks ties between equal pods at random.
const SEEDS_DEFAULT: u64 = 5;

/// What `cargo xtask peer` takes.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  cargo xtask peer                       1,000 cases from seed 1; Karpenter's answers are kept for the next run
  cargo xtask peer --only 17,42          these two alone, in full, their files kept below the work folder
  cargo xtask peer --cases 200 --seed 5000")]
pub(crate) struct Args {
    /// How many cases.
    #[arg(long, default_value_t = 1000, value_name = "N")]
    cases: u64,
    /// The first case's seed; the others follow.
    #[arg(long, default_value_t = 1, value_name = "S")]
    seed: u64,
    /// Only the cases of these seeds, with their files and both plans kept.
    #[arg(long, value_delimiter = ',', value_name = "SEED")]
    only: Vec<u64>,
    /// Answers of Karpenter to compare with the best of.
    #[arg(long, default_value_t = SEEDS_DEFAULT, value_name = "N")]
    seeds: u64,
    /// Plan without these repairs, to see what they are worth (`cargo xtask moves`).
    #[arg(long, value_delimiter = ',', value_name = "MOVE")]
    without: Vec<Move>,
    /// Where answers and the report go (default: peer in cargo's target folder). A run that was stopped goes on from there.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Compares, and writes `report.md` into the work folder.
///
/// # Errors
/// If the peer cannot be built or started, or if a case has an exception that docs/agreement.md gives no reason for.
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
            say(&format!("files: {}\n{}", folder.display(), report::in_full(&judgement)));
        } else if judgement.is_exception() {
            say(&report::line(&judgement));
        }
        judgements.push(judgement);
        if (done + 1).is_multiple_of(100) {
            say(&format!("{} of {} cases, {:.0} s", done + 1, wanted.len(), started.elapsed().as_secs_f64()));
        }
    }
    let path = dir.join("report.md");
    std::fs::write(&path, report::whole(&judgements, seeds, &record))?;
    say(&report::summary(&judgements));
    say(&format!("report: {}", path.display()));
    let gone = |it: &&judge::Judgement| !it.is_exception() && known.contains_key(&it.seed);
    let gone: Vec<String> = judgements.iter().filter(gone).map(|it| it.seed.to_string()).collect();
    if !gone.is_empty() {
        say(&format!("no longer exceptions, to be taken out of docs/agreement.md: {}", gone.join(", ")));
    }
    let unexplained = judgements.iter().filter(|it| it.is_unexplained()).count();
    if unexplained > 0 {
        bail!("{unexplained} of {} cases have an exception without a reason", judgements.len());
    }
    Ok(())
}

/// Progress, for people.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "peer: {text}");
}
