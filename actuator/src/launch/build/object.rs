//! The NodeClaim object, as Karpenter writes it (spec: core section 4.14) with Plimsoll's annotations.

use super::{LiveObjects, NarrowedLaunch};
use crate::durable;
use crate::ledger::reserved_text;
use crate::state::launch_group::LaunchGroup;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use plimsoll_api::node_claim::ResourceRequirements;
use plimsoll_api::{NodeClaim, NodeClaimSpec, NodePool, Requirement, ResourceList, hash};
use plimsoll_model::identity::PodUid;
use plimsoll_model::names::{TERMINATION_FINALIZER, annotation, label};
use plimsoll_model::quantity::format_amount;
use plimsoll_model::resources::Resources;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of pods named on a claim. Pods beyond it are not reserved after a crash, which costs at most one
/// extra launch.
const MAX_PODS: usize = 512;
/// Maximum length of [`annotation::WHY`] in bytes.
const MAX_WHY: usize = 512;

/// What a claim records about its launch group.
#[derive(Debug, Clone)]
pub struct GroupFacts<'a> {
    /// The group.
    pub group: &'a LaunchGroup,
    /// The leader's epoch.
    pub epoch: u64,
    /// The node class's hash.
    pub class_hash: &'a str,
    /// Resources that count against limits until the claim is launched.
    pub reserved: &'a Resources,
}

/// The NodeClaim of a launch, without its launch request.
#[must_use]
pub fn object(name: &str, narrowed: &NarrowedLaunch, live: LiveObjects<'_>, facts: &GroupFacts<'_>) -> NodeClaim {
    let launch = &narrowed.launch;
    let mut requests = ResourceList::new();
    for (resource, amount) in launch.requests.iter().filter(|(_, amount)| *amount > 0) {
        requests.insert(resource.to_owned(), Quantity(format_amount(resource, amount)));
    }
    let template = &live.pool.spec.template;
    let spec = NodeClaimSpec {
        requirements: narrowed.requirements.to_api().iter().map(Requirement::from).collect(),
        resources: Some(ResourceRequirements { requests }),
        ..NodeClaimSpec::from(&template.spec)
    };
    let mut labels = labels(narrowed, live);
    // The kubelet is not told the tenancy, as in Karpenter; the Node gets it from its claim.
    labels.insert(label::INSTANCE_TENANCY.to_owned(), narrowed.tenancy().to_owned());
    NodeClaim {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels),
            annotations: Some(annotations(narrowed, live, facts)),
            finalizers: Some(vec![TERMINATION_FINALIZER.to_owned()]),
            owner_references: owner(live.pool).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    }
}

/// The template's labels, and one value for each custom label of the pool that its requirements leave open.
pub(in crate::launch) fn labels(narrowed: &NarrowedLaunch, live: LiveObjects<'_>) -> BTreeMap<String, String> {
    let mut labels: BTreeMap<String, String> = BTreeMap::new();
    for requirement in narrowed.requirements.iter() {
        let is_custom = !label::is_well_known(&requirement.key) && !label::is_restricted(&requirement.key);
        if let Some(value) = requirement.values.first().filter(|_| is_custom && !requirement.complement) {
            labels.insert(requirement.key.clone(), value.clone());
        }
    }
    labels.extend(live.pool.spec.template.labels().map(|(key, value)| (key.to_owned(), value.to_owned())));
    labels.insert(label::NODE_POOL.to_owned(), narrowed.launch.node_pool.0.clone());
    labels.insert(label::EC2_NODE_CLASS.to_owned(), narrowed.launch.node_class.clone());
    labels
}

fn annotations(narrowed: &NarrowedLaunch, live: LiveObjects<'_>, facts: &GroupFacts<'_>) -> BTreeMap<String, String> {
    let launch = &narrowed.launch;
    let template = &live.pool.spec.template;
    let mut annotations: BTreeMap<String, String> =
        template.annotations().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let pods: BTreeSet<&PodUid> = launch.pods.iter().take(MAX_PODS).map(|pod| &pod.uid).collect();
    let mut why = launch.why.clone();
    while why.len() > MAX_WHY {
        why.pop();
    }
    for (key, value) in [
        (annotation::NODE_POOL_HASH, hash::node_pool(template)),
        (annotation::NODE_POOL_HASH_VERSION, hash::NODE_POOL_VERSION.to_owned()),
        (annotation::EC2_NODE_CLASS_HASH, facts.class_hash.to_owned()),
        (annotation::EC2_NODE_CLASS_HASH_VERSION, hash::EC2_NODE_CLASS_VERSION.to_owned()),
        (annotation::OWNER, annotation::OWNER_VALUE.to_owned()),
        (annotation::ACTION_ID, launch.action_id.0.clone()),
        // Cannot fail: a struct of strings and numbers.
        (annotation::LAUNCH_GROUP, durable::write(facts.group).unwrap_or_default()),
        (annotation::PODS, json(&pods)),
        (annotation::RESERVED, reserved_text(facts.reserved)),
        (annotation::EPOCH, facts.epoch.to_string()),
        (annotation::WHY, why),
    ] {
        annotations.insert(key.to_owned(), value);
    }
    annotations
}

fn json<T: serde::Serialize>(value: &T) -> String {
    // Cannot fail: only lists and structs of strings and numbers.
    serde_json::to_string(value).unwrap_or_default()
}

/// The pool owns its claims and waits for them in a foreground deletion, as in Karpenter.
fn owner(pool: &NodePool) -> Option<OwnerReference> {
    Some(OwnerReference {
        api_version: NodePool::api_version(&()).into_owned(),
        kind: NodePool::kind(&()).into_owned(),
        name: pool.metadata.name.clone()?,
        uid: pool.metadata.uid.clone()?,
        block_owner_deletion: Some(true),
        controller: None,
    })
}
