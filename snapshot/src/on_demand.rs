//! Reads the on-demand annotations of NodePools and pods.

use crate::annotations;
use crate::problems::Fault;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use plimsoll_api::Pod;
use plimsoll_model::names::annotation;
use plimsoll_model::snapshot::{OnDemandMix, OnDemandRatio};

/// Label that distinguishes the ReplicaSets of a Deployment.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// Reads the on-demand ratio of an object; `None` without annotations.
pub(crate) fn mix(metadata: &ObjectMeta) -> Result<Option<OnDemandMix>, Fault> {
    let base = number(metadata, annotation::ON_DEMAND_BASE, u32::MAX)?;
    let percentage = number(metadata, annotation::ON_DEMAND_PERCENTAGE, 100)?;
    Ok(if base.is_none() && percentage.is_none() {
        None
    } else {
        Some(OnDemandMix { base: base.unwrap_or(0), percentage: percentage.unwrap_or(0) })
    })
}

/// Reads the on-demand ratio that a pod requests for its workload.
pub(crate) fn workload_ratio(pod: &Pod) -> Result<Option<OnDemandRatio>, Fault> {
    Ok(mix(&pod.metadata)?.map(|mix| OnDemandRatio { workload: workload(pod), mix }))
}

fn number(metadata: &ObjectMeta, key: &str, max: u32) -> Result<Option<u32>, Fault> {
    let Some(text) = annotations::text(metadata, key) else { return Ok(None) };
    let read = text.trim().parse::<u32>().ok().filter(|number| *number <= max);
    let message = || format!("{text:?} is not a whole number from 0 to {max}");
    read.map(Some).ok_or_else(|| annotations::fault(key, message()))
}

/// Returns the workload of a pod: its controller, or the Deployment behind a ReplicaSet. A pod without owner is its own
/// workload.
fn workload(pod: &Pod) -> String {
    let controller = |owner: &&OwnerReference| owner.controller == Some(true);
    let Some(owner) = pod.owners.iter().find(controller).or(pod.owners.first()) else {
        return format!("Pod/{}", pod.metadata.name.as_deref().unwrap_or_default());
    };
    let deployment =
        pod.labels.get(TEMPLATE_HASH).and_then(|hash| owner.name.strip_suffix(hash.as_str())?.strip_suffix('-'));
    match deployment.filter(|_| owner.kind == "ReplicaSet") {
        Some(name) => format!("Deployment/{name}"),
        None => format!("{}/{}", owner.kind, owner.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn metadata(value: &Value) -> ObjectMeta {
        serde_json::from_value(value.clone()).unwrap()
    }

    fn pod(metadata: &Value) -> Pod {
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    #[test]
    fn an_invalid_annotation_is_a_fault() {
        let read = |annotations: &Value| mix(&metadata(&json!({"annotations": annotations})));
        assert_eq!(read(&json!({})), Ok(None));
        let both = json!({"plimsoll.dev/on-demand-base": "2", "plimsoll.dev/on-demand-percentage": " 30"});
        assert_eq!(read(&both), Ok(Some(OnDemandMix { base: 2, percentage: 30 })));
        let one = json!({"plimsoll.dev/on-demand-base": "1"});
        assert_eq!(read(&one), Ok(Some(OnDemandMix { base: 1, percentage: 0 })));
        for wrong in ["101", "-1", "30%", "", "0.5"] {
            let fault = read(&json!({"plimsoll.dev/on-demand-percentage": wrong})).unwrap_err();
            assert_eq!(fault.field, "metadata.annotations[plimsoll.dev/on-demand-percentage]", "{wrong}");
        }
    }

    #[test]
    fn replica_sets_of_a_deployment_are_one_workload() {
        let owned = |kind: &str, name: &str| {
            let owner = json!({"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "1", "controller": true});
            let labels = json!({"pod-template-hash": "5d4f"});
            workload(&pod(&json!({"name": "web-1", "labels": labels, "ownerReferences": [owner]})))
        };
        assert_eq!(owned("ReplicaSet", "web-5d4f"), "Deployment/web");
        assert_eq!(owned("ReplicaSet", "web"), "ReplicaSet/web");
        assert_eq!(owned("StatefulSet", "web-5d4f"), "StatefulSet/web-5d4f");
        assert_eq!(workload(&pod(&json!({"name": "web-1"}))), "Pod/web-1");
    }
}
