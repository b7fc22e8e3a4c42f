//! The NodeClaim object, as Karpenter writes it with Plimsoll's annotations.

use crate::durable;
use crate::launch::Admitted;
use crate::ledger::reserved_text;
use crate::state::launch_group::GroupKey;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use plimsoll_api::node_claim::ResourceRequirements;
use plimsoll_api::{EC2NodeClass, NodeClaim, NodeClaimSpec, NodePool, Requirement, ResourceList, hash};
use plimsoll_model::identity::PodUid;
use plimsoll_model::names::{TERMINATION_FINALIZER, annotation, label};
use plimsoll_model::quantity::format_amount;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of pods named on a claim. Pods beyond it are not reserved after a crash, which costs at most one
/// extra launch.
const MAX_PODS: usize = 512;
/// Maximum length of [`annotation::WHY`] in bytes.
const MAX_WHY: usize = 512;

/// The NodeClaim of a launch, without its launch request. `epoch` is the leader's, `class_hash` the node class's hash.
#[must_use]
pub fn object(admitted: &Admitted, group: &GroupKey, epoch: u64, class_hash: &str) -> NodeClaim {
    let launch = &admitted.launch;
    let mut requests = ResourceList::new();
    for (resource, amount) in launch.requests.iter().filter(|(_, amount)| *amount > 0) {
        requests.insert(resource.to_owned(), Quantity(format_amount(resource, amount)));
    }
    let template = &admitted.pool.spec.template;
    let spec = NodeClaimSpec {
        requirements: admitted.requirements.to_api().iter().map(Requirement::from).collect(),
        resources: Some(ResourceRequirements { requests }),
        ..NodeClaimSpec::from(&template.spec)
    };
    let mut labels = admitted.labels();
    // The kubelet is told neither tenancy nor placement group; the Node gets them from its claim.
    labels.insert(label::INSTANCE_TENANCY.to_owned(), admitted.tenancy().to_owned());
    labels.extend(admitted.placement_labels());
    NodeClaim {
        metadata: ObjectMeta {
            name: Some(admitted.claim.clone()),
            labels: Some(labels),
            annotations: Some(annotations(admitted, group, epoch, class_hash)),
            finalizers: Some(vec![TERMINATION_FINALIZER.to_owned()]),
            owner_references: owner(&admitted.pool).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    }
}

fn annotations(admitted: &Admitted, group: &GroupKey, epoch: u64, class_hash: &str) -> BTreeMap<String, String> {
    let launch = &admitted.launch;
    let template = &admitted.pool.spec.template;
    // Ours are what the actuator knows about the claim, such as its removal.
    let of_template = template.annotations().filter(|(key, _)| !key.starts_with(annotation::PREFIX));
    let mut annotations: BTreeMap<String, String> =
        of_template.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let pods: BTreeSet<&PodUid> = launch.pods.iter().take(MAX_PODS).map(|pod| &pod.uid).collect();
    let mut why = launch.why.clone();
    while why.len() > MAX_WHY {
        why.pop();
    }
    for (key, value) in [
        (annotation::NODE_POOL_HASH, hash::node_pool(template)),
        (annotation::NODE_POOL_HASH_VERSION, hash::NODE_POOL_VERSION.to_owned()),
        (annotation::EC2_NODE_CLASS_HASH, class_hash.to_owned()),
        (annotation::EC2_NODE_CLASS_HASH_VERSION, hash::EC2_NODE_CLASS_VERSION.to_owned()),
        (annotation::OWNER, annotation::OWNER_VALUE.to_owned()),
        (annotation::ACTION_ID, launch.action_id.0.clone()),
        // Cannot fail: a struct of strings and numbers.
        (annotation::LAUNCH_GROUP, durable::write(group).unwrap_or_default()),
        (annotation::PODS, json(&pods)),
        (annotation::RESERVED, reserved_text(&admitted.reserved)),
        (annotation::EPOCH, epoch.to_string()),
        (annotation::WHY, why),
        (annotation::MIN_VALUES_RELAXED, admitted.is_min_values_relaxed().to_string()),
    ] {
        annotations.insert(key.to_owned(), value);
    }
    annotations.extend(instance_profile(&admitted.class));
    annotations
}

/// The annotation that keeps the instance profile of a launch. The profile of the class may change before EC2 answers.
pub(in crate::launch) fn instance_profile(class: &EC2NodeClass) -> Option<(String, String)> {
    let profile = class.status.as_ref()?.instance_profile.clone().filter(|profile| !profile.is_empty())?;
    Some((annotation::INSTANCE_PROFILE_NAME.to_owned(), profile))
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
