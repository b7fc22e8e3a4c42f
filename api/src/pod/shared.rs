//! Keeps equal parts of pods in memory once.

use super::Pod;
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hasher as _};
use std::io;
use std::sync::{Arc, Weak};

/// Values in addition to twice those of the last sweep, after which values without pods are dropped.
const UNSWEPT: usize = 1000;

/// Specs, labels and owners of pods that are kept in memory, so that equal ones are kept once. Pods of a StatefulSet or
/// an indexed Job have labels of their own, and share the rest.
#[derive(Debug, Default)]
pub struct SharedParts {
    specs: Shared<PodSpec>,
    labels: Shared<BTreeMap<String, String>>,
    owners: Shared<Vec<OwnerReference>>,
}

impl SharedParts {
    /// Makes `pod` use the spec, labels and owners of earlier pods that still exist, where they are equal.
    ///
    /// ```
    /// use plimsoll_api::{Pod, SharedParts};
    /// use std::sync::Arc;
    ///
    /// let mut parts = SharedParts::default();
    /// let [mut first, mut second] = [(); 2].map(|()| Pod { spec: Some(Arc::default()), ..Pod::default() });
    /// parts.share(&mut first);
    /// parts.share(&mut second);
    /// assert!(Arc::ptr_eq(&first.spec.unwrap(), &second.spec.unwrap()));
    /// ```
    pub fn share(&mut self, pod: &mut Pod) {
        pod.spec.iter_mut().for_each(|spec| self.specs.share(spec));
        self.labels.share(&mut pod.labels);
        self.owners.share(&mut pod.owners);
    }
}

/// Values of one kind.
#[derive(Debug, Default)]
struct Shared<T> {
    /// By the hash of their JSON.
    by_hash: HashMap<u64, Vec<Weak<T>>>,
    /// Number of hashes after values without pods were last dropped.
    swept: usize,
}

impl<T: PartialEq + Serialize> Shared<T> {
    fn share(&mut self, value: &mut Arc<T>) {
        let mut hasher = Writer(DefaultHasher::new());
        if serde_json::to_writer(&mut hasher, &**value).is_err() {
            return;
        }
        let known = self.by_hash.entry(hasher.0.finish()).or_default();
        known.retain(|other| other.strong_count() > 0);
        if let Some(other) = known.iter().filter_map(Weak::upgrade).find(|other| other == value) {
            *value = other;
            return;
        }
        known.push(Arc::downgrade(value));
        if self.by_hash.len() > 2 * self.swept + UNSWEPT {
            self.by_hash.retain(|_, values| values.iter().any(|value| value.strong_count() > 0));
            self.swept = self.by_hash.len();
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
    use k8s_openapi::api::core::v1::Pod as KubePod;
    use serde_json::{Value, json};

    fn pod(image: &str, node: &str) -> Pod {
        let spec = json!({"containers": [{"name": "app", "image": image}], "nodeName": node});
        serde_json::from_value(json!({"metadata": {"name": node}, "spec": spec})).unwrap()
    }

    #[test]
    fn pods_share_equal_specs_only() {
        let mut parts = SharedParts::default();
        let mut pods = [pod("web:1", "a"), pod("web:1", "b"), pod("web:2", "c")];
        pods.iter_mut().for_each(|pod| parts.share(pod));
        let [first, second, other] = pods.map(|pod| pod.spec.unwrap());
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!(other.containers[0].image.as_deref(), Some("web:2"));
    }

    #[test]
    fn the_pods_of_a_workload_share_labels_and_owners_and_lose_nothing() {
        let kube_pod = |name: &str, labels: Value| -> KubePod {
            let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u"});
            let metadata =
                json!({"name": name, "labels": labels, "ownerReferences": [owner], "annotations": {"a": "b"}});
            serde_json::from_value(json!({"metadata": metadata, "spec": {"containers": [], "nodeName": "n"}})).unwrap()
        };
        let kube_pods =
            [("a", json!({"app": "web"})), ("b", json!({"app": "web"})), ("c", json!({"app": "web", "index": "2"}))]
                .map(|(name, labels)| kube_pod(name, labels));
        let mut parts = SharedParts::default();
        let shared = kube_pods.clone().map(|kube_pod| {
            let mut pod = Pod::from(kube_pod);
            parts.share(&mut pod);
            pod
        });
        let [first, second, other] = &shared;
        assert!(Arc::ptr_eq(&first.labels, &second.labels) && !Arc::ptr_eq(&first.labels, &other.labels));
        assert!(Arc::ptr_eq(&first.owners, &second.owners) && Arc::ptr_eq(&first.owners, &other.owners));
        assert_eq!(shared.map(KubePod::from), kube_pods);
    }

    #[test]
    fn specs_without_pods_are_dropped() {
        let mut parts = SharedParts::default();
        let mut kept = pod("kept", "n");
        parts.share(&mut kept);
        for version in 0..5 * UNSWEPT {
            parts.share(&mut pod(&format!("web:{version}"), "n"));
        }
        let count = parts.specs.by_hash.len();
        assert!(count <= UNSWEPT + 3, "{count}");
        let mut again = pod("kept", "n");
        parts.share(&mut again);
        assert!(Arc::ptr_eq(&kept.spec.unwrap(), &again.spec.unwrap()));
    }
}
