//! Plans again for the current cluster. In the product, the first plan is not final: when a pod is rejected after its
//! node is in service, its reservation ends, the watcher's next snapshot contains the pod as pending together with the
//! bound pods, the scheduler places it, and the actuator nominates the new node.

use super::case::Planned;
use super::case_client::CaseClient;
use super::case_objects::{CaseObjects, Wanted};
use super::nominate;
use super::play::{Shared, unbound};
use super::pod_watch::Pods;
use super::report::Outcome;
use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use plimsoll_model::plan::{Plan, PlanOptions};
use plimsoll_snapshot::{Objects, full_name};
use plimsoll_workloads::Question;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum number of further plans. Each depends on the pods bound by the previous plan. A pod that is rejected after
/// three plans would keep moving, and a user would have waited minutes.
const MAX_ROUNDS: usize = 3;

/// Plans again for the pods of `waiting` and nominates their nodes, as long as the plan launches nothing for them: the
/// comparison must detect plans that need another node for a pod that the first plan placed. Returns the pods that are
/// still pending.
pub(super) async fn rounds(
    shared: &Shared,
    planned: &Arc<Planned>,
    case_objects: &CaseObjects,
    case_client: &CaseClient,
    mut waiting: Vec<Wanted>,
    outcome: &mut Outcome,
) -> Result<Vec<Wanted>> {
    for _ in 0..MAX_ROUNDS {
        if waiting.is_empty() {
            break;
        }
        let volumes = case_client.volumes(case_objects).await?;
        let pods = shared.pod_watch.pods(case_client.seed());
        let (to_plan, objects) = (Arc::clone(planned), objects_now(planned, case_objects, &pods, volumes));
        let plan = tokio::task::spawn_blocking(move || plan(&to_plan, &objects)).await??;
        outcome.rounds += 1;
        let names: BTreeSet<&str> = waiting.iter().map(|it| it.name.as_str()).collect();
        if plan.launched_pods().any(|pod| names.contains(pod.name.as_str())) {
            outcome.needs_node = true;
            break;
        }
        let replan = places(&plan, &waiting);
        nominate::take_back(case_client, &waiting, &replan).await?;
        let look = unbound(shared, case_client, case_objects, &waiting);
        let left: BTreeSet<String> = nominate::during(shared, case_client, case_objects, &replan, look)
            .await?
            .into_iter()
            .map(|it| it.name)
            .collect();
        waiting.retain(|it| left.contains(&it.name));
    }
    Ok(waiting)
}

/// Plans with the options of the first plan.
fn plan(planned: &Planned, objects: &Objects) -> Result<Plan> {
    let catalog = planned.catalogs.values().next().context("a case without catalog")?;
    let Question { snapshot, catalogs } = Question::of(objects, catalog.clone()).map_err(anyhow::Error::msg)?;
    let options = PlanOptions { disruption: false, ..PlanOptions::default() };
    Ok(plimsoll_solver::solve(&snapshot, &catalogs, &options))
}

/// The pods of `waiting` that the plan places, with their nodes.
fn places(plan: &Plan, waiting: &[Wanted]) -> Vec<Wanted> {
    let mut nodes: BTreeMap<&str, &str> = BTreeMap::new();
    for placement in &plan.placements {
        nodes.extend(placement.pods.iter().map(|pod| (pod.name.as_str(), placement.node.as_str())));
    }
    let placed = |it: &Wanted| Some(Wanted { node: (*nodes.get(it.name.as_str())?).to_owned(), ..it.clone() });
    waiting.iter().filter_map(placed).collect()
}

