//! PodDisruptionBudgets when the removal of a node begins to disrupt its pods. The API server enforces them for each
//! eviction, but a node whose pods may not be evicted must not be given up voluntarily.

use super::{Observer, has_deadline};
use jiff::Timestamp;
use plimsoll_sim::apiserver::selector::LabelSelector;
use plimsoll_sim::apiserver::store::{ChangeKind, Event};
use plimsoll_sim::apiserver::{Audit, object};
use serde_json::Value;

/// A PodDisruptionBudget, with what it has allowed.
#[derive(Debug)]
pub(super) struct PodBudget {
    namespace: String,
    selector: LabelSelector,
    /// Number of disruptions that its status allows.
    allowed: i64,
    /// Earlier numbers, each with the time at which it changed, or a little later.
    earlier: Vec<(Timestamp, i64)>,
}

impl Observer {
    /// Replays a change of a budget. Changes are read late, at `now`. Until then, an actuator may not know a new budget
    /// or a new spec.
    pub(super) fn note_pod_budget(&mut self, event: &Event, now: Timestamp) {
        let budget = &event.object;
        let namespace = object::namespace(budget).to_owned();
        let key = format!("{namespace}/{}", object::name(budget));
        let known = self.pod_budgets.remove(&key);
        let spec = object::at(budget, &["spec"]);
        if event.kind == ChangeKind::Deleted
            || object::text(budget, &["spec", "unhealthyPodEvictionPolicy"]) == "AlwaysAllow"
        {
            return;
        }
        let is_same = event.previous.as_deref().is_some_and(|before| object::at(before, &["spec"]) == spec);
        let allowed = object::integer(budget, &["status", "disruptionsAllowed"]).unwrap_or(0);
        let earlier = match known.filter(|_| is_same) {
            Some(mut known) => {
                known.earlier.push((now, known.allowed));
                known.earlier
            }
            None => vec![(now, i64::MAX)],
        };
        let selector = LabelSelector::of_object(object::at(budget, &["spec", "selector"]));
        self.pod_budgets.insert(key, PodBudget { namespace, selector, allowed, earlier });
    }

    /// A removal that is not forced deletes the NodeClaim only if each budget of the node's pods allows a disruption,
    /// as far as the actuator can know: one is enough, since the drain continues as the budget permits. Drift does not
    /// wait if the drain has a deadline.
    pub(super) fn check_pod_budgets(
        &self,
        claim: &Value,
        command: &Value,
        node: &Value,
        by: &Audit,
    ) -> Result<(), String> {
        if object::text(command, &["reason"]) == "Drifted" && has_deadline(claim) {
            return Ok(());
        }
        for pod in self.pods_on(object::name(node)).filter(|pod| object::condition_is_true(pod, "Ready")) {
            let namespace = object::namespace(pod);
            let covers = |budget: &PodBudget| budget.namespace == namespace && budget.selector.matches(pod);
            for (name, budget) in self.pod_budgets.iter().filter(|(_, budget)| covers(budget)) {
                let earlier = budget.earlier.iter().filter(|(until, _)| !self.is_known(*until, by.sent));
                let most = earlier.map(|(_, allowed)| *allowed).fold(budget.allowed, i64::max);
                if most < 1 {
                    let pod = object::name(pod);
                    return Err(format!(
                        "a node was removed although PodDisruptionBudget {name} of pod {pod} allows nothing: {by:?}"
                    ));
                }
            }
        }
        Ok(())
    }
}
