//! Which pods kube-scheduler may be told the node of at once (`status.nominatedNodeName`).
//!
//! It counts all pods that are nominated to a node when it tries one there, and none that are nominated elsewhere. Of pods that must spread
//! over zones or hosts, more than `maxSkew` on one node would each find it too full, for ever. So they are nominated one after another,
//! as those before them are bound.

use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;

/// Nominations that stand beside each other.
#[derive(Debug, Clone, Default)]
pub struct Nominations {
    /// Pods by node and what they are counted by.
    there: BTreeMap<(String, String), i32>,
}

impl Nominations {
    /// Whether `pod` may be nominated to `node` beside those that were admitted before it. If so, it counts for those after it.
    pub fn admit(&mut self, pod: &Pod, node: &str) -> bool {
        let spreads = spreads(pod);
        let mut counted = spreads.iter().map(|(name, most)| (self.there.get(&(node.to_owned(), name.clone())), most));
        if counted.any(|(there, most)| there.is_some_and(|there| there >= most)) {
            return false;
        }
        for (name, _) in spreads {
            *self.there.entry((node.to_owned(), name)).or_default() += 1;
        }
        true
    }
}

/// What the pod must spread by: constraints by what they count, with `maxSkew`.
fn spreads(pod: &Pod) -> Vec<(String, i32)> {
    let all = pod.spec.iter().flat_map(|spec| spec.topology_spread_constraints.iter().flatten());
    all.filter(|one| one.when_unsatisfiable == "DoNotSchedule")
        .map(|one| {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            let counted = serde_json::to_string(&one.label_selector).unwrap_or_default();
            (format!("{namespace} {} {counted}", one.topology_key), one.max_skew)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(namespace: &str, when: &str, skew: i32) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": namespace},
            "spec": {"containers": [], "topologySpreadConstraints": [{
                "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": when, "maxSkew": skew,
                "labelSelector": {"matchLabels": {"app": "web"}},
            }]},
        }))
        .unwrap()
    }

    #[test]
    fn at_most_max_skew_of_a_spread_stand_on_one_node() {
        let mut all = Nominations::default();
        let mut admitted = |pod: &Pod, node: &str| all.admit(pod, node);
        let web = pod("default", "DoNotSchedule", 2);
        assert_eq!([admitted(&web, "n1"), admitted(&web, "n1"), admitted(&web, "n1")], [true, true, false]);
        // Another node, another namespace, and what only should spread, are not counted with them.
        assert!(admitted(&web, "n2"));
        assert!(admitted(&pod("other", "DoNotSchedule", 2), "n1"));
        assert!(admitted(&pod("default", "ScheduleAnyway", 2), "n1"));
        assert!(admitted(&Pod::default(), "n1"));
    }
}
