//! Consolidation to the end on generated clusters, compared with Karpenter's disruption methods.

use super::table::{Table, number, percent};
use super::{Bench, PROGRESS};
use anyhow::{Context as _, Result};
use plimsoll_model::identity::ContentHasher;
use plimsoll_workloads::bench::{Underused, underused};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Kinds of clusters.
const KINDS: [(&str, Underused); 6] = [
    ("all may move", Underused { protected: 0, ..PLAIN }),
    ("do-not-disrupt pods on 27 %", Underused { protected: 27, ..PLAIN }),
    ("half Spot", Underused { spot: 50, ..PLAIN }),
    ("all Spot", Underused { spot: 100, ..PLAIN }),
    ("three pools", Underused { pools: 3, ..PLAIN }),
    ("budget of 10 %", Underused { budget: 10, ..PLAIN }),
];
const PLAIN: Underused = Underused { nodes: 0, protected: 0, spot: 0, budget: 100, pools: 1 };

/// Maximum excess of the bill over Karpenter's in one cluster.
const ABOVE_PEER: f64 = 0.005;
/// Maximum excess of the bill over the cost of a new cluster, if all pods may move.
const ABOVE_ANEW: f64 = 0.02;
/// Maximum average excess of the bill over the lower bound, if all pods may move.
const ABOVE_BOUND: f64 = 0.05;
/// Maximum number of moves of one pod.
const MOVES: f64 = 2.0;

/// Results of one cluster.
struct Outcome {
    kind: &'static str,
    nodes: usize,
    ours: Value,
    theirs: Option<Value>,
}

pub(super) fn run(bench: &Bench) -> Result<Vec<Table>> {
    let mut outcomes = Vec::new();
    let args = &bench.args;
    let wanted = |kind: &str| args.kinds.is_empty() || args.kinds.iter().any(|part| kind.contains(part.as_str()));
    for (kind, options) in KINDS.into_iter().filter(|(kind, _)| wanted(kind)) {
        for nodes in &args.nodes {
            for seed in args.first_seed..args.first_seed + args.clusters {
                let options = Underused { nodes: *nodes, ..options };
                PROGRESS.say(&format!("consolidation, {kind}, {nodes} nodes, seed {seed}"));
                let ours = ours(bench, seed, options)?;
                let ask = bench.measure.with_peer() && *nodes <= args.peer_most_nodes;
                let theirs = if ask { Some(theirs(bench, seed, options)?) } else { None };
                outcomes.push(Outcome { kind, nodes: *nodes, ours, theirs });
            }
        }
    }
    Ok(vec![table(bench, &outcomes)])
}

fn ours(bench: &Bench, seed: u64, options: Underused) -> Result<Value> {
    let numbers = [
        ("--seed", usize::try_from(seed)?),
        ("--nodes", options.nodes),
        ("--protected", options.protected),
        ("--spot", options.spot),
        ("--budget", options.budget),
        ("--pools", options.pools),
    ];
    let mut arguments = vec!["consolidate".to_owned()];
    if bench.args.kube_scheduler_landing {
        arguments.push("--kube-scheduler-landing".to_owned());
    }
    arguments.extend(numbers.iter().flat_map(|(name, value)| [(*name).to_owned(), value.to_string()]));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    bench.measure.run(&arguments, &[])?.pop().context("plimsoll-measure printed nothing")
}

/// Results of Karpenter's methods for the same cluster. They take minutes, so they are cached as long as the cluster
/// and Karpenter are the same. Karpenter's CPU seconds are then those of the first run. A change of `kubesched` needs
/// another folder.
fn theirs(bench: &Bench, seed: u64, options: Underused) -> Result<Value> {
    let dir = bench.measure.dir.join("consolidation");
    underused(seed, options).write(&dir)?;
    let peer = bench.measure.peer().context("Karpenter is disabled")?;
    let cached = cache_file(bench, peer, &dir)?;
    if cached.exists() {
        let text = std::fs::read(&cached).with_context(|| format!("reading {}", cached.display()))?;
        return Ok(serde_json::from_slice(&text)?);
    }
    let wall = format!("{}s", bench.args.peer_wall);
    let mut flags = vec![OsStr::new("-max-wall"), OsStr::new(&wall)];
    if bench.args.kube_scheduler_landing {
        flags.extend([OsStr::new("-lander"), bench.measure.program().as_os_str()]);
    }
    let result = bench.measure.run_peer("consolidate", &dir, &flags)?;
    std::fs::write(&cached, result.to_string()).with_context(|| format!("writing {}", cached.display()))?;
    Ok(result)
}

/// Where the results of the program `peer` for the cluster in `dir` are cached. The program's path changes with its
/// code.
fn cache_file(bench: &Bench, peer: &Path, dir: &Path) -> Result<PathBuf> {
    let cache = dir.with_extension("answers");
    std::fs::create_dir_all(&cache).with_context(|| format!("making {}", cache.display()))?;
    let mut hasher = ContentHasher::new("consolidation");
    for file in ["catalog.json", "manifests/cluster.json"].map(|file| dir.join(file)) {
        hasher.part(&std::fs::read(&file).with_context(|| format!("reading {}", file.display()))?);
    }
    hasher.text(&peer.display().to_string());
    hasher.text(&bench.args.peer_wall.to_string());
    if bench.args.kube_scheduler_landing {
        hasher.text("kube-scheduler landing");
    }
    Ok(cache.join(format!("{}.json", hasher.hex(32))))
}

