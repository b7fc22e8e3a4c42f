//! Outcomes of the cases: stored as lines, so that a run can resume, and summarized.

use super::case::{Case, Planned};
use anyhow::{Context as _, Result};
use plimsoll_model::plan::Plan;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// One line per case.
const STATE: &str = "cases.jsonl";
/// The readable report.
const REPORT: &str = "report.txt";

/// A pod that the plan places and kube-scheduler does not bind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Unbound {
    pub(super) pod: String,
    /// Planned node.
    pub(super) node: String,
    /// Message of kube-scheduler.
    pub(super) message: String,
}

/// A pod that the plan calls unschedulable and kube-scheduler binds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Bindable {
    pub(super) pod: String,
    pub(super) on: String,
    /// The added node, if any.
    pub(super) what: String,
}

/// Outcome of a case.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) seed: u64,
    pub(super) title: String,
    /// Number of nodes that the plan launches.
    pub(super) nodes: usize,
    /// Number of pods that the plan places.
    pub(super) wanted: usize,
    /// Number of pods that the plan leaves unschedulable.
    pub(super) left: usize,
    /// Number of nodes that were tested for unschedulable pods.
    pub(super) probes: usize,
    pub(super) unbound: Vec<Unbound>,
    /// Pods of a case that disagrees that are bound to other nodes than planned.
    #[serde(default)]
    pub(super) strayed: Vec<String>,
    /// Number of pods that were not bound by the nominations of the first plan.
    #[serde(default)]
    pub(super) wayward: usize,
    /// Number of further plans for these pods.
    #[serde(default)]
    pub(super) rounds: usize,
    /// Whether a further plan needs another node for such a pod.
    #[serde(default)]
    pub(super) needs_node: bool,
    /// Number of stranding runs and of all runs of the solver's replay; only for a case that disagrees.
    #[serde(default)]
    pub(super) foretold: Option<(usize, usize)>,
    /// Whether all pods are bound to their planned nodes, one at a time; not tested if all were bound anyway.
    pub(super) as_planned: Option<bool>,
    /// Pods that are not bound even one at a time.
    pub(super) against: Vec<Unbound>,
    pub(super) bindable: Vec<Bindable>,
    /// Why the case could not be run.
    pub(super) error: Option<String>,
}

impl Outcome {
    pub(super) fn new(seed: u64, title: &str) -> Outcome {
        Outcome { seed, title: title.to_owned(), ..Outcome::default() }
    }

    pub(super) fn agrees(&self) -> bool {
        self.unbound.is_empty() && self.bindable.is_empty() && self.error.is_none()
    }
}

/// Outcomes by seed, stored on disk.
#[derive(Debug)]
pub(super) struct State {
    dir: PathBuf,
    pub(super) outcomes: BTreeMap<u64, Outcome>,
}

impl State {
    /// Reads the outcomes of an earlier run in `dir`.
    pub(super) fn open(dir: &Path) -> Result<State> {
        fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
        let path = dir.join(STATE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
        };
        // An incomplete line belongs to a case that was not finished.
        let read = text.lines().filter_map(|line| serde_json::from_str::<Outcome>(line).ok());
        Ok(State { dir: dir.to_owned(), outcomes: read.map(|outcome| (outcome.seed, outcome)).collect() })
    }

    /// Whether the case was completed.
    pub(super) fn has(&self, seed: u64) -> bool {
        self.outcomes.get(&seed).is_some_and(|outcome| outcome.error.is_none())
    }

