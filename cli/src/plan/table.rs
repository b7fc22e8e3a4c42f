//! The plan as tables.

use super::staying::Staying;
use super::{render, summary};
use crate::output;
use crate::prices::PriceOrigin;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::{OfferingChoice, Plan, Reason};
use plimsoll_model::time::duration_text;
use plimsoll_scheduler::answer::ProtectedNode;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Maximum number of listed pods per group.
const NAMED_PODS: usize = 3;
/// Hours per month in AWS prices.
const HOURS_PER_MONTH: i64 = 730;
const MICRO_USD_PER_CENT: i64 = 10_000;

/// Facts for the tables that the plan does not contain.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Nodes that could be removed but stay.
    pub(crate) protected: Vec<ProtectedNode>,
    /// Pods of removed nodes that do not move.
    pub(crate) staying: Vec<Staying>,
    /// Origin of the prices.
    pub(crate) prices: PriceOrigin,
}

pub(crate) fn render(plan: &Plan, notes: &Notes) -> String {
    let mut text = String::new();
    section(
        &mut text,
        "Launches",
        &["NODEPOOL", "NODES", "TYPE", "ZONE", "CAPACITY", "USD/HOUR", "PODS"],
        launches(plan),
    );
    let existing = render::by_node(plan);
    let existing =
        existing.into_iter().map(|(node, pods)| vec![node.to_owned(), some_of(&pods.into_iter().collect::<Vec<_>>())]);
    section(&mut text, "Existing nodes take", &["NODE", "PODS"], existing.collect());
    section(
        &mut text,
        "Terminations",
        &["NODE", "REASON", "PODS", "SAVES USD/HOUR", "REPLACED BY"],
        terminations(plan),
    );
    let staying = notes.staying.iter().map(staying).collect();
    section(&mut text, "Pods that stay until the drain's deadline", &["NODE", "PODS", "DEADLINE"], staying);
    section(&mut text, "Unschedulable", &["PODS", "NODEPOOL", "CODE", "MESSAGE"], unschedulable(plan));
    let problems = plan.pool_problems.iter();
    let problems = problems.map(|it| vec![it.node_pool.clone(), it.code.as_str().to_owned(), it.message.clone()]);
    section(&mut text, "NodePools that can launch nothing", &["NODEPOOL", "CODE", "MESSAGE"], problems.collect());
    let mut ignored: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for it in &plan.ignored {
        ignored.entry(&it.reason).or_default().push(&it.pod);
    }
    let ignored = ignored.into_iter().map(|(reason, pods)| vec![some_of(&pods), reason.to_owned()]);
    section(&mut text, "Ignored", &["PODS", "REASON"], ignored.collect());
    let style = output::HEADING;
    let _ = writeln!(text, "{style}{}{style:#}", summary::line(plan, &notes.protected));
    if summary::changes(plan) {
        let _ = writeln!(text, "{}", cost(plan));
        text.push_str(&monthly(plan));
        let prices = prices(plan, &notes.prices);
        text.push_str(&if prices.is_empty() { prices } else { prices + "\n" });
    }
    text
}

/// Cost of the launches for a month, in whole cents; empty if they cost nothing.
fn monthly(plan: &Plan) -> String {
    if plan.hourly.0 <= 0 {
        return String::new();
    }
    let micro = plan.hourly.0.saturating_mul(HOURS_PER_MONTH);
    let cents = micro.saturating_add(MICRO_USD_PER_CENT / 2) / MICRO_USD_PER_CENT;
    let (dollars, cents) = (cents / 100, cents % 100);
    format!("The new nodes cost {dollars}.{cents:02} USD per month ({HOURS_PER_MONTH} hours).\n")
}

/// Cost of the launches, and savings of the removals.
fn cost(plan: &Plan) -> String {
    let saved: MicroUsdPerHour = plan.terminations.iter().map(|it| it.saving).sum();
    let removals = match saved.0 {
        less if less < 0 => format!("removals cost {} USD per hour more", MicroUsdPerHour(less.saturating_neg())),
        _ => format!("removals save {saved} USD per hour"),
    };
    if plan.launches.is_empty() {
        return format!("The {removals}.");
    }
    let mut text =
        format!("{} USD per hour for {} to launch", plan.hourly, summary::count(plan.launches.len(), "node"));
    if plan.hourly.0 > 0 {
        let _ = write!(text, "; lower bound for the same pods: {}", plan.lower_bound);
        if plan.lower_bound < plan.hourly {
            text.push_str(" (the bound ignores pod affinity, limits, weights and minValues, and topology over zones");
            text.push_str(" except for required spreads of workloads all of whose pods get new nodes)");
        }
    }
    if !plan.terminations.is_empty() {
        let _ = write!(text, "; the {removals}");
    }
    text
}