/// Objects of the case with the plan's nodes in service, their DaemonSet pods, and each pod on its current node.
fn objects_now(planned: &Planned, case_objects: &CaseObjects, pods: &Pods, volumes: Volumes) -> Objects {
    let mut objects = planned.objects.clone();
    let names: BTreeMap<String, &str> =
        case_objects.nodes.iter().map(|node| (case_objects.isolation.name(&node.name), node.name.as_str())).collect();
    let place = |it: &Wanted| {
        let node = pods.get(&full_name(&it.pod.metadata)).and_then(|seen| seen.node.as_ref())?;
        names.get(node).map(|name| (*name).to_owned())
    };
    let mut wanted: BTreeMap<&str, Option<String>> =
        case_objects.wanted.iter().map(|it| (it.name.as_str(), place(it))).collect();
    for pod in &mut objects.pods {
        if let Some(node) = wanted.remove(full_name(&pod.metadata).as_str()) {
            Arc::make_mut(pod).node_name = node;
        }
    }
    for node in case_objects.nodes.iter().filter(|node| node.bought) {
        objects.nodes.push(node.plain());
        objects.pods.extend(case_objects.plain_daemons(planned, node).into_iter().map(|pod| Arc::new(pod.into())));
    }
    volumes.add_to(&mut objects, case_objects);
    objects
}

/// Current claims and volumes.
pub(super) struct Volumes {
    pub(super) claims: Vec<PersistentVolumeClaim>,
    pub(super) volumes: Vec<PersistentVolume>,
}

impl Volumes {
    /// Adds the volumes of claims that were bound since: pods that share a claim must run where its volume is.
    fn add_to(self, objects: &mut Objects, case_objects: &CaseObjects) {
        let isolation = &case_objects.isolation;
        for live in &self.claims {
            let volume = live.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).filter(|it| !it.is_empty());
            let Some(volume) = volume else { continue };
            let same = |it: &&mut PersistentVolumeClaim| {
                let namespace = it.metadata.namespace.as_deref().map(|name| isolation.name(name));
                it.metadata.name == live.metadata.name && namespace == live.metadata.namespace
            };
            let Some(claim) = objects.persistent_volume_claims.iter_mut().find(same) else { continue };
            let spec = claim.spec.get_or_insert_default();
            if spec.volume_name.as_deref().is_some_and(|name| !name.is_empty()) {
                continue;
            }
            let name = isolation.plain(volume);
            spec.volume_name = Some(name.to_owned());
            let owner = ObjectReference {
                namespace: claim.metadata.namespace.clone(),
                name: claim.metadata.name.clone(),
                ..ObjectReference::default()
            };
            let known = objects.persistent_volumes.iter_mut().find(|it| it.metadata.name.as_deref() == Some(name));
            match (known, self.volumes.iter().find(|it| it.metadata.name.as_deref() == Some(volume))) {
                (Some(known), _) => known.spec.get_or_insert_default().claim_ref = Some(owner),
                (None, Some(made)) => objects.persistent_volumes.push(made.clone()),
                (None, None) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::case::Case;
    use super::super::pod_watch::PodRecord;
    use super::*;

    fn volumes() -> Volumes {
        Volumes { claims: Vec::new(), volumes: Vec::new() }
    }

    /// Every pod on its planned node, except for one.
    fn all_but(case_objects: &CaseObjects, but: &str) -> Pods {
        let bound = case_objects.wanted.iter().filter(|it| it.name != but);
        let seen =
            |it: &Wanted| PodRecord { node: Some(case_objects.isolation.name(&it.node)), ..PodRecord::default() };
        bound.map(|it| (full_name(&it.pod.metadata), seen(it))).collect()
    }

    #[test]
    fn a_pod_that_was_not_bound_finds_a_place_among_the_others() -> Result<()> {
        for seed in 1..=12 {
            let planned = Case::random(seed)?.plan(&[])?;
            let case_objects = CaseObjects::new(&planned)?;
            for missing in case_objects.wanted.iter().take(3) {
                let pods = all_but(&case_objects, &missing.name);
                let plan = plan(&planned, &objects_now(&planned, &case_objects, &pods, volumes()))?;
                let destination = places(&plan, std::slice::from_ref(missing));
                assert_eq!(destination.len(), 1, "seed {seed}, {}: {plan:?}", missing.name);
                let launched = plan.launched_pods();
                assert_eq!(launched.filter(|pod| pods.keys().any(|it| it.ends_with(&pod.name))).count(), 0);
            }
        }
        Ok(())
    }
}
