//! Compares two plans for one case, and explains exceptions.

use super::answer::{Answer, Launch, Outcome};
use plimsoll_invariants::check;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::identity::{ActionId, NodeName, NodePoolName, PodUid};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::label;
use plimsoll_model::plan::{OfferingChoice, Placement, Plan, PlanOptions, PodRef, Reason, ReasonCode, Unschedulable};
use plimsoll_model::requirements::{NodeSelectorRequirement, Operator};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{PodState, Snapshot};
use plimsoll_solver::Move;
use plimsoll_workloads::{Case, Question};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Tolerance for equal costs: prices have six decimals, and sums are rounded.
const SAME_USD: f64 = 2e-6;

/// Result of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    /// The same pods at the same cost.
    Same,
    /// The same pods at a lower cost.
    Cheaper,
    /// More pods.
    MorePods,
    /// As many pods, but different ones, at the same or a lower cost.
    OtherPods,
    /// As many pods at a higher cost.
    Dearer,
    /// Fewer pods.
    FewerPods,
    /// Plimsoll's plan is invalid.
    Invalid,
    /// The peer returned no plan.
    NoAnswer,
}

/// One side of a case.
#[derive(Debug, Clone, Default)]
pub(super) struct Side {
    pub(super) placed: BTreeSet<String>,
    pub(super) hourly: f64,
    pub(super) launches: Vec<String>,
    /// Violations of the rules of kube-scheduler.
    pub(super) violations: Vec<String>,
    /// Reasons for unschedulable pods.
    pub(super) refused: BTreeMap<String, String>,
    /// Number of replay runs in which kube-scheduler strands a pod, and number of runs.
    pub(super) stranding: Option<(usize, usize)>,
}

/// Comparison of one case.
#[derive(Debug, Clone)]
pub(super) struct Judgement {
    pub(super) seed: u64,
    pub(super) title: String,
    pub(super) verdict: Verdict,
    pub(super) ours: Side,
    /// The best result of the peer.
    pub(super) theirs: Side,
    /// Reasons for an exception.
    pub(super) reasons: Vec<String>,
}

impl Judgement {
    pub(super) fn is_exception(&self) -> bool {
        matches!(self.verdict, Verdict::Dearer | Verdict::FewerPods | Verdict::Invalid | Verdict::NoAnswer)
    }

    /// Whether the exception has no reason. An invalid plan is never explained.
    pub(super) fn is_unexplained(&self) -> bool {
        self.is_exception() && (self.reasons.is_empty() || self.verdict == Verdict::Invalid)
    }

    /// Adds the documented reason, if this is an exception.
    pub(super) fn note(&mut self, known: Option<&String>) {
        if self.is_exception() {
            self.reasons.extend(known.cloned());
        }
    }
}

/// Plans the case and compares the plans.
pub(super) fn judge(case: &Case, question: &Question, answer: &Answer, without: &[Move]) -> Judgement {
    // The pools of cases never disrupt, so removals are not part of the comparison.
    let options = PlanOptions { disruption: false, ..PlanOptions::default() };
    let plan = plimsoll_solver::solve_without(&question.snapshot, &question.catalogs, &options, without);
    let ours = side(question, &plan);
    let mut judgement = Judgement {
        seed: case.seed,
        title: case.title(),
        verdict: Verdict::NoAnswer,
        ours,
        theirs: Side::default(),
        reasons: Vec::new(),
    };
    let outcomes = answer.results.iter().flatten().filter(|it| !it.timed_out);
    let sides: Vec<Side> = outcomes.map(|it| side(question, &as_plan(&question.snapshot, it))).collect();
    if let Some(error) = &answer.error {
        judgement.reasons.push(format!("Karpenter ends with: {}", error.lines().next().unwrap_or_default()));
    }
    let Some(best) = best(sides.iter()) else { return judgement };
    judgement.theirs = best.clone();
    judgement.verdict = compare(&judgement.ours, best);
    if judgement.is_exception() && judgement.verdict != Verdict::Invalid {
        judgement.reasons.extend(reasons(&judgement.ours, &sides, best));
    }
    judgement
}

/// The side with the most pods, and the cheapest among those.
fn best<'a>(sides: impl Iterator<Item = &'a Side>) -> Option<&'a Side> {
    sides.min_by(|a, b| b.placed.len().cmp(&a.placed.len()).then(a.hourly.total_cmp(&b.hourly)))
}

fn compare(ours: &Side, theirs: &Side) -> Verdict {
    if !ours.violations.is_empty() {
        return Verdict::Invalid;
    }
    match ours.placed.len().cmp(&theirs.placed.len()) {
        std::cmp::Ordering::Less => Verdict::FewerPods,
        std::cmp::Ordering::Greater => Verdict::MorePods,
        std::cmp::Ordering::Equal if ours.hourly > theirs.hourly + SAME_USD => Verdict::Dearer,
        std::cmp::Ordering::Equal if ours.placed != theirs.placed => Verdict::OtherPods,
        std::cmp::Ordering::Equal if ours.hourly < theirs.hourly - SAME_USD => Verdict::Cheaper,
        std::cmp::Ordering::Equal => Verdict::Same,
    }
}

/// Reasons for an exception: kube-scheduler would not bind the peer's plan. Applies only if Plimsoll's plan is at least
/// as good as each valid plan of the peer.
fn reasons(ours: &Side, sides: &[Side], best_of_all: &Side) -> Vec<String> {
    let valid = best(sides.iter().filter(|side| side.violations.is_empty()));
    let holds = valid.is_none_or(|valid| !matches!(compare(ours, valid), Verdict::Dearer | Verdict::FewerPods));
    if !holds || best_of_all.violations.is_empty() {
        return Vec::new();
    }
    let first: Vec<&str> = best_of_all.violations.iter().take(2).map(String::as_str).collect();
    vec![format!("kube-scheduler would not follow Karpenter's plan: {}", first.join("; "))]
}

