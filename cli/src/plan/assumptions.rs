//! Plans for a changed cluster: without some nodes, or with more pods of some workloads.

use super::summary;
use crate::CommandError;
use crate::explain::{find_node, full_name, pods_by_workload, unknown};
use crate::input::Question;
use clap::Args;
use plimsoll_model::snapshot::Pod;
use plimsoll_scheduler::answer::{MAX_ADDED_PODS, add_pods, without_node};
use plimsoll_snapshot::{BudgetNodes, allowed_disruptions, budget_nodes};

/// Kinds of workloads, with their names in arguments.
const KINDS: [(&str, &[&str]); 4] = [
    ("Deployment", &["deployment", "deployments", "deploy"]),
    ("StatefulSet", &["statefulset", "statefulsets", "sts"]),
    ("ReplicaSet", &["replicaset", "replicasets", "rs"]),
    ("Job", &["job", "jobs"]),
];

/// Changes of the cluster that the plan assumes.
#[derive(Debug, Args)]
pub(super) struct AssumptionArguments {
    /// Plan as if this Node or NodeClaim were gone and its pods pending. Can be repeated.
    #[arg(long, value_name = "NAME")]
    without_node: Vec<String>,
    /// Plan as if this workload had COUNT more pods, e.g. deployment/web=5 or deployment/shop/web=5. Can be repeated.
    #[arg(long, value_name = "KIND/NAME=COUNT", value_parser = more_pods)]
    more: Vec<MorePods>,
}

/// Additional pods of a workload.
#[derive(Debug, Clone)]
struct MorePods {
    kind: &'static str,
    /// `name` or `namespace/name`.
    name: String,
    count: u32,
}

fn more_pods(text: &str) -> Result<MorePods, String> {
    let parts = text.rsplit_once('=').and_then(|(workload, count)| Some((workload.split_once('/')?, count)));
    let ((kind, name), count) = parts.ok_or("must be KIND/NAME=COUNT, such as deployment/web=5")?;
    let known = KINDS.iter().find(|(_, names)| names.contains(&kind.to_lowercase().as_str()));
    let (kind, _) = *known.ok_or_else(|| format!("{kind:?} is none of deployment, statefulset, replicaset and job"))?;
    let number = count.parse::<u32>().ok().filter(|number| (1..=MAX_ADDED_PODS).contains(number));
    let count = number.ok_or_else(|| format!("{count:?} is not a number from 1 to {MAX_ADDED_PODS}"))?;
    Ok(MorePods { kind, name: name.to_owned(), count })
}

impl AssumptionArguments {
    /// Changes the cluster of the question. Returns a line that states the changes, or nothing without changes.
    pub(super) fn apply(&self, question: &mut Question, namespace: &str) -> Result<String, CommandError> {
        let mut stated = Vec::new();
        for name in &self.without_node {
            let node = find_node(&question.snapshot, name)?.name.clone();
            without_node(&mut question.snapshot, &node);
            stated.push(format!("node {node} is gone"));
        }
        if !self.without_node.is_empty() {
            update_budgets(question);
        }
        let mut added = 0_u32;
        for MorePods { kind, name, count } in &self.more {
            let first = added;
            added = added.saturating_add(*count);
            if added > MAX_ADDED_PODS {
                let message = format!("--more: {added} pods in all, more than {MAX_ADDED_PODS}");
                return Err(CommandError::BadInput(message));
            }
            let what = kind.to_lowercase();
            let name = full_name(&what, name, None, namespace)?;
            let template = template(question, kind, &name)?;
            add_pods(&mut question.snapshot, &template, first..added);
            stated.push(format!("{what} {name} has {}", summary::count(*count as usize, "more pod")));
        }
        if stated.is_empty() {
            return Ok(String::new());
        }
        question.snapshot.sort();
        Ok(format!("Assumed: {}.\n", stated.join(", ")))
    }
}

/// Recomputes what the budgets of NodePools allow. Percentages refer to the nodes that are left.
fn update_budgets(question: &mut Question) {
    let Question { objects, snapshot, .. } = question;
    let nodes = budget_nodes(objects, &snapshot.nodes);
    for pool in &mut snapshot.node_pools {
        let named = |one: &&plimsoll_api::NodePool| one.metadata.name.as_deref() == Some(pool.name.as_str());
        let Some(object) = objects.node_pools.iter().find(named) else { continue };
        let counts = nodes.get(pool.name.as_str()).map(BudgetNodes::counts).unwrap_or_default();
        pool.disruption.allowed = allowed_disruptions(object, snapshot.now, counts);
    }
}

/// The first pod of the workload. All additional pods are like it.
fn template(question: &Question, kind: &'static str, name: &str) -> Result<Pod, CommandError> {
    let what = kind.to_lowercase();
    let members = pods_by_workload(&question.objects, kind);
    let Some(pods) = members.get(name) else {
        if let Some(why) = question.manifests.idle.get(&(kind, name.to_owned())) {
            return Err(CommandError::BadInput(format!("{what} {name} has no pods that others could be like: {why}")));
        }
        return Err(unknown(&what, name, members.into_keys().collect()));
    };
    let is_member = |pod: &&Pod| pod.moves() && !pod.terminating && pods.contains(&pod.full_name());
    let first = question.snapshot.pods.iter().filter(is_member).min_by_key(|pod| pod.full_name());
    first.cloned().ok_or_else(|| CommandError::BadInput(format!("{what} {name} has no pod that is planned")))
}