    /// Stores an outcome, and for a disagreement the data to analyse it.
    pub(super) fn keep(&mut self, outcome: Outcome, case: &Case, planned: Option<&Planned>) -> Result<()> {
        let path = self.dir.join(STATE);
        let mut file = fs::File::options().create(true).append(true).open(&path)?;
        writeln!(file, "{}", serde_json::to_string(&outcome)?)
            .with_context(|| format!("writing {}", path.display()))?;
        let folder = self.dir.join(format!("seed-{}", outcome.seed));
        if outcome.agrees() {
            if folder.exists() {
                fs::remove_dir_all(&folder)?;
            }
        } else {
            fs::create_dir_all(&folder)?;
            fs::write(folder.join("manifests.json"), &case.manifests)?;
            fs::write(folder.join("catalog.json"), plimsoll_catalog::file::render(&case.catalog))?;
            let mut told = told(&outcome);
            if let Some(planned) = planned {
                told.push_str(&plan_in_words(&planned.plan));
            }
            fs::write(folder.join("told.txt"), told)?;
        }
        self.outcomes.insert(outcome.seed, outcome);
        Ok(())
    }

    /// Summarizes the outcomes, also on disk.
    pub(super) fn summary(&self, seeds: &[u64]) -> Result<String> {
        let all: Vec<&Outcome> = seeds.iter().filter_map(|seed| self.outcomes.get(seed)).collect();
        let text = sums(&all);
        let mut report = text.clone();
        for outcome in all.iter().filter(|outcome| !outcome.agrees()) {
            report.push('\n');
            report.push_str(&told(outcome));
        }
        let path = self.dir.join(REPORT);
        fs::write(&path, report).with_context(|| format!("writing {}", path.display()))?;
        Ok(text)
    }
}

fn sums(all: &[&Outcome]) -> String {
    let played: Vec<&&Outcome> = all.iter().filter(|it| it.error.is_none()).collect();
    let count = |test: &dyn Fn(&Outcome) -> bool| played.iter().filter(|it| test(it)).count();
    let sum = |value: &dyn Fn(&Outcome) -> usize| played.iter().map(|it| value(it)).sum::<usize>();
    let bound = count(&|it| it.unbound.is_empty());
    let as_planned = count(&|it| it.as_planned != Some(false));
    let at_first = count(&|it| it.wayward == 0 && it.unbound.is_empty());
    let with_left = count(&|it| it.left > 0 && it.unbound.is_empty());
    let right = count(&|it| it.left > 0 && it.unbound.is_empty() && it.bindable.is_empty());
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "{} cases run, {} failed to run; {} nodes launched",
        played.len(),
        all.len() - played.len(),
        sum(&|it| it.nodes)
    );
    let _ = writeln!(
        text,
        "every pod that the plan places is bound: {bound} cases ({}); in some order: {as_planned} ({})",
        percent(bound, played.len()),
        percent(as_planned, played.len()),
    );
    let _ = writeln!(
        text,
        "  by the first plan's nominations alone: {at_first} ({}); {} pods were planned again, and {} cases would have needed another node",
        percent(at_first, played.len()),
        sum(&|it| it.wayward),
        count(&|it| it.needs_node),
    );
    let _ = writeln!(
        text,
        "  of {} pods, {} were not bound, {} in no order that was tried",
        sum(&|it| it.wanted),
        sum(&|it| it.unbound.len()),
        sum(&|it| it.against.len()),
    );
    let _ = writeln!(
        text,
        "no pod that the plan leaves could be bound: {right} of {with_left} cases with such pods ({}); {} pods, {} nodes tried",
        percent(right, with_left),
        sum(&|it| it.left),
        sum(&|it| it.probes),
    );
    text
}

fn percent(part: usize, whole: usize) -> String {
    #[expect(clippy::cast_precision_loss, reason = "thousands")]
    let percent = if whole == 0 { 100.0 } else { part as f64 * 100.0 / whole as f64 };
    format!("{percent:.2} %")
}

