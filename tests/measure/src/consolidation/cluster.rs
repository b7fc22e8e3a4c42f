//! A cluster in which plans are executed immediately.

use crate::landing::bind_pending;
use anyhow::{Context as _, Result};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use plimsoll_api::{Pod, PodPhase};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::names::taint;
use plimsoll_model::plan::{Plan, PodRef};
use plimsoll_model::taints::{Taint, TaintEffect};
use plimsoll_model::time::{Millis, Timestamp};
use plimsoll_snapshot::Objects;
use plimsoll_workloads::bench::node;
use plimsoll_workloads::{Case, NOW, Question};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Time from one plan to the next: new nodes boot and old ones are drained.
const ROUND: Millis = Millis::from_seconds(300);

/// Where the pods of removed nodes are bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Landing {
    /// On their planned nodes, as long as kube-scheduler's filters pass there.
    Planned,
    /// Where kube-scheduler binds pods that nobody nominates.
    KubeScheduler,
}

/// Objects of the cluster, and the available offerings.
pub(super) struct Cluster {
    landing: Landing,
    objects: Objects,
    catalog: Catalog,
    launched: usize,
    now: Timestamp,
}

/// Result of a plan.
pub(super) struct Outcome {
    /// Pods that were evicted, by `namespace/name`.
    pub(super) moved: Vec<String>,
    /// Pods that kube-scheduler has no node for.
    pub(super) stranded: usize,
    /// Pods that kube-scheduler binds to another node than planned.
    pub(super) elsewhere: usize,
}

impl Cluster {
    pub(super) fn new(case: &Case, landing: Landing) -> Result<Self> {
        Ok(Self { landing, objects: case.typed_objects()?, catalog: case.catalog.catalog(), launched: 0, now: NOW })
    }

    pub(super) fn question(&self) -> Result<Question> {
        let mut question = Question::at(&self.objects, self.catalog.clone(), self.now).map_err(anyhow::Error::msg)?;
        question.snapshot.sort();
        Ok(question)
    }

    /// Launches the nodes of the plan with their cheapest offerings, deletes the removed nodes, and binds their pods
    /// and pending pods as kube-scheduler would. Pods that were pending before are nominated to nodes of the plan.
    pub(super) fn carry_out(&mut self, plan: &Plan) -> Result<Outcome> {
        let mut targets: BTreeMap<String, String> = BTreeMap::new();
        for launch in &plan.launches {
            let choice = launch.offerings.first().context("a launch without offerings")?;
            let it = self.catalog.get(&choice.instance_type).context("a type that the catalog lacks")?;
            let is_chosen = |offering: &&plimsoll_model::catalog::Offering| {
                offering.zone == choice.zone && offering.capacity_type == choice.capacity_type
            };
            let offering = it.offerings.iter().find(is_chosen).context("an offering that the catalog lacks")?;
            self.launched += 1;
            let name = format!("new-{}", self.launched);
            let manifest = node(&name, launch.node_pool.as_str(), it, offering, &self.catalog.region);
            self.objects.nodes.push(serde_json::from_value(manifest)?);
            aim(&mut targets, &launch.pods, &name);
        }
        let gone: BTreeSet<&str> = plan.terminations.iter().map(|termination| termination.node.as_str()).collect();
        for to in &plan.placements {
            aim(&mut targets, &to.pods, to.node.as_str());
        }
        let moved_to = plan.terminations.iter().flat_map(|termination| &termination.moved_to);
        let mut planned = targets.clone();
        moved_to.for_each(|to| aim(&mut planned, &to.pods, to.node.as_str()));
        if self.landing == Landing::Planned {
            targets.clone_from(&planned);
        }
        self.objects.nodes.retain(|one| !gone.contains(one.metadata.name.as_deref().unwrap_or_default()));
        self.now = self.now.plus(ROUND);
        let created = jiff::Timestamp::from_millisecond(self.now.0)?;
        let mut moved = Vec::new();
        for pod in &mut self.objects.pods {
            let on = pod.node_name.as_deref();
            if on.is_some_and(|on| gone.contains(on)) {
                if self.landing == Landing::KubeScheduler {
                    targets.remove(&full_name(pod));
                }
                moved.push(full_name(pod));
                bind(pod, None);
                Arc::make_mut(pod).metadata.creation_timestamp = Some(Time(created));
            }
        }
        let (stranded, elsewhere) = self.schedule(plan, &targets, &planned)?;
        Ok(Outcome { moved, stranded, elsewhere })
    }

    /// Binds pending pods: first to their nominated nodes, if these pass the filters, then in random order to the best
    /// node, preferably one that is not to be removed next. Returns the number of pods without a node, and the number
    /// on another node than `planned`.
    fn schedule(
        &mut self,
        plan: &Plan,
        targets: &BTreeMap<String, String>,
        planned: &BTreeMap<String, String>,
    ) -> Result<(usize, usize)> {
        let mut snapshot = self.question()?.snapshot;
        for node in snapshot.nodes.iter_mut().filter(|node| plan.postponed_removals.contains(&node.name)) {
            node.taints.push(Taint {
                key: taint::REMOVAL_POSTPONED.to_owned(),
                value: String::new(),
                effect: TaintEffect::PreferNoSchedule,
            });
        }
        let bound = bind_pending(&snapshot, targets);
        let elsewhere = bound.iter().filter(|(pod, node)| planned.get(*pod) != Some(*node)).count();
        let mut stranded = 0;
        for pod in &mut self.objects.pods {
            match bound.get(&full_name(pod)) {
                Some(node) => bind(pod, Some(node.clone())),
                None => stranded += usize::from(pod.node_name.is_none()),
            }
        }
        Ok((stranded, elsewhere))
    }
}

fn aim(targets: &mut BTreeMap<String, String>, pods: &[PodRef], node: &str) {
    targets.extend(pods.iter().map(|pod| (pod.uid.to_string(), node.to_owned())));
}

fn full_name(pod: &Pod) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    format!("{}/{}", text(&pod.metadata.namespace), text(&pod.metadata.name))
}

fn bind(pod: &mut Arc<Pod>, node: Option<String>) {
    let pod = Arc::make_mut(pod);
    pod.status.phase = Some(if node.is_some() { PodPhase::Running } else { PodPhase::Pending });
    pod.node_name = node;
}
