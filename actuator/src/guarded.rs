//! Objects that may be unreadable: valid for the API server, but not for our types. One of them must not hide the
//! others of its list.

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::error_boundary::InvalidObject;
use plimsoll_api::{
    CapacityBuffer, CapacityQuota, EC2NodeClass, NillableDuration, NodeClaim, NodeClaimSpec, NodeClaimStatus,
    NodeClassRef, NodeOverlay, NodePool, Pod,
};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::borrow::Cow;

/// Annotation of a partially read claim with the error. It exists in memory only: it is removed from what is read, and
/// writes contain only what they change.
const UNREADABLE: &str = "plimsoll.dev/unreadable";

/// An object, or why it is unreadable. Unlike [`kube::core::DeserializeGuard`], it keeps what is readable of a kind
/// that must not get lost: see [`PartialRead`].
#[derive(Debug, Clone)]
pub(crate) struct Guarded<K>(pub(crate) Result<K, Box<InvalidObject>>);

/// A kind of which an unreadable object is left out, unless [`PartialRead::read_partially`] says otherwise.
pub(crate) trait PartialRead: Resource + Sized {
    /// What is readable of an unreadable object; `None` leaves it out.
    fn read_partially(_object: &Value, _invalid: &InvalidObject) -> Option<Self> {
        None
    }
}

impl PartialRead for CapacityBuffer {}
impl PartialRead for CapacityQuota {}
impl PartialRead for ConfigMap {}
impl PartialRead for EC2NodeClass {}
impl PartialRead for Node {}
impl PartialRead for NodeOverlay {}
impl PartialRead for NodePool {}
impl PartialRead for Pod {}
impl PartialRead for PodDisruptionBudget {}

impl PartialRead for NodeClaim {
    /// An unreadable claim is kept, because it may have an instance. Without the claim, garbage collection would end
    /// the instance, the ledger would not count it, and a deleted claim would keep its finalizer for ever.
    fn read_partially(object: &Value, invalid: &InvalidObject) -> Option<Self> {
        let mut metadata = invalid.metadata.clone();
        metadata.annotations.get_or_insert_default().insert(UNREADABLE.to_owned(), invalid.error.clone());
        let spec = object.get("spec").unwrap_or(&Value::Null);
        Some(Self { metadata, spec: partial_spec(spec), status: object.get("status").map(partial_status) })
    }
}

fn partial_spec(spec: &Value) -> NodeClaimSpec {
    // Another provider's claim is recognized by its reference. Without one, the claim may be ours.
    let ours =
        || NodeClassRef { group: "karpenter.k8s.aws".to_owned(), kind: "EC2NodeClass".to_owned(), name: String::new() };
    // Nothing is done at a time that is unknown.
    let expires = |text: &Value| NillableDuration::deserialize(text).unwrap_or_else(|_| NillableDuration::never());
    NodeClaimSpec {
        taints: field(spec, "taints").unwrap_or_default(),
        startup_taints: field(spec, "startupTaints").unwrap_or_default(),
        requirements: field(spec, "requirements").unwrap_or_default(),
        resources: field(spec, "resources"),
        node_class_ref: field(spec, "nodeClassRef").unwrap_or_else(ours),
        termination_grace_period: field(spec, "terminationGracePeriod"),
        expire_after: spec.get("expireAfter").map(expires),
    }
}

fn partial_status(status: &Value) -> NodeClaimStatus {
    let conditions = status.get("conditions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    NodeClaimStatus {
        node_name: field(status, "nodeName"),
        provider_id: field(status, "providerID"),
        image_id: field(status, "imageID"),
        capacity: field(status, "capacity").unwrap_or_default(),
        allocatable: field(status, "allocatable").unwrap_or_default(),
        last_pod_event_time: field(status, "lastPodEventTime"),
        conditions: conditions.iter().filter_map(|condition| Deserialize::deserialize(condition).ok()).collect(),
    }
}

/// A field, if it is there and readable.
fn field<T: DeserializeOwned>(object: &Value, name: &str) -> Option<T> {
    T::deserialize(object.get(name)?).ok()
}

/// Why a claim is unreadable; `None` if it is readable. Of an unreadable claim only some fields are known, so it is not
/// launched, registered, replaced, given up or found to have drifted. It is counted, and it is terminated once somebody
/// deletes it.
pub(crate) fn unreadable(claim: &NodeClaim) -> Option<&str> {
    claim.metadata.annotations.as_ref()?.get(UNREADABLE).map(String::as_str)
}

