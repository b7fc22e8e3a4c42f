//! A plan in lines for people.

use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::{Launch, Placement, Plan, PodRef, Reason, Termination};
use std::collections::BTreeMap;

/// Pods of a line that are named.
const NAMED_PODS: usize = 3;

/// One line per launch, node that takes pods, removal, and group of pods without a place; then totals.
pub(crate) fn of(plan: &Plan) -> Vec<String> {
    let mut lines: Vec<String> = plan.launches.iter().map(launch).collect();
    lines.extend(plan.placements.iter().map(placement));
    lines.extend(plan.terminations.iter().map(termination));
    lines.extend(unschedulable(plan));
    let problems = plan.pool_problems.iter();
    lines.extend(problems.map(|reason| format!("NodePool {} launches nothing: {}", reason.node_pool, text(reason))));
    lines.extend(plan.ignored.iter().map(|ignored| format!("{} is ignored: {}", ignored.pod, ignored.reason)));
    let saving: MicroUsdPerHour = plan.terminations.iter().map(|termination| termination.saving).sum();
    lines.push(format!(
        "{} to add at {} USD per hour, {} to remove with a saving of {saving}, {} without a place",
        count(plan.launches.len(), "node"),
        plan.hourly,
        count(plan.terminations.len(), "node"),
        count(plan.unschedulable.len(), "pod"),
    ));
    lines
}

fn launch(launch: &Launch) -> String {
    let offering = launch.offerings.first().map(|offering| {
        let plimsoll_model::plan::OfferingChoice { instance_type, zone, capacity_type, price, .. } = offering;
        let reservation = offering.reservation.as_ref().map(|id| format!(" {id}")).unwrap_or_default();
        format!("{instance_type} in {zone}, {capacity_type}{reservation}, at {price} USD per hour")
    });
    let offering = offering.unwrap_or_default();
    format!("launch {offering}, NodePool {}, for {}: {}", launch.node_pool, pods(&launch.pods), launch.why)
}

fn placement(placement: &Placement) -> String {
    format!("node {} takes {}", placement.node, pods(&placement.pods))
}

fn termination(termination: &Termination) -> String {
    let Termination { node, reason, pods: moved, saving, .. } = termination;
    let moved = if moved.is_empty() { String::new() } else { format!(", moves {}", pods(moved)) };
    format!("remove node {node}: {}{moved}, saves {saving} USD per hour", reason.as_str())
}

/// Pods that have no place for the same reasons share a line.
fn unschedulable(plan: &Plan) -> Vec<String> {
    let mut groups: Vec<(&[Reason], Vec<PodRef>)> = Vec::new();
    let mut known: BTreeMap<&[Reason], usize> = BTreeMap::new();
    for unschedulable in &plan.unschedulable {
        let group = *known.entry(&unschedulable.reasons).or_insert(groups.len());
        match groups.get_mut(group) {
            Some((_, pods)) => pods.push(unschedulable.pod.clone()),
            None => groups.push((&unschedulable.reasons, vec![unschedulable.pod.clone()])),
        }
    }
    let line = |(reasons, group): (&[Reason], Vec<PodRef>)| {
        let reason = |reason: &Reason| {
            let pool = if reason.node_pool.is_empty() { "pod" } else { &reason.node_pool };
            format!("{pool}: {}", text(reason))
        };
        format!("no place for {}: {}", pods(&group), reasons.iter().map(reason).collect::<Vec<_>>().join("; "))
    };
    groups.into_iter().map(line).collect()
}

fn text(reason: &Reason) -> String {
    format!("{}: {}", reason.code.as_str(), reason.message)
}

/// `2 pods (shop/a, shop/b)`.
fn pods(pods: &[PodRef]) -> String {
    let named: Vec<&str> = pods.iter().take(NAMED_PODS).map(|pod| pod.name.as_str()).collect();
    let more = match pods.len().saturating_sub(NAMED_PODS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = if named.is_empty() { String::new() } else { format!(" ({}{more})", named.join(", ")) };
    format!("{}{named}", count(pods.len(), "pod"))
}

fn count(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
