//! Placement of the pods of a workload. Pods with the same place or reason share a line.

use super::entry;
use crate::input::Question;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plimsoll_api::Pod as KubePod;
use plimsoll_model::plan::{Plan, Reason};
use plimsoll_model::quantity::format_amount;
use plimsoll_model::resources::PODS;
use plimsoll_model::snapshot::{Pod, PodState, Snapshot};
use plimsoll_scheduler::answer::waiting_pods;
use plimsoll_snapshot::{Objects, full_name};
use std::collections::{BTreeMap, BTreeSet};

/// Label that distinguishes the ReplicaSets of a Deployment; a ReplicaSet is named `<deployment>-<hash>`.
const TEMPLATE_HASH: &str = "pod-template-hash";
/// Maximum number of listed pods per line, and of lines.
const SHOWN: usize = 5;

/// Pods (`namespace/name`) of each workload (`namespace/name`) of a kind.
pub(crate) fn pods_by_workload(objects: &Objects, kind: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut add = |pod: &KubePod| {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let Some(owner) = owner(objects, pod, kind) else { return };
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        found.entry(format!("{namespace}/{owner}")).or_default().insert(format!("{namespace}/{name}"));
    };
    objects.pods.iter().for_each(|pod| add(pod.as_ref()));
    objects.replicas.iter().flat_map(plimsoll_snapshot::Replicas::pods).for_each(|pod| add(&pod));
    found
}

/// Why a workload without pods has none; `None` if it is not in the input. Of a cluster, only DaemonSets are known.
pub(super) fn why_idle(question: &Question, kind: &'static str, name: &str) -> Option<String> {
    let is_it =
        |metadata: &ObjectMeta| name.split_once('/') == metadata.namespace.as_deref().zip(metadata.name.as_deref());
    if kind == "DaemonSet" && question.objects.daemon_sets.iter().any(|it| is_it(&it.metadata)) {
        return Some("each new node that it can run on gets one".to_owned());
    }
    question.manifests.idle.get(&(kind, name.to_owned())).cloned()
}

/// Name of the workload of this kind that owns a pod, directly or through a ReplicaSet.
fn owner(objects: &Objects, pod: &KubePod, kind: &str) -> Option<String> {
    if let Some(owner) = pod.owners.iter().find(|owner| owner.kind == kind) {
        return Some(owner.name.clone());
    }
    let replica_set = &pod.owners.iter().find(|owner| kind == "Deployment" && owner.kind == "ReplicaSet")?.name;
    let is_it = |it: &&ObjectMeta| it.name.as_ref() == Some(replica_set) && it.namespace == pod.metadata.namespace;
    let known = objects.replica_sets.iter().map(|it| &it.metadata).find(is_it);
    let deployment = known.and_then(|it| it.owner_references.iter().flatten().find(|owner| owner.kind == kind));
    deployment.map(|owner| owner.name.clone()).or_else(|| {
        let hash = pod.labels.get(TEMPLATE_HASH)?;
        Some(replica_set.strip_suffix(hash.as_str())?.strip_suffix('-')?.to_owned())
    })
}