fn table(bench: &Bench, outcomes: &[Outcome]) -> Table {
    let mut table = Table::new(
        "Consolidation",
        &[
            "clusters",
            "count",
            "before",
            "USD/h",
            "anew",
            "bound",
            "nodes",
            "moved",
            "most",
            "rounds",
            "seconds",
            "Karpenter USD/h",
            "bill",
            "worst",
            "moved",
            "seconds",
        ],
    );
    for (kind, _) in KINDS {
        for nodes in &bench.args.nodes {
            let clusters: Vec<&Outcome> =
                outcomes.iter().filter(|outcome| outcome.kind == kind && outcome.nodes == *nodes).collect();
            if clusters.is_empty() {
                continue;
            }
            table.row(row(&format!("{nodes} nodes, {kind}"), &clusters));
        }
    }
    table.note(
        "Averages over clusters; times are for planning only, in one process. anew: cost of the plan if all movable pods are pending and the \
         nodes that must stay exist; bound: lower bound of that plan. Moved pods go to the planned node if kube-scheduler's filters pass \
         there, and to kube-scheduler's best node otherwise. Karpenter's go where its results place them. With \
         --kube-scheduler-landing, all go to kube-scheduler's best node. most: moves of one pod. bill: Plimsoll's compared \
         with Karpenter's; worst: in one cluster. A round is five minutes, so pods that moved still count as recent in the next round."
            .to_owned(),
    );
    aims(&mut table, outcomes);
    table
}

fn row(title: &str, own: &[&Outcome]) -> Vec<String> {
    let mean = |key: &str| average(own.iter().map(|outcome| number(&outcome.ours, key)));
    let most = |key: &str| own.iter().map(|outcome| number(&outcome.ours, key)).fold(0.0, f64::max);
    let seconds = average(own.iter().map(|outcome| number(&outcome.ours["seconds"], "all")));
    let mut cells = vec![
        title.to_owned(),
        own.len().to_string(),
        format!("{:.2}", mean("hourlyBefore")),
        format!("{:.2}", mean("hourlyAfter")),
        percent(average(own.iter().map(|outcome| above(outcome, "anew")))),
        percent(average(own.iter().map(|outcome| above(outcome, "anewBound")))),
        format!("{:.0}", mean("nodesAfter")),
        format!("{:.0}", mean("evictions")),
        format!("{:.0}", most("mostMoves")),
        format!("{:.1}", mean("rounds")),
        format!("{seconds:.2}"),
    ];
    let both: Vec<(&Outcome, &Value)> =
        own.iter().filter_map(|outcome| Some((*outcome, outcome.theirs.as_ref()?))).collect();
    if both.is_empty() {
        cells.extend(std::iter::repeat_n("-".to_owned(), 5));
        return cells;
    }
    let theirs = |key: &str| average(both.iter().map(|(_, theirs)| number(theirs, key)));
    let bills = || both.iter().map(|(outcome, theirs)| bill(outcome, theirs));
    cells.extend([
        format!("{:.2}", theirs("hourlyAfter")),
        percent(average(bills())),
        percent(bills().fold(f64::NEG_INFINITY, f64::max)),
        format!("{:.0}", theirs("evictions")),
        format!("{:.1}", theirs("cpuSeconds")),
    ]);
    cells
}

/// Plimsoll's bill relative to Karpenter's.
fn bill(outcome: &Outcome, theirs: &Value) -> f64 {
    number(&outcome.ours, "hourlyAfter") / number(theirs, "hourlyAfter") - 1.0
}

/// Plimsoll's bill relative to another figure of the cluster.
fn above(outcome: &Outcome, key: &str) -> f64 {
    number(&outcome.ours, "hourlyAfter") / number(&outcome.ours, key) - 1.0
}

fn average(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.collect();
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn aims(table: &mut Table, outcomes: &[Outcome]) {
    let sum = |key: &str| outcomes.iter().map(|outcome| number(&outcome.ours, key)).sum::<f64>();
    let wrong = sum("violations") + sum("stranded");
    table.aim(wrong == 0.0, &format!("plans that fail a check, and pods without a node after a step: {wrong:.0}."));
    let most = outcomes.iter().map(|outcome| number(&outcome.ours, "mostMoves")).fold(0.0, f64::max);
    table.aim(most <= MOVES, &format!("no pod is moved more than {MOVES:.0} times: at most {most:.0}."));
    let free = || outcomes.iter().filter(|outcome| outcome.kind == KINDS[0].0);
    if free().next().is_some() {
        let anew = free().map(|outcome| above(outcome, "anew")).fold(f64::NEG_INFINITY, f64::max);
        table.aim(anew <= ABOVE_ANEW, &format!("all may move: at most 2 % above a new cluster: {}.", percent(anew)));
        let bound = average(free().map(|outcome| above(outcome, "anewBound")));
        table.aim(bound <= ABOVE_BOUND, &format!("all may move: on average 5 % above the bound: {}.", percent(bound)));
    }
    let both = || outcomes.iter().filter_map(|outcome| Some((outcome, outcome.theirs.as_ref()?)));
    if both().next().is_some() {
        let worst = both().map(|(outcome, theirs)| bill(outcome, theirs)).fold(f64::NEG_INFINITY, f64::max);
        table.aim(worst <= ABOVE_PEER, &format!("bill at most 0.5 % above Karpenter's: {}.", percent(worst)));
        let moved =
            average(both().map(|(outcome, it)| number(&outcome.ours, "evictions") / number(it, "evictions").max(1.0)));
        table.aim(moved <= 1.0, &format!("no more evictions than Karpenter on average: {moved:.2} times as many."));
    }
}
