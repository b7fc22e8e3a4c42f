//! The loop of collection: instances that nobody claims, claims whose instance is gone (safety rule 14).

use super::{Absence, ClaimFacts, ClaimVerdict, InstanceVerdict, LiveClaim, judge_claim, judge_instance};
use crate::context::Context;
use crate::launch::record::{annotation, awaits_instance, group_of};
use crate::leadership::epoch_of;
use crate::ports::{Instance, InstanceFilter};
use k8s_openapi::api::core::v1::Node;
use plimsoll_api::NodeClaim;
use plimsoll_model::names::{annotation as key, tag};
use plimsoll_model::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Two rounds confirm an absence; what is missed costs a minute's price.
const EVERY: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Memory {
    claims: BTreeMap<String, Absence>,
    instances: BTreeMap<String, Absence>,
}

/// Collects until `stop`.
pub async fn run(context: Context, stop: CancellationToken) {
    let mut memory = Memory::default();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        if let Err(error) = round(&context, &mut memory).await {
            tracing::warn!(error, "collection");
        }
    }
}

async fn round(context: &Context, memory: &mut Memory) -> Result<(), String> {
    // Instances first: a claim that is listed afterwards knows at least as much.
    let instances = instances(context).await?;
    let claims = claims(context).await?;
    collect_instances(context, memory, &instances, &claims).await;
    collect_claims(context, memory, &instances, &claims).await;
    Ok(())
}

async fn instances(context: &Context) -> Result<Vec<Instance>, String> {
    let filter = InstanceFilter::Cluster { cluster: context.settings.cluster_name.clone() };
    context.cloud_reads.all_instances(&filter).await.map_err(|error| error.to_string())
}

async fn claims(context: &Context) -> Result<Vec<NodeClaim>, String> {
    context.reads.claims().await.map_err(|error| error.to_string())
}

fn instance_id(claim: &NodeClaim) -> Option<&str> {
    claim.status.as_ref()?.provider_id.as_deref()?.rsplit('/').next().filter(|id| !id.is_empty())
}

async fn collect_instances(context: &Context, memory: &mut Memory, instances: &[Instance], claims: &[NodeClaim]) {
    let claimed: BTreeSet<&str> = claims.iter().filter_map(instance_id).collect();
    // An instance of a group that still waits for some is a match to come.
    let awaited: BTreeSet<String> =
        claims.iter().filter(|claim| awaits_instance(claim)).filter_map(group_of).map(|group| group.id).collect();
    let mut absences = BTreeMap::new();
    for instance in instances {
        let of_group = instance.tags.get(tag::LAUNCH_GROUP).is_some_and(|group| awaited.contains(group));
        let claim = if claimed.contains(instance.id.as_str()) || of_group {
            LiveClaim::Present
        } else {
            let mut absence = memory.instances.get(&instance.id).copied().unwrap_or_default();
            absence.missed(context.now());
            absences.insert(instance.id.clone(), absence);
            LiveClaim::Absent(absence)
        };
        let verdict = judge_instance(instance, &context.settings.cluster_name, claim, context.now());
        if verdict == InstanceVerdict::Terminate {
            terminate(context, instance).await;
        }
    }
    memory.instances = absences;
}

async fn terminate(context: &Context, instance: &Instance) {
    tracing::warn!(instance = instance.id, "no claim names this instance, it is ended");
    context.metrics.instances_collected.with_label_values(&["unclaimed"]).inc();
    let mut answer = Ok(None);
    let ids = [instance.id.clone()];
    match context.cloud.terminate(&ids, |_, said| answer = said).await.map(|()| answer) {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => return tracing::warn!(instance = instance.id, %error, "it is still there"),
        Err(error) => return tracing::warn!(instance = instance.id, %error, "it is still there"),
    }
    let id = instance.provider_id();
    let is_its = |node: &Node| node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()) == Some(id.as_str());
    if let Some(node) = context.stores.nodes.find(is_its) {
        if let Err(error) = context.writes.delete(node.as_ref(), None).await {
            tracing::warn!(node = node.metadata.name, %error, "its Node is still there");
        }
    }
}

async fn collect_claims(context: &Context, memory: &mut Memory, instances: &[Instance], claims: &[NodeClaim]) {
    let living: BTreeSet<&str> =
        instances.iter().filter(|instance| instance.state.is_alive()).map(|instance| instance.id.as_str()).collect();
    let mut absences = BTreeMap::new();
    for claim in claims.iter().filter(|claim| claim.metadata.deletion_timestamp.is_none()) {
        // Those without an instance are the launcher's.
        let (Some(instance), Some(uid)) = (instance_id(claim), claim.metadata.uid.clone()) else { continue };
        if living.contains(instance) || annotation(claim, key::OWNER) != Some(key::OWNER_VALUE) {
            continue;
        }
        let mut absence = memory.claims.get(&uid).copied().unwrap_or_default();
        absence.missed(context.now());
        absences.insert(uid, absence);
        if judge_claim(&facts(context, claim, absence), context.now()) == ClaimVerdict::Delete {
            tracing::warn!(claim = claim.metadata.name, instance, "its instance is gone, it is deleted");
            context.metrics.claims_collected.with_label_values(&["instance_gone"]).inc();
            if let Err(error) = context.writes.delete(claim, None).await {
                tracing::warn!(claim = claim.metadata.name, %error, "it is still there");
            }
        }
    }
    memory.claims = absences;
}

fn facts(context: &Context, claim: &NodeClaim, instance: Absence) -> ClaimFacts {
    let provider_id = claim.status.as_ref().and_then(|status| status.provider_id.as_deref());
    let ready = |node: &Node| {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|it| it.type_ == "Ready" && it.status == "True")
    };
    let is_its = |node: &Node| node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()) == provider_id;
    let created = claim.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_millisecond());
    ClaimFacts {
        attempted: true,
        has_provider_id: true,
        of_older_epoch: epoch_of(claim).is_some_and(|epoch| epoch < context.fence.epoch()),
        node_ready: context.stores.nodes.find(is_its).is_some_and(|node| ready(&node)),
        created: Timestamp(created),
        instance,
    }
}
