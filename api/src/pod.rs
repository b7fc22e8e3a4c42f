//! A pod as the services keep it in memory. The pods of a workload share what is the same in all of them.

mod claims;
mod facts;
mod shared;
mod status;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Pod as KubePod, PodSpec, PodStatus as KubeStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

pub use claims::{needs_claim, volume_claims};
pub use shared::SharedParts;
pub use status::{Allocation, PodCondition, PodPhase, PodStatus};

/// A Pod of the Kubernetes API. `spec.nodeName` is a field of its own, because the rest of the spec is usually that of
/// all pods of a workload. Labels and owners are fields of their own for the same reason. The status is reduced to what
/// the services read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "KubePod", into = "KubePod")]
pub struct Pod {
    /// The metadata without labels and owner references. Those of `kube::ResourceExt` are empty for this reason.
    pub metadata: ObjectMeta,
    /// `metadata.labels`.
    pub labels: Arc<BTreeMap<String, String>>,
    /// `metadata.ownerReferences`.
    pub owners: Arc<Vec<OwnerReference>>,
    /// `spec.nodeName`; `None` if it is empty.
    pub node_name: Option<String>,
    /// The spec without `nodeName`.
    pub spec: Option<Arc<PodSpec>>,
    /// Phase and conditions.
    pub status: PodStatus,
}

impl Pod {
    /// The node in `status.nominatedNodeName`, by whomever it was set.
    #[must_use]
    pub fn nominated_node(&self) -> Option<&str> {
        self.status.nominated_node_name.as_deref()
    }
}

impl From<KubePod> for Pod {
    fn from(pod: KubePod) -> Self {
        let KubePod { mut metadata, mut spec, status } = pod;
        let labels = Arc::new(metadata.labels.take().unwrap_or_default());
        let owners = Arc::new(metadata.owner_references.take().unwrap_or_default());
        let node_name = spec.as_mut().and_then(|spec| spec.node_name.take()).filter(|name| !name.is_empty());
        let (spec, status) = (spec.map(Arc::new), status.map(PodStatus::from).unwrap_or_default());
        Self { metadata, labels, owners, node_name, spec, status }
    }
}

impl From<Pod> for KubePod {
    fn from(pod: Pod) -> Self {
        let Pod { mut metadata, labels, owners, node_name, spec, status } = pod;
        metadata.labels = Some(Arc::unwrap_or_clone(labels)).filter(|labels| !labels.is_empty());
        metadata.owner_references = Some(Arc::unwrap_or_clone(owners)).filter(|owners| !owners.is_empty());
        let spec = spec.map(|spec| PodSpec { node_name, ..Arc::unwrap_or_clone(spec) });
        let status = Some(KubeStatus::from(status)).filter(|status| *status != KubeStatus::default());
        Self { metadata, spec, status }
    }
}

impl Resource for Pod {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        KubePod::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        KubePod::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        KubePod::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        KubePod::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_json_is_that_of_kubernetes() {
        let owner =
            json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true});
        let metadata = json!({"name": "web-1", "labels": {"app": "web"}, "ownerReferences": [owner]});
        let all = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": {"containers": [{"name": "app"}], "nodeName": "n"}, "status": {"phase": "Running"}});
        let pod: Pod = serde_json::from_value(all.clone()).unwrap();
        assert_eq!((pod.labels["app"].as_str(), pod.owners[0].name.as_str()), ("web", "web"));
        assert_eq!((&pod.metadata.labels, &pod.metadata.owner_references), (&None, &None));
        assert_eq!((pod.node_name.as_deref(), pod.spec.as_ref().unwrap().node_name.as_deref()), (Some("n"), None));
        assert_eq!(serde_json::to_value(&pod).unwrap(), all);
        // Without a spec, there is no node.
        assert_eq!(serde_json::to_value(Pod { spec: None, ..pod }).unwrap().get("spec"), None);
    }

    /// mimalloc's next larger size is 640 bytes.
    #[test]
    fn a_pod_with_its_reference_counts_takes_512_bytes() {
        let counts = 2 * size_of::<usize>();
        assert!(size_of::<Pod>() + counts <= 512, "{}", size_of::<Pod>());
    }

    #[test]
    fn a_pod_whose_node_has_no_name_is_not_bound() {
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [], "nodeName": ""}})).unwrap();
        assert_eq!(pod.node_name, None);
    }
}
