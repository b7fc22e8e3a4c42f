//! Why no node fits a pod, in the format of a `FailedScheduling` event.

use super::cluster::SchedulerCluster;
use plimsoll_kubesched::{Nominated, Rejection};
use plimsoll_model::names::ATTACHABLE_VOLUMES_PREFIX;
use plimsoll_model::resources::PODS;
use std::collections::BTreeMap;

/// Number of rejected nodes per reason.
#[derive(Debug, Default)]
pub(super) struct Rejections {
    counts: BTreeMap<String, usize>,
    resolvable: usize,
}

impl Rejections {
    pub(super) fn add(
        &mut self,
        cluster: &SchedulerCluster<'_>,
        (shape, node): (usize, usize),
        nominated: &Nominated,
        rejection: Rejection,
    ) {
        let mut resolvable = rejection.is_resolvable();
        let reasons = match rejection {
            Rejection::Resources => {
                let lacking: Vec<&str> = cluster.state.insufficient(shape, node, nominated).collect();
                // Removing pods helps only if the node is large enough.
                resolvable = lacking.iter().all(|name| cluster.could_have(shape, node, name));
                lacking.into_iter().map(reason).collect()
            }
            Rejection::Taint if cluster.is_flagged(shape, node) => vec![Rejection::Unschedulable.to_string()],
            other => vec![other.to_string()],
        };
        self.resolvable += usize::from(resolvable);
        for reason in reasons {
            *self.counts.entry(reason).or_default() += 1;
        }
    }

    /// The message in the format of Kubernetes: reasons with their counts, sorted, and the result of preemption.
    pub(super) fn message(&self, nodes: usize) -> String {
        if nodes == 0 {
            return "no nodes available to schedule pods".to_owned();
        }
        let mut reasons: Vec<_> = self.counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        reasons.sort();
        let preemption = [
            (self.resolvable, "No preemption victims found for incoming pod"),
            (nodes - self.resolvable, "Preemption is not helpful for scheduling"),
        ];
        let preemption: Vec<_> = preemption
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, reason)| format!("{count} {reason}"))
            .collect();
        format!(
            "0/{nodes} nodes are available: {}. no new claims to deallocate, preemption: 0/{nodes} nodes are available: {}.",
            reasons.join(", "),
            preemption.join(", ")
        )
    }
}

fn reason(resource: &str) -> String {
    match resource {
        PODS => "Too many pods".to_owned(),
        name if name.starts_with(ATTACHABLE_VOLUMES_PREFIX) => "node(s) exceed max volume count".to_owned(),
        name => format!("Insufficient {name}"),
    }
}
