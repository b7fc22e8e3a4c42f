//! Karpenter's own benchmark mix.

use super::table::{Table, marked, median, number, numbers, percent, percent_at, seconds};
use super::{Bench, PROGRESS};
use anyhow::Result;
use plimsoll_workloads::bench::{Types, karpenter_mix};
use serde_json::Value;

/// Number of plans of Plimsoll; the median counts.
const REPEAT: u32 = 5;
/// Seed of the sizes and labels of the pods.
const SEED: u64 = 1;
/// Relative tolerance for equal costs, because costs are printed in USD.
const CHEAP: f64 = 1e-9;

/// Minimum speed relative to Karpenter, from [`FROM`] pods on.
const FASTER: [(&str, f64); 2] = [("400 synthetic", 100.0), ("us-east-1", 300.0)];
const FROM: usize = 5_000;

/// A size at which both were measured.
struct Both {
    title: &'static str,
    pods: usize,
    faster: f64,
    cost: f64,
}

pub(super) fn run(bench: &Bench) -> Result<Vec<Table>> {
    let mut table = Table::new(
        "Karpenter's mix",
        &[
            "types, pods",
            "Plimsoll",
            "pods/s",
            "Karpenter",
            "pods/s",
            "times faster",
            "after Solve",
            "seeds",
            "Plimsoll USD/h",
            "Karpenter USD/h",
            "cost",
            "gap",
            "MiB",
            "Karpenter MiB",
        ],
    );
    let mut measured = Vec::new();
    for (types, title) in [(Types::Synthetic(400), FASTER[0].0), (Types::BuiltIn, FASTER[1].0)] {
        for pods in &bench.args.sizes {
            PROGRESS.say(&format!("Karpenter's mix, {pods} pods, {title}"));
            let case = karpenter_mix(SEED, *pods, types);
            let with_peer = bench.measure.with_peer() && *pods <= bench.args.peer_most;
            let ours = bench.measure.plan(&case, REPEAT, with_peer)?;
            let once = types == Types::BuiltIn && bench.args.peer_once_from.is_some_and(|from| *pods >= from);
            let seeds = if once { 1 } else { bench.args.peer_seeds };
            let cut = *pods <= bench.args.peer_cut_most;
            let theirs = if with_peer { Some(Peer::new(&bench.measure.ask_peer(seeds, cut)?)) } else { None };
            table.row(row(&format!("{title}, {pods}"), *pods, &ours, theirs.as_ref()));
            if let Some(peer) = theirs {
                let faster = peer.solve / median(&numbers(&ours["solveSeconds"]));
                measured.push(Both { title, pods: *pods, faster, cost: number(&ours, "hourly") / peer.hourly - 1.0 });
            }
        }
    }
    table.note(
        "cost: Plimsoll's compared with Karpenter's best. gap: above Plimsoll's own lower bound, which \
         respects topology across nodes only for spreads over zones. \
         after Solve: Karpenter's sorting and truncating of type lists for the first seed, which is not part of its time."
            .to_owned(),
    );
    aims(&mut table, &measured);
    Ok(vec![table])
}

fn aims(table: &mut Table, measured: &[Both]) {
    for (title, least) in FASTER {
        let there: Vec<f64> =
            measured.iter().filter(|it| it.title == title && it.pods >= FROM).map(|it| it.faster).collect();
        let slowest = there.iter().copied().fold(f64::INFINITY, f64::min);
        if slowest.is_finite() {
            let text = format!(
                "{least:.0} times Karpenter's pods per second, {title}, from {FROM} pods on: at least {slowest:.0}."
            );
            table.aim(slowest >= least, &text);
        }
    }
    if !measured.is_empty() {
        let dearest = measured.iter().map(|it| it.cost).fold(f64::NEG_INFINITY, f64::max);
        table.aim(dearest <= CHEAP, &format!("cost not higher at any size: at most {}.", percent(dearest)));
    }
}

fn row(title: &str, pods: usize, ours: &Value, peer: Option<&Peer>) -> Vec<String> {
    let pods = pods as f64;
    let own = median(&numbers(&ours["solveSeconds"]));
    let mut hourly = format!("{:.3}", number(ours, "hourly"));
    if number(ours, "unschedulable") > 0.0 {
        hourly.push_str(&format!(" ({} unplaced)", ours["unschedulable"]));
    }
    let mut cells = vec![marked(title, ours), seconds(own), format!("{:.0}", pods / own)];
    match peer {
        Some(peer) => cells.extend([
            seconds(peer.solve),
            format!("{:.0}", pods / peer.solve),
            format!("{:.0}", peer.solve / own),
            if peer.truncate > 0.0 { seconds(peer.truncate) } else { "-".to_owned() },
            peer.seeds.to_string(),
        ]),
        None => cells.extend(std::iter::repeat_n("-".to_owned(), 5)),
    }
    cells.push(hourly);
    match peer {
        Some(peer) => {
            let mut theirs = format!("{:.3}", peer.hourly);
            if peer.unschedulable > 0.0 {
                theirs.push_str(&format!(" ({} unplaced)", peer.unschedulable));
            }
            cells.extend([theirs, percent(number(ours, "hourly") / peer.hourly - 1.0)]);
        }
        None => cells.extend(std::iter::repeat_n("-".to_owned(), 2)),
    }
    cells.push(percent_at(ours, "gap"));
    cells.push(format!("{:.0}", number(ours, "peakMib")));
    cells.push(peer.map_or("-".to_owned(), |peer| format!("{:.0}", peer.memory)));
    cells
}

/// Combined results of Karpenter.
pub(super) struct Peer {
    pub(super) solve: f64,
    pub(super) truncate: f64,
    pub(super) hourly: f64,
    pub(super) unschedulable: f64,
    pub(super) memory: f64,
    pub(super) seeds: usize,
}

impl Peer {
    pub(super) fn new(answer: &Value) -> Self {
        let results: Vec<&Value> = answer["results"].as_array().into_iter().flatten().collect();
        let timing = |key: &str| results.iter().map(|it| number(&it["timing"], key)).collect::<Vec<_>>();
        let unplaced = |it: &Value| number(&it["summary"], "podsUnschedulable");
        let cost = |it: &Value| number(&it["cost"], "hourly");
        let better = |a: &&&Value, b: &&&Value| unplaced(a).total_cmp(&unplaced(b)).then(cost(a).total_cmp(&cost(b)));
        let best = results.iter().min_by(better);
        Self {
            solve: median(&timing("solve")),
            truncate: timing("truncate").first().copied().unwrap_or(0.0),
            hourly: best.map_or(0.0, |it| cost(it)),
            unschedulable: best.map_or(0.0, |it| unplaced(it)),
            memory: timing("peakRssMib").into_iter().fold(0.0, f64::max),
            seeds: results.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Peer;
    use serde_json::json;

    #[test]
    fn the_most_pods_count_before_cost_and_the_median_time_counts() {
        let result = |solve: f64, unplaced: u32, hourly: f64| {
            json!({"timing": {"solve": solve, "truncate": 1.0, "peakRssMib": 7.0}, "cost": {"hourly": hourly},
                "summary": {"podsUnschedulable": unplaced}})
        };
        let answer = json!({"results": [result(3.0, 0, 9.0), result(1.0, 1, 2.0), result(2.0, 0, 8.0)]});
        let peer = Peer::new(&answer);
        let same = |a: f64, b: f64| (a - b).abs() < f64::EPSILON;
        assert!(same(peer.solve, 2.0) && same(peer.hourly, 8.0) && same(peer.unschedulable, 0.0));
    }
}