/// Lines about the pods, and the distinct reasons of unschedulable pods.
pub(super) fn lines(question: &Question, plan: &Plan, pods: &BTreeSet<String>) -> (Vec<String>, Vec<Reason>) {
    let snapshot = &question.snapshot;
    let members: Vec<&Pod> = snapshot.pods.iter().filter(|pod| pods.contains(&pod.full_name())).collect();
    let terminal = question.objects.pods.iter().filter(|pod| pod.is_terminal());
    let ended = terminal.filter(|pod| pods.contains(&full_name(&pod.metadata))).count();
    let ended_text = if ended == 0 { String::new() } else { format!(", {ended} ended") };
    let mut lines = vec![entry("pods", format!("{}{ended_text}", pods.len().saturating_sub(ended)))];
    lines.extend(requests(snapshot, &members).into_iter().map(|it| entry("requests", it)));
    let mut places = Places::default();
    for pod in &members {
        if let PodState::Bound(node) = &pod.state {
            places.add("runs on", format!("node {node}"), pod.full_name());
        }
    }
    for (pod, node) in waiting_pods(snapshot, plan) {
        if pods.contains(&pod.full_name()) {
            places.add("waits for", format!("node {node}"), pod.full_name());
        }
    }
    for placement in &plan.placements {
        for pod in placement.pods.iter().filter(|pod| pods.contains(&pod.name)) {
            places.add("goes to", format!("node {}", placement.node), pod.name.clone());
        }
    }
    for launch in &plan.launches {
        let offering = launch.offerings.first().map(|it| {
            format!(" ({} in {}, {}, {} USD per hour)", it.instance_type, it.zone, it.capacity_type, it.price)
        });
        let place = format!("new nodes of NodePool {}{}", launch.node_pool, offering.unwrap_or_default());
        for pod in launch.pods.iter().filter(|pod| pods.contains(&pod.name)) {
            places.add("goes to", place.clone(), pod.name.clone());
        }
    }
    for ignored in snapshot.ignored.iter().filter(|it| pods.contains(&it.pod)) {
        places.add("ignored", ignored.reason.clone(), ignored.pod.clone());
    }
    lines.extend(places.lines());
    let reasons = unschedulable(plan, pods, &mut lines);
    (lines, reasons)
}

/// Requests of each shape.
fn requests(snapshot: &Snapshot, members: &[&Pod]) -> BTreeSet<String> {
    let shapes: BTreeSet<_> = members.iter().map(|pod| &pod.shape).collect();
    let text = |requests: &plimsoll_model::resources::Resources| {
        let all = requests.iter().filter(|(name, amount)| *name != PODS && *amount != 0);
        let all: Vec<String> = all.map(|(name, amount)| format!("{} {name}", format_amount(name, amount))).collect();
        if all.is_empty() { "nothing".to_owned() } else { all.join(", ") }
    };
    let of_pods = snapshot.shapes.iter().filter(|shape| shapes.contains(&shape.id));
    of_pods.map(|shape| text(&shape.requests)).take(SHOWN).collect()
}

/// Adds lines about unschedulable pods and returns their reasons.
fn unschedulable(plan: &Plan, pods: &BTreeSet<String>, lines: &mut Vec<String>) -> Vec<Reason> {
    let mut groups: BTreeMap<&[Reason], Vec<String>> = BTreeMap::new();
    for it in plan.unschedulable.iter().filter(|it| pods.contains(&it.pod.name)) {
        groups.entry(&it.reasons).or_default().push(it.pod.name.clone());
    }
    let mut all: BTreeSet<Reason> = BTreeSet::new();
    for (reasons, names) in groups {
        lines.push(entry("has no place", some_of(&names)));
        for reason in reasons {
            let (code, message) = (reason.code.as_str(), &reason.message);
            lines.push(match reason.node_pool.as_str() {
                "" => entry("because", format!("{code}: {message}")),
                pool => entry("because", format!("NodePool {pool}: {code}: {message}")),
            });
            all.insert(reason.clone());
        }
    }
    all.into_iter().collect()
}

/// Pods by action and place.
#[derive(Debug, Default)]
struct Places(BTreeMap<(&'static str, String), Vec<String>>);

impl Places {
    fn add(&mut self, what: &'static str, place: String, pod: String) {
        self.0.entry((what, place)).or_default().push(pod);
    }

    fn lines(self) -> Vec<String> {
        let more = self.0.len().saturating_sub(SHOWN);
        let line =
            |((what, place), pods): ((&str, String), Vec<String>)| entry(what, format!("{place}: {}", some_of(&pods)));
        let mut lines: Vec<String> = self.0.into_iter().take(SHOWN).map(line).collect();
        if more > 0 {
            lines.push(entry("and", format!("{more} more places")));
        }
        lines
    }
}

/// The first names without their namespace, and the number of the others.
fn some_of(pods: &[String]) -> String {
    let name = |pod: &String| pod.rsplit_once('/').map_or(pod.as_str(), |(_, name)| name).to_owned();
    let shown: Vec<String> = pods.iter().take(SHOWN).map(name).collect();
    match pods.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