fn told(outcome: &Outcome) -> String {
    let mut text = format!("{}\n", outcome.title);
    for it in &outcome.unbound {
        let _ = writeln!(text, "  not bound: {}, planned for {}: {}", it.pod, it.node, it.message);
    }
    for it in &outcome.strayed {
        let _ = writeln!(text, "  bound elsewhere: {it}");
    }
    if outcome.wayward > 0 {
        let _ = writeln!(
            text,
            "  {} pods not bound by the first plan's nominations; planned again {} times{}",
            outcome.wayward,
            outcome.rounds,
            if outcome.needs_node { ", and another node is needed" } else { "" },
        );
    }
    if let Some((stranding, runs)) = outcome.foretold {
        let _ = writeln!(text, "  the replay strands a pod in {stranding} of {runs} runs");
    }
    match outcome.as_planned {
        Some(true) => text.push_str("  one at a time, all are bound where the plan has them\n"),
        Some(false) => {
            for it in &outcome.against {
                let _ = writeln!(text, "  in no order: {}, planned for {}: {}", it.pod, it.node, it.message);
            }
        }
        None => {}
    }
    for it in &outcome.bindable {
        let _ = writeln!(text, "  unschedulable in the plan, but bound: {} on {}, {}", it.pod, it.on, it.what);
    }
    if let Some(error) = &outcome.error {
        let _ = writeln!(text, "  failed to run: {error}");
    }
    text
}

fn plan_in_words(plan: &Plan) -> String {
    let mut text = String::from("\nplan:\n");
    for (number, launch) in plan.launches.iter().enumerate() {
        let pods: Vec<&str> = launch.pods.iter().map(|pod| pod.name.as_str()).collect();
        let first = launch.offerings.first().map(|it| format!("{} {} {}", it.instance_type, it.zone, it.capacity_type));
        let first = first.unwrap_or_default();
        let requirements: Vec<String> = launch.requirements.iter().map(ToString::to_string).collect();
        let _ = writeln!(
            text,
            "  launch-{number} of {}: {first} and {} more; {}\n    {}",
            launch.node_pool,
            launch.offerings.len().saturating_sub(1),
            requirements.join(", "),
            pods.join(" "),
        );
    }
    for placement in &plan.placements {
        let pods: Vec<&str> = placement.pods.iter().map(|pod| pod.name.as_str()).collect();
        let _ = writeln!(text, "  on {}: {}", placement.node, pods.join(" "));
    }
    for it in &plan.unschedulable {
        let _ = writeln!(text, "  unschedulable: {}", it.pod.name);
        for reason in &*it.reasons {
            let _ = writeln!(text, "    {} {}: {}", reason.node_pool, reason.code.as_str(), reason.message);
        }
    }
    for it in &plan.ignored {
        let _ = writeln!(text, "  ignored: {}: {}", it.pod, it.reason);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::catalog::Catalog;

    fn case(seed: u64) -> Case {
        Case { seed, title: format!("seed {seed}"), manifests: b"{}".to_vec(), catalog: Catalog::default() }
    }

    #[test]
    fn a_run_goes_on_where_it_was_broken_off() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let mut state = State::open(folder.path())?;
        let mut wrong = Outcome::new(2, "seed 2");
        wrong.bindable.push(Bindable { pod: "a/b".to_owned(), on: "n".to_owned(), what: "as things are".to_owned() });
        let mut broken = Outcome::new(3, "seed 3");
        broken.error = Some("the API server is not reachable".to_owned());
        state.keep(Outcome::new(1, "seed 1"), &case(1), None)?;
        state.keep(wrong, &case(2), None)?;
        state.keep(broken, &case(3), None)?;
        fs::File::options().append(true).open(folder.path().join(STATE))?.write_all(b"{\"seed\": 4, \"ti")?;
        let again = State::open(folder.path())?;
        // Failed and incomplete cases run again.
        assert_eq!([1, 2, 3, 4].map(|seed| again.has(seed)), [true, true, false, false]);
        let report = fs::read_to_string(folder.path().join("seed-2/told.txt"))?;
        assert!(report.contains("unschedulable in the plan, but bound: a/b on n, as things are"), "{report}");
        assert!(!folder.path().join("seed-1").exists());
        assert!(again.summary(&[1, 2, 3])?.starts_with("2 cases run, 1 failed to run"));
        Ok(())
    }
}
