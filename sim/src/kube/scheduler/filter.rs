//! Which nodes a pod fits on, why not on the others, and which fits best.

use crate::kube::quantity::{Amounts, add};
use crate::kube::view::{NodeView, PodView, Taint};
use std::collections::{BTreeMap, BTreeSet};

/// The taint that stands for the unschedulable flag.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// A node with what is taken of it.
#[derive(Debug, Clone)]
pub(super) struct Room<'a> {
    pub(super) node: &'a NodeView,
    used: Amounts,
    ports: BTreeSet<(i64, String, String)>,
}

impl<'a> Room<'a> {
    pub(super) fn new(node: &'a NodeView) -> Self {
        Self { node, used: Amounts::new(), ports: BTreeSet::new() }
    }

    pub(super) fn take(&mut self, pod: &PodView) {
        add(&mut self.used, &pod.requests);
        self.ports.extend(pod.host_ports.iter().cloned());
    }

    /// Whether a pod fits, else what the first check that fails says, in Kubernetes' order of checks.
    pub(super) fn check(&self, pod: &PodView) -> Result<(), Rejection> {
        let rejected = |reason: &str, resolvable| Err(Rejection { reasons: vec![reason.to_owned()], resolvable });
        let tolerations = pod.tolerations();
        if self.node.unschedulable && !flag_taint().is_tolerated_by(tolerations) {
            return rejected("node(s) were unschedulable", false);
        }
        let repels = |taint: &&Taint| {
            matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute") && !taint.is_tolerated_by(tolerations)
        };
        if self.node.taints.iter().any(|taint| repels(&taint)) {
            return rejected("node(s) had untolerated taint(s)", false);
        }
        if !pod.object.get("spec").is_some_and(|spec| self.node.is_selected_by(spec)) {
            return rejected("node(s) didn't match Pod's node affinity/selector", false);
        }
        let clash = |(port, protocol, address): &(i64, String, String)| {
            let any = |address: &str| address == "0.0.0.0";
            self.ports.iter().any(|(other, other_protocol, other_address)| {
                port == other
                    && protocol == other_protocol
                    && (any(address) || any(other_address) || address == other_address)
            })
        };
        if pod.host_ports.iter().any(clash) {
            return rejected("node(s) didn't have free ports for the requested pod ports", true);
        }
        let lacking: Vec<_> =
            pod.requests.iter().filter(|(name, amount)| **amount > 0 && self.free(name) < **amount).collect();
        if lacking.is_empty() {
            return Ok(());
        }
        let reason =
            |name: &str| if name == "pods" { "Too many pods".to_owned() } else { format!("Insufficient {name}") };
        // Removing pods helps only where the node is large enough.
        let resolvable = lacking.iter().all(|(name, amount)| self.node.allocatable.get(*name) >= Some(amount));
        Err(Rejection { reasons: lacking.into_iter().map(|(name, _)| reason(name)).collect(), resolvable })
    }

    fn free(&self, resource: &str) -> i64 {
        self.node.allocatable.get(resource).copied().unwrap_or(0) - self.used.get(resource).copied().unwrap_or(0)
    }

    /// Higher is better: least allocated, after taints that only discourage.
    pub(super) fn score(&self, pod: &PodView) -> i64 {
        /// Scores are per mille, as finer than Kubernetes' percents.
        const FULL: i64 = 1000;
        let share = |resource: &str| {
            let all = self.node.allocatable.get(resource).copied().unwrap_or(0);
            let left = self.free(resource) - pod.requests.get(resource).copied().unwrap_or(0);
            // In wide numbers: memory times a thousand does not fit otherwise.
            let share = i128::from(left.max(0)) * i128::from(FULL) / i128::from(all.max(1));
            i64::try_from(share).unwrap_or(FULL)
        };
        let discouraged =
            |taint: &&Taint| taint.effect == "PreferNoSchedule" && !taint.is_tolerated_by(pod.tolerations());
        let penalties = self.node.taints.iter().filter(discouraged).count();
        (share("cpu") + share("memory")) / 2 - i64::try_from(penalties).unwrap_or(0) * FULL
    }
}

fn flag_taint() -> Taint {
    Taint { key: UNSCHEDULABLE.to_owned(), value: String::new(), effect: "NoSchedule".to_owned(), since: None }
}

/// Why one node does not take a pod.
#[derive(Debug)]
pub(super) struct Rejection {
    reasons: Vec<String>,
    /// Whether removing other pods could help.
    resolvable: bool,
}

/// How many nodes were rejected for each reason.
#[derive(Debug, Default)]
pub(super) struct Rejections {
    counts: BTreeMap<String, usize>,
    resolvable: usize,
}

impl Rejections {
    pub(super) fn add(&mut self, rejection: Rejection) {
        self.resolvable += usize::from(rejection.resolvable);
        for reason in rejection.reasons {
            *self.counts.entry(reason).or_default() += 1;
        }
    }

    /// The message as Kubernetes writes it: reasons with their counts, sorted as text, and what preemption would bring.
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
