//! Jobs: create pods until enough of them have succeeded.

use super::{BURST, Work, size};
use crate::apiserver::ResourceId;
use crate::apiserver::object;
use crate::kube::view::PodView;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Finished pods per Job. Each pod counts once, even after it is deleted.
#[derive(Debug, Default)]
pub(super) struct Tally {
    over: BTreeMap<String, Over>,
}

#[derive(Debug, Default)]
struct Over {
    succeeded: BTreeSet<String>,
    failed: BTreeSet<String>,
    /// Completion indices that have succeeded.
    indices: BTreeSet<i64>,
}

impl Tally {
    /// Keeps only the jobs that still exist.
    pub(super) fn retain(&mut self, exists: impl Fn(&str) -> bool) {
        self.over.retain(|uid, _| exists(uid));
    }
}

const INDEX: &str = "batch.kubernetes.io/job-completion-index";

pub(super) fn reconcile(work: &mut Work<'_>, pods: &[&PodView], tally: &mut Tally) {
    let over = tally.over.entry(object::uid(work.owner).to_owned()).or_default();
    for pod in pods {
        match pod.phase.as_str() {
            "Succeeded" => {
                over.succeeded.insert(pod.uid.clone());
                over.indices.extend(index(pod));
            }
            "Failed" => drop(over.failed.insert(pod.uid.clone())),
            // A pod that was deleted while it ran counts as failed.
            _ if pod.deletion.is_some() => drop(over.failed.insert(pod.uid.clone())),
            _ => {}
        }
    }
    let active: Vec<&PodView> = pods.iter().copied().filter(|pod| pod.is_active()).collect();
    let (succeeded, failed) = (over.succeeded.len(), over.failed.len());
    let completions = work.number("completions").map(size);
    let parallelism = size(work.number("parallelism").unwrap_or(1));
    let suspended = object::at(work.owner, &["spec", "suspend"]).and_then(Value::as_bool) == Some(true);
    let exhausted = failed > size(work.number("backoffLimit").unwrap_or(6));
    let complete = match completions {
        Some(completions) => succeeded >= completions,
        // Work queue: the first success means that the queue is empty.
        None => succeeded > 0 && active.is_empty(),
    };
    let finished = complete || exhausted;
    if !work.is_deleting() {
        let open = completions
            .map_or(if succeeded > 0 { 0 } else { parallelism }, |completions| completions.saturating_sub(succeeded));
        let wanted = if finished || suspended { 0 } else { open.min(parallelism) };
        for pod in active.iter().skip(wanted) {
            work.delete_pod(pod);
        }
        let mut taken: BTreeSet<i64> =
            over.indices.iter().copied().chain(active.iter().filter_map(|pod| index(pod))).collect();
        for _ in 0..wanted.saturating_sub(active.len()).min(BURST) {
            create(work, &mut taken);
        }
    }
    report(work, [active.len(), succeeded, failed], complete, exhausted);
}

fn index(pod: &PodView) -> Option<i64> {
    object::annotation(&pod.object, INDEX)?.parse().ok()
}

fn create(work: &mut Work<'_>, taken: &mut BTreeSet<i64>) {
    let mut pod = work.pod();
    let job = object::name(work.owner);
    let mut prefix = format!("{job}-");
    if object::text(work.owner, &["spec", "completionMode"]) == "Indexed" {
        let free = (0..i64::MAX).find(|index| !taken.contains(index)).unwrap_or(0);
        taken.insert(free);
        object::set(&mut pod, &["metadata", "annotations", INDEX], json!(free.to_string()));
        object::set(&mut pod, &["metadata", "labels", INDEX], json!(free.to_string()));
        prefix = format!("{job}-{free}-");
    }
    pod["metadata"]["generateName"] = json!(prefix);
    object::set(&mut pod, &["metadata", "labels", "batch.kubernetes.io/job-name"], json!(job));
    object::set(&mut pod, &["metadata", "labels", "job-name"], json!(job));
    work.create(ResourceId::PODS, pod);
}

fn report(work: &mut Work<'_>, [active, succeeded, failed]: [usize; 3], complete: bool, exhausted: bool) {
    let mut new = (**work.owner).clone();
    let now = object::time(work.now);
    for (field, value) in [("active", active), ("succeeded", succeeded), ("failed", failed)] {
        object::set(&mut new, &["status", field], json!(value));
    }
    if object::at(&new, &["status", "startTime"]).is_none() {
        object::set(&mut new, &["status", "startTime"], json!(now));
    }
    if complete {
        object::set_condition(
            &mut new,
            json!({"type": "Complete", "status": "True", "reason": "CompletionsReached"}),
            work.now,
        );
        if object::at(&new, &["status", "completionTime"]).is_none() {
            object::set(&mut new, &["status", "completionTime"], json!(now));
        }
    } else if exhausted {
        object::set_condition(
            &mut new,
            json!({"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}),
            work.now,
        );
    }
    work.report_object(new);
}
