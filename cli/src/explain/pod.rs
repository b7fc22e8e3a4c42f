//! Where a pod goes, or why it has no place.

use super::text::{self, Text};
use super::unknown;
use crate::CommandError;
use crate::input::Question;
use plimsoll_model::plan::{Launch, Plan, PodRef};
use plimsoll_model::snapshot::{Pod, PodState};
use std::collections::BTreeSet;

pub(super) fn explain(question: &Question, plan: &Plan, name: &str) -> Result<String, CommandError> {
    let snapshot = &question.snapshot;
    let mut text = Text::new(&format!("Pod {name}"));
    if let Some(ignored) = snapshot.ignored.iter().find(|it| it.pod == name) {
        text.line("not planned", &ignored.reason);
        return Ok(text.end());
    }
    let Some(pod) = snapshot.pods.iter().find(|pod| pod.full_name() == name) else {
        let known = snapshot.pods.iter().map(Pod::full_name).chain(snapshot.ignored.iter().map(|it| it.pod.clone()));
        return Err(unknown("pod", name, known.collect()));
    };
    if let Some(shape) = snapshot.shapes.iter().find(|shape| shape.id == pod.shape) {
        text.line("requests", text::resources(&shape.requests));
    }
    match &pod.state {
        PodState::Bound(node) => bound(&mut text, plan, pod, node.as_str()),
        PodState::Reserved(node) => text.line("waits for", format!("{node}, which is on its way")),
        PodState::Pending => pending(&mut text, plan, name),
    }
    Ok(text.end())
}

fn bound(text: &mut Text, plan: &Plan, pod: &Pod, node: &str) {
    text.line("runs on", node);
    let Some(removal) = plan.terminations.iter().find(|it| it.node.as_str() == node) else { return };
    text.line("will move", format!("its node is to be removed: {}", removal.reason.as_str()));
    let name = pod.full_name();
    if let Some(place) = removal.moved_to.iter().find(|it| holds(&it.pods, &name)) {
        text.line("to", place.node.as_str());
    }
    if let Some(launch) = plan.launches.iter().find(|it| holds(&it.pods, &name)) {
        new_node(text, launch);
    }
}

fn pending(text: &mut Text, plan: &Plan, name: &str) {
    if let Some(place) = plan.placements.iter().find(|it| holds(&it.pods, name)) {
        text.line("goes to", format!("{}, which has room or is on its way", place.node));
    } else if let Some(launch) = plan.launches.iter().find(|it| holds(&it.pods, name)) {
        text.line("goes to", format!("a new node of NodePool {}", launch.node_pool));
        new_node(text, launch);
    } else if let Some(it) = plan.unschedulable.iter().find(|it| it.pod.name == name) {
        text.line("has no place", "for now");
        let row = |reason: &plimsoll_model::plan::Reason| {
            vec![reason.node_pool.clone(), reason.code.as_str().to_owned(), reason.message.clone()]
        };
        text.table(&["NODEPOOL", "CODE", "MESSAGE"], it.reasons.iter().map(row).collect());
    } else {
        text.line("has no place", "and the plan does not say why");
    }
}

/// What is bought for it.
fn new_node(text: &mut Text, launch: &Launch) {
    if let Some(cheapest) = launch.offerings.first() {
        text.line("cheapest", text::offering(cheapest));
    }
    let types: BTreeSet<&str> = launch.offerings.iter().map(|it| it.instance_type.as_str()).collect();
    let choice = text::count(types.len(), "instance type");
    text.line("would do", format!("{choice}, {}", text::count(launch.offerings.len(), "offering")));
    text.line("shared with", text::count(launch.pods.len().saturating_sub(1), "other pod"));
    if !launch.why.is_empty() {
        text.line("because", &launch.why);
    }
}

fn holds(pods: &[PodRef], name: &str) -> bool {
    pods.iter().any(|pod| pod.name == name)
}