impl<'de, K: PartialRead + DeserializeOwned> Deserialize<'de> for Guarded<K> {
    /// Fails only if the metadata is unreadable: then the object has no name.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = Value::deserialize(deserializer)?;
        let error = match K::deserialize(&object) {
            Ok(mut readable) => {
                // In the cluster, the annotation has no meaning.
                readable.meta_mut().annotations.iter_mut().for_each(|all| drop(all.remove(UNREADABLE)));
                return Ok(Self(Ok(readable)));
            }
            Err(error) => error.to_string(),
        };
        let metadata = object.get("metadata").map(ObjectMeta::deserialize).transpose().map_err(D::Error::custom)?;
        let invalid = InvalidObject { error, metadata: metadata.unwrap_or_default() };
        Ok(Self(K::read_partially(&object, &invalid).ok_or_else(|| Box::new(invalid))))
    }
}

impl<K: Resource> Resource for Guarded<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dynamic)
    }

    fn group(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dynamic)
    }

    fn version(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dynamic)
    }

    fn plural(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dynamic)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|invalid| &invalid.metadata, K::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.as_mut().map_or_else(|invalid| &mut invalid.metadata, K::meta_mut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_api::condition::node_claim::INITIALIZED;
    use serde_json::json;

    fn read<K: PartialRead + DeserializeOwned>(object: Value) -> Result<K, Box<InvalidObject>> {
        serde_json::from_value::<Guarded<K>>(object).unwrap().0
    }

    /// A launched claim; `spec` is merged into its spec.
    fn claim(spec: &Value) -> Value {
        let mut claim = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": "c", "uid": "u", "labels": {"karpenter.sh/nodepool": "default"}},
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "large"},
                "requirements": [{"key": "team", "operator": "In", "values": ["a"]}],
                "terminationGracePeriod": "1h",
            },
            "status": {
                "providerID": "aws:///zone-a/i-1", "nodeName": "n", "capacity": {"cpu": "4"},
                "conditions": [
                    {"type": "Initialized", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z",
                     "reason": "Initialized", "message": ""},
                ],
            },
        });
        let merged = claim["spec"].as_object_mut().unwrap();
        merged.extend(spec.as_object().unwrap().clone());
        claim
    }

    #[test]
    fn an_unreadable_claim_keeps_its_instance_and_never_expires() {
        let mut object = claim(&json!({"expireAfter": "2562048h"}));
        let odd = json!({"type": "Odd", "status": "True", "lastTransitionTime": "never"});
        object["status"]["conditions"].as_array_mut().unwrap().push(odd);
        let claim: NodeClaim = read(object).unwrap();
        assert!(unreadable(&claim).unwrap().contains("too long"), "{claim:?}");
        assert_eq!((claim.provider_id(), claim.node_name()), (Some("aws:///zone-a/i-1"), Some("n")));
        assert!(claim.spec.expire_after().value().is_none());
        assert_eq!(claim.spec.node_class_ref.name, "large");
        assert_eq!(claim.spec.requirements.len(), 1);
        assert!(claim.spec.termination_grace_period.is_some());
        assert!(claim.true_condition(INITIALIZED).is_some());
        assert_eq!(claim.conditions().len(), 1, "the other condition is unreadable");
        assert_eq!(claim.status.unwrap().capacity["cpu"].0, "4");
    }

    #[test]
    fn each_field_of_a_claim_may_be_unreadable() {
        for name in ["taints", "startupTaints", "requirements", "resources", "nodeClassRef", "terminationGracePeriod"] {
            let claim: NodeClaim = read(claim(&json!({name: 7}))).unwrap();
            assert!(unreadable(&claim).is_some(), "{name}");
            assert!(claim.spec.node_class_ref.is_ec2_node_class(), "{name}: it may be ours");
            assert_eq!(claim.provider_id(), Some("aws:///zone-a/i-1"), "{name}");
        }
    }

    #[test]
    fn a_claim_of_another_provider_is_recognized_although_it_is_unreadable() {
        let foreign = json!({"group": "example.com", "kind": "OtherNodeClass", "name": "default"});
        let claim: NodeClaim = read(claim(&json!({"nodeClassRef": foreign, "expireAfter": "2562048h"}))).unwrap();
        assert!(!claim.spec.node_class_ref.is_ec2_node_class());
    }

    #[test]
    fn a_readable_claim_does_not_become_unreadable_by_its_annotation() {
        let mut claim = claim(&json!({}));
        claim["metadata"]["annotations"] = json!({UNREADABLE: "yes"});
        assert_eq!(unreadable(&read(claim).unwrap()), None);
    }

    #[test]
    fn one_unreadable_object_does_not_hide_the_others_of_its_list() {
        let budget = |name: &str, spec: Value| json!({"metadata": {"name": name, "namespace": "apps"}, "spec": spec});
        let list: Vec<Guarded<PodDisruptionBudget>> =
            serde_json::from_value(json!([budget("bad", json!({"maxUnavailable": true})), budget("good", json!({}))]))
                .unwrap();
        let names: Vec<(&str, bool)> =
            list.iter().map(|budget| (budget.meta().name.as_deref().unwrap(), budget.0.is_ok())).collect();
        assert_eq!(names, [("bad", false), ("good", true)]);
    }
}