fn side(question: &Question, plan: &Plan) -> Side {
    let on_launches = plan.launched_pods();
    let on_nodes = plan.placements.iter().flat_map(|it| &it.pods);
    let launch = |it: &plimsoll_model::plan::Launch| {
        let offering = it.offerings.first().map_or_else(String::new, |it| {
            format!("{} {} {} {}", it.instance_type, it.zone, it.capacity_type, it.price)
        });
        let pods: Vec<&str> = it.pods.iter().map(|pod| pod.name.as_str()).collect();
        format!("{} {offering}: {}", it.node_pool, pods.join(" "))
    };
    let refused = plan.unschedulable.iter().map(|it| {
        let reasons: Vec<String> =
            it.reasons.iter().map(|it| format!("{} {} {}", it.node_pool, it.code.as_str(), it.message)).collect();
        (it.pod.name.clone(), reasons.join("; "))
    });
    let nodes = plan.placements.iter().map(|it| {
        let pods: Vec<&str> = it.pods.iter().map(|pod| pod.name.as_str()).collect();
        format!("on {}: {}", it.node, pods.join(" "))
    });
    let violations = check(&question.snapshot, &question.catalogs, plan);
    Side {
        placed: on_launches.chain(on_nodes).map(|pod| pod.name.clone()).collect(),
        hourly: plan.hourly.usd(),
        launches: plan.launches.iter().map(launch).chain(nodes).collect(),
        violations: violations.iter().map(ToString::to_string).collect(),
        refused: refused.collect(),
        stranding: plimsoll_solver::replay(&question.snapshot, &question.catalogs, plan)
            .map(|it| (it.stranding, it.runs)),
    }
}

/// Converts the peer's plan. Each launch gets the cheapest offering, which is the one that the peer counts.
fn as_plan(snapshot: &Snapshot, outcome: &Outcome) -> Plan {
    let uids: BTreeMap<String, PodUid> = snapshot.pods.iter().map(|pod| (pod.full_name(), pod.uid.clone())).collect();
    let pod = |name: &String| PodRef {
        name: name.clone(),
        uid: uids.get(name).cloned().unwrap_or_else(|| PodUid(name.clone())),
    };
    let pods = |names: &[String]| {
        let mut pods: Vec<PodRef> = names.iter().map(pod).collect();
        pods.sort();
        pods
    };
    let launches = outcome.launches.iter().enumerate();
    let mut plan = Plan {
        launches: launches.map(|(index, it)| launch(snapshot, index, it, pods(&it.pods))).collect(),
        placements: outcome
            .existing
            .iter()
            .map(|it| Placement { node: NodeName(it.node.clone()), pods: pods(&it.pods) })
            .collect(),
        ..Plan::default()
    };
    let said: BTreeMap<&String, &str> = outcome
        .unschedulable
        .iter()
        .map(|it| (&it.pod, it.reasons.first().map_or("", |reason| reason.message.as_str())))
        .collect();
    let placed: BTreeSet<&String> = outcome
        .launches
        .iter()
        .flat_map(|it| &it.pods)
        .chain(outcome.existing.iter().flat_map(|it| &it.pods))
        .collect();
    for it in snapshot.pods.iter().filter(|pod| pod.state == PodState::Pending) {
        let name = it.full_name();
        if !placed.contains(&name) {
            let message = said.get(&name).copied().unwrap_or("not considered").to_owned();
            let reason = Reason { node_pool: String::new(), code: ReasonCode::InvalidPod, message };
            plan.unschedulable.push(Unschedulable { pod: pod(&name), reasons: vec![reason].into() });
        }
    }
    plan.hourly = plan.launches.iter().map(plimsoll_model::plan::Launch::price).sum();
    plan
}

fn launch(snapshot: &Snapshot, index: usize, it: &Launch, pods: Vec<PodRef>) -> plimsoll_model::plan::Launch {
    let pool = snapshot.node_pools.iter().find(|pool| pool.name.as_str() == it.node_pool);
    let mut requirements = pool.map(|pool| pool.requirements.clone()).unwrap_or_default();
    for own in it.requirements.iter().flatten().filter(|it| it.operator == "In" && it.values.len() == 1) {
        // Labels of the catalog follow from the offering.
        if !label::is_well_known(&own.key) {
            requirements.push(NodeSelectorRequirement {
                key: own.key.clone(),
                operator: Operator::In,
                values: own.values.clone(),
                min_values: None,
            });
        }
    }
    let offering = it.offering.as_ref().map(|it| OfferingChoice {
        instance_type: it.instance_type.clone(),
        zone: it.zone.clone(),
        capacity_type: CapacityType::parse(&it.capacity_type).unwrap_or(CapacityType::OnDemand),
        price: MicroUsdPerHour((it.price * 1e6).round() as i64),
        reservation: None,
    });
    plimsoll_model::plan::Launch {
        action_id: ActionId(format!("karpenter-{index}")),
        node_pool: NodePoolName(it.node_pool.clone()),
        node_class: pool.map(|pool| pool.node_class.clone()).unwrap_or_default(),
        offerings: Arc::new(offering.into_iter().collect()),
        requirements: Arc::new(requirements),
        requests: Resources::new(),
        taints: pool.map(|pool| pool.taints.clone()).unwrap_or_default(),
        labels: pool.map(|pool| pool.labels.clone()).unwrap_or_default(),
        pods,
        prioritized: false,
        why: String::new(),
    }
}

#[cfg(test)]
mod tests;