/// Source and date of the prices in the table.
fn prices(plan: &Plan, origin: &PriceOrigin) -> String {
    let shown: BTreeSet<&OfferingChoice> = plan.launches.iter().filter_map(|launch| launch.offerings.first()).collect();
    if shown.is_empty() {
        return String::new();
    }
    let spot = shown.iter().any(|offering| offering.capacity_type == CapacityType::Spot);
    origin.note(shown.iter().map(|offering| offering.instance_type.as_str()), spot)
}

fn section(text: &mut String, title: &str, headings: &[&str], rows: Vec<Vec<String>>) {
    if rows.is_empty() {
        return;
    }
    let mut table = output::table(headings);
    table.add_rows(rows);
    let style = output::HEADING;
    let _ = writeln!(text, "{style}{title}{style:#}\n{}", output::render(&table));
}

/// Identical nodes share a row.
fn launches(plan: &Plan) -> Vec<Vec<String>> {
    let mut groups: BTreeMap<(&str, Option<&OfferingChoice>), (usize, usize)> = BTreeMap::new();
    for launch in &plan.launches {
        let (nodes, pods) = groups.entry((launch.node_pool.as_str(), launch.offerings.first())).or_default();
        *nodes += 1;
        *pods += launch.pods.len();
    }
    let row = |((pool, offering), (nodes, pods)): ((&str, Option<&OfferingChoice>), (usize, usize))| {
        let of = |field: fn(&OfferingChoice) -> String| offering.map(field).unwrap_or_default();
        let price =
            std::iter::repeat_n(offering.map_or(MicroUsdPerHour(0), |it| it.price), nodes).sum::<MicroUsdPerHour>();
        vec![
            pool.to_owned(),
            nodes.to_string(),
            of(|it| it.instance_type.clone()),
            of(|it| it.zone.clone()),
            of(|it| it.capacity_type.to_string()),
            price.to_string(),
            pods.to_string(),
        ]
    };
    groups.into_iter().map(row).collect()
}

fn terminations(plan: &Plan) -> Vec<Vec<String>> {
    let rows = plan.terminations.iter().map(|it| {
        let replacements = it.replaced_by.iter().filter_map(|index| plan.launches.get(*index)?.offerings.first());
        let replacements: Vec<&str> = replacements.map(|offering| offering.instance_type.as_str()).collect();
        let replaced_by = if replacements.is_empty() { "-".to_owned() } else { replacements.join(", ") };
        vec![
            it.node.to_string(),
            it.reason.as_str().to_owned(),
            it.pods.len().to_string(),
            it.saving.to_string(),
            replaced_by,
        ]
    });
    rows.collect()
}

fn staying(it: &Staying) -> Vec<String> {
    let pods: Vec<&str> = it.pods.iter().map(String::as_str).collect();
    let deadline = match it.grace {
        Some(grace) => format!("{} after the drain begins", duration_text(grace)),
        None => "none: the node has no terminationGracePeriod".to_owned(),
    };
    vec![it.node.clone(), some_of(&pods), deadline]
}

/// Unschedulable pods with the same reasons share their rows.
fn unschedulable(plan: &Plan) -> Vec<Vec<String>> {
    let mut groups: BTreeMap<&[Reason], Vec<&str>> = BTreeMap::new();
    for it in &plan.unschedulable {
        groups.entry(&it.reasons).or_default().push(&it.pod.name);
    }
    let mut groups: Vec<(&[Reason], Vec<&str>)> = groups.into_iter().collect();
    groups.sort_by(|left, right| left.1.first().cmp(&right.1.first()));
    let mut rows = Vec::new();
    for (reasons, pods) in groups {
        for (index, reason) in reasons.iter().enumerate() {
            let pods = if index == 0 { some_of(&pods) } else { String::new() };
            rows.push(vec![pods, reason.node_pool.clone(), reason.code.as_str().to_owned(), reason.message.clone()]);
        }
    }
    rows
}

/// The first pods, and the number of the others.
fn some_of(pods: &[&str]) -> String {
    let named = pods.get(..NAMED_PODS.min(pods.len())).unwrap_or_default().join(", ");
    match pods.len().saturating_sub(NAMED_PODS) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_a_month_is_rounded_to_cents() {
        let line = |micro: i64| monthly(&Plan { hourly: MicroUsdPerHour(micro), ..Plan::default() });
        let costs = |usd: &str| format!("The new nodes cost {usd} USD per month (730 hours).\n");
        for (micro, usd) in [(10_400, "7.59"), (38_500, "28.11"), (i64::MAX, "9223372036854.77")] {
            assert_eq!(line(micro), costs(usd));
        }
        assert_eq!(line(0), "");
    }
}
