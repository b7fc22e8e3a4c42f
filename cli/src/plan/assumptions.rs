//! Plans for a changed cluster: without some nodes or zones, or with more pods of some workloads.

use super::summary;
use crate::explain::{find_node, full_name, pods_by_workload, unknown};
use crate::input::Question;
use crate::{CommandError, ask};
use clap::Args;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::{CatalogId, NodeName};
use plimsoll_model::names::label;
use plimsoll_model::snapshot::{Pod, Snapshot};
use plimsoll_scheduler::answer::{MAX_ADDED_PODS, add_pods, without_nodes};
use plimsoll_snapshot::{BudgetNodes, allowed_disruptions, budget_nodes};
use std::collections::{BTreeMap, BTreeSet};

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
    /// Plan as if this zone were gone: its nodes are gone, their pods pending, and nothing is launched there. Can be
    /// repeated.
    #[arg(long, value_name = "ZONE")]
    without_zone: Vec<String>,
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

/// What a plan for the cluster without the assumptions is made from.
pub(super) struct Present {
    snapshot: Snapshot,
    catalogs: BTreeMap<CatalogId, Catalog>,
}

impl Present {
    /// A line about the plan without the assumptions. Empty if there is none. Afterwards, the question has no
    /// assumptions.
    pub(super) fn line(self, question: &mut Question, server: &ask::ServerArguments) -> String {
        (question.snapshot, question.catalogs) = (self.snapshot, self.catalogs);
        ask::plan(question, server).map(|(plan, _)| summary::without_assumptions(&plan)).unwrap_or_default()
    }
}

impl AssumptionArguments {
    /// What the question has before [`Self::apply`]; `None` if there are no assumptions.
    pub(super) fn present(&self, question: &Question) -> Option<Present> {
        let is_changed = !(self.without_node.is_empty() && self.without_zone.is_empty() && self.more.is_empty());
        is_changed.then(|| Present { snapshot: question.snapshot.clone(), catalogs: question.catalogs.clone() })
    }

    /// Changes the cluster of the question. Returns a line that states the changes, or nothing without changes.
    pub(super) fn apply(&self, question: &mut Question, namespace: &str) -> Result<String, CommandError> {
        self.without_zone.iter().try_for_each(|zone| check_zone(question, zone))?;
        let mut stated = Vec::new();
        for name in &self.without_node {
            let node = find_node(&question.snapshot, name)?.name.clone();
            stated.push(format!("node {node} is gone"));
            without_nodes(&mut question.snapshot, &BTreeSet::from([node]));
        }
        for zone in &self.without_zone {
            let nodes = question.snapshot.nodes.iter().filter(|node| node.labels.get(label::ZONE) == Some(zone));
            let nodes: BTreeSet<NodeName> = nodes.map(|node| node.name.clone()).collect();
            without_nodes(&mut question.snapshot, &nodes);
            stated.push(format!("zone {zone} is gone with {}", summary::count(nodes.len(), "node")));
        }
        if !self.without_zone.is_empty() {
            close_zones(question, &self.without_zone);
        }
        if !(self.without_node.is_empty() && self.without_zone.is_empty()) {
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

/// Refuses a zone that neither a catalog nor a node has.
fn check_zone(question: &Question, zone: &str) -> Result<(), CommandError> {
    let types = question.catalogs.values().flat_map(|catalog| &catalog.instance_types);
    let of_offerings = types.flat_map(|kind| &kind.offerings).map(|offering| offering.zone.as_str());
    let of_nodes = question.snapshot.nodes.iter().filter_map(|node| node.labels.get(label::ZONE)).map(String::as_str);
    let known: BTreeSet<&str> = of_offerings.chain(of_nodes).collect();
    if known.contains(zone) {
        return Ok(());
    }
    let known = if known.is_empty() { "none".to_owned() } else { known.into_iter().collect::<Vec<&str>>().join(", ") };
    Err(CommandError::BadInput(format!("there is no zone {zone}; known zones: {known}")))
}

/// Makes all offerings of the zones unavailable, as a zonal shift does. Spreads then count no such zone without nodes.
fn close_zones(question: &mut Question, zones: &[String]) {
    let mut closed_ids = BTreeMap::new();
    for (id, mut catalog) in std::mem::take(&mut question.catalogs) {
        let offerings = catalog.instance_types.iter_mut().flat_map(|kind| &mut kind.offerings);
        offerings.for_each(|offering| offering.available &= !zones.contains(&offering.zone));
        let closed_id = catalog.id();
        question.catalogs.insert(closed_id.clone(), catalog);
        closed_ids.insert(id, closed_id);
    }
    for pool in &mut question.snapshot.node_pools {
        pool.catalog = pool.catalog.take().map(|id| closed_ids.get(&id).cloned().unwrap_or(id));
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
