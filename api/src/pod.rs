//! A pod as the services keep it in memory. The pods of a workload share what is the same in all of them.

mod claims;
mod facts;
mod status;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Pod as KubePod, PodSpec, PodStatus as KubeStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher as _};
use std::io;
use std::sync::{Arc, Weak};

pub use claims::{needs_claim, volume_claims};
pub use status::{Allocation, PodCondition, PodPhase, PodStatus};

/// Specs in addition to twice those of the last sweep, after which specs without pods are dropped.
const UNSWEPT: usize = 1000;

/// A Pod of the Kubernetes API. `spec.nodeName` is a field of its own, because the rest of the spec is usually that of
/// all pods of a workload. The status is reduced to what the services read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "KubePod", into = "KubePod")]
pub struct Pod {
    /// Name, labels, owners.
    pub metadata: ObjectMeta,
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
        let KubePod { metadata, mut spec, status } = pod;
        let node_name = spec.as_mut().and_then(|spec| spec.node_name.take()).filter(|name| !name.is_empty());
        Self { metadata, node_name, spec: spec.map(Arc::new), status: status.map(PodStatus::from).unwrap_or_default() }
    }
}

impl From<Pod> for KubePod {
    fn from(pod: Pod) -> Self {
        let Pod { metadata, node_name, spec, status } = pod;
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

/// Specs of pods that are kept in memory, so that equal ones are kept once.
#[derive(Debug, Default)]
pub struct SharedSpecs {
    /// By the hash of their JSON.
    specs: HashMap<u64, Vec<Weak<PodSpec>>>,
    /// Number of hashes after specs without pods were last dropped.
    swept: usize,
}

impl SharedSpecs {
    /// Makes `pod` use the spec of an earlier pod, if one that still exists has an equal spec.
    ///
    /// ```
    /// use plimsoll_api::{Pod, SharedSpecs};
    /// use std::sync::Arc;
    ///
    /// let mut specs = SharedSpecs::default();
    /// let [mut first, mut second] = [(); 2].map(|()| Pod { spec: Some(Arc::default()), ..Pod::default() });
    /// specs.share(&mut first);
    /// specs.share(&mut second);
    /// assert!(Arc::ptr_eq(&first.spec.unwrap(), &second.spec.unwrap()));
    /// ```
    pub fn share(&mut self, pod: &mut Pod) {
        let Some(spec) = &mut pod.spec else { return };
        let mut hasher = Writer(DefaultHasher::new());
        if serde_json::to_writer(&mut hasher, &**spec).is_err() {
            return;
        }
        let known = self.specs.entry(hasher.0.finish()).or_default();
        known.retain(|other| other.strong_count() > 0);
        if let Some(other) = known.iter().filter_map(Weak::upgrade).find(|other| other == spec) {
            *spec = other;
            return;
        }
        known.push(Arc::downgrade(spec));
        if self.specs.len() > 2 * self.swept + UNSWEPT {
            self.specs.retain(|_, specs| specs.iter().any(|spec| spec.strong_count() > 0));
            self.swept = self.specs.len();
        }
    }
}

/// Hashes what is written.
struct Writer(DefaultHasher);

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(image: &str, node: &str) -> Pod {
        let spec = json!({"containers": [{"name": "app", "image": image}], "nodeName": node});
        serde_json::from_value(json!({"metadata": {"name": node}, "spec": spec})).unwrap()
    }

    #[test]
    fn the_json_is_that_of_kubernetes() {
        let all = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
            "spec": {"containers": [{"name": "app"}], "nodeName": "n"}, "status": {"phase": "Running"}});
        let pod: Pod = serde_json::from_value(all.clone()).unwrap();
        assert_eq!((pod.node_name.as_deref(), pod.spec.as_ref().unwrap().node_name.as_deref()), (Some("n"), None));
        assert_eq!(serde_json::to_value(&pod).unwrap(), all);
        // Without a spec, there is no node.
        assert_eq!(serde_json::to_value(Pod { spec: None, ..pod }).unwrap().get("spec"), None);
    }

    #[test]
    fn a_pod_whose_node_has_no_name_is_not_bound() {
        assert_eq!(pod("web", "").node_name, None);
    }

    #[test]
    fn pods_share_equal_specs_only() {
        let mut specs = SharedSpecs::default();
        let mut pods = [pod("web:1", "a"), pod("web:1", "b"), pod("web:2", "c")];
        pods.iter_mut().for_each(|pod| specs.share(pod));
        let [first, second, other] = pods.map(|pod| pod.spec.unwrap());
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!(other.containers[0].image.as_deref(), Some("web:2"));
    }

    #[test]
    fn specs_without_pods_are_dropped() {
        let mut specs = SharedSpecs::default();
        let mut kept = pod("kept", "n");
        specs.share(&mut kept);
        for version in 0..5 * UNSWEPT {
            specs.share(&mut pod(&format!("web:{version}"), "n"));
        }
        assert!(specs.specs.len() <= UNSWEPT + 3, "{}", specs.specs.len());
        let mut again = pod("kept", "n");
        specs.share(&mut again);
        assert!(Arc::ptr_eq(&kept.spec.unwrap(), &again.spec.unwrap()));
    }
}
