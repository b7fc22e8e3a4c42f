//! Decides which pods may be nominated (`status.nominatedNodeName`) at the same time.
//!
//! When kube-scheduler tries a pod on a node, it counts all pods nominated to that node, and no pods nominated
//! elsewhere. If a topology spread constraint selects more than `maxSkew` of them, the node exceeds the skew for the
//! pod. Pods that wait for each other in this way, through their spreads or pod affinity, block each other forever.
//! Such pods are therefore nominated one after another, as the earlier ones are bound. If all nodes are in one domain,
//! the skew cannot be exceeded.
//!
//! kube-scheduler ignores nominated pods of a lower priority than the pod it tries.

use crate::selectors;
use k8s_openapi::api::core::v1::{Node, PodAffinityTerm, TopologySpreadConstraint};
use plimsoll_api::Pod;
use plimsoll_kubesched::nomination::{self, Candidate, Group, SpreadLimit};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// A pending pod and its planned node.
#[derive(Debug, Clone, Copy)]
pub struct NominationRequest<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The node.
    pub node: &'a str,
    /// Whether the pod is currently nominated to that node.
    pub is_current: bool,
}

/// Returns for each request whether it may be nominated together with the others. `cluster_nodes` are all nodes.
/// [`nomination::admissible`] defines the precedence.
#[must_use]
pub fn admissible<'n>(
    requests: &[NominationRequest<'_>],
    cluster_nodes: impl IntoIterator<Item = &'n Node>,
) -> Vec<bool> {
    let cluster_nodes = ClusterNodes::new(cluster_nodes);
    let mut nodes: BTreeMap<&str, Vec<(&NominationRequest<'_>, &mut bool)>> = BTreeMap::new();
    let mut admissible = vec![true; requests.len()];
    for (request, admissible) in requests.iter().zip(&mut admissible) {
        nodes.entry(request.node).or_default().push((request, admissible));
    }
    for requests in nodes.into_values() {
        if requests.iter().any(|(request, _)| spreads(request.pod).next().is_some()) {
            check_node(requests, &cluster_nodes);
        }
    }
    admissible
}

/// Decides for the pods of one node.
fn check_node(mut requests: Vec<(&NominationRequest<'_>, &mut bool)>, cluster_nodes: &ClusterNodes<'_>) {
    requests.sort_by_key(|(request, _)| request.pod.metadata.creation_timestamp.as_ref().map(|time| time.0));
    let pods: Vec<&Pod> = requests.iter().map(|(request, _)| request.pod).collect();
    let groups = Groups::new(&pods, cluster_nodes);
    let candidate = |((request, _), group): (&(&NominationRequest<'_>, &mut bool), &usize)| Candidate {
        group: *group,
        priority: priority(request.pod),
        is_current: request.is_current,
    };
    let candidates: Vec<Candidate> = requests.iter().zip(&groups.by_pod).map(candidate).collect();
    let admitted = nomination::admissible(&groups.groups, &candidates);
    requests.into_iter().zip(admitted).for_each(|((_, admissible), admitted)| *admissible = admitted);
}

/// Pods of one node, grouped by the constraints that the nomination gate considers.
struct Groups {
    /// Group of each pod.
    by_pod: Vec<usize>,
    groups: Vec<Group>,
}

impl Groups {
    fn new(all_pods: &[&Pod], cluster_nodes: &ClusterNodes<'_>) -> Self {
        let mut group_by_key: BTreeMap<_, usize> = BTreeMap::new();
        let mut by_pod = Vec::new();
        let mut pods: Vec<&Pod> = Vec::new();
        for pod in all_pods.iter().copied() {
            let constraints = (spreads(pod).collect::<Vec<_>>(), required_pod_affinity(pod).collect::<Vec<_>>());
            let constraints = serde_json::to_string(&constraints).unwrap_or_default();
            let key = (&pod.metadata.namespace, &pod.labels, constraints, priority(pod));
            let group = *group_by_key.entry(key).or_insert_with(|| {
                pods.push(pod);
                pods.len() - 1
            });
            by_pod.push(group);
        }
        let counted = |pod: &Pod, spread: &TopologySpreadConstraint| -> Vec<usize> {
            let blocks =
                |other: &Pod| priority(other) >= priority(pod) && counts(pod, spread, other) && waits_for(other, pod);
            pods.iter().enumerate().filter(|(_, other)| blocks(other)).map(|(group, _)| group).collect()
        };
        let group = |pod: &&Pod| {
            let spreads_with_domains = spreads(pod).filter(|spread| cluster_nodes.has_several(pod, spread));
            let limit = |spread: &TopologySpreadConstraint| SpreadLimit {
                max_skew: i64::from(spread.max_skew),
                counted: counted(pod, spread),
            };
            Group { spreads: spreads_with_domains.map(limit).collect() }
        };
        Self { by_pod, groups: pods.iter().map(group).collect() }
    }
}

/// Nodes of the cluster.
struct ClusterNodes<'n> {
    nodes: Vec<&'n Node>,
    /// Results of [`Self::has_several`], by topology key and node selector.
    cache: RefCell<BTreeMap<String, bool>>,
}

impl<'n> ClusterNodes<'n> {
    fn new(nodes: impl IntoIterator<Item = &'n Node>) -> Self {
        Self { nodes: nodes.into_iter().collect(), cache: RefCell::default() }
    }

    /// Whether the spread has, or requires, more than one domain, so that the skew can be exceeded. Domains that only
    /// node affinity excludes are counted.
    fn has_several(&self, pod: &Pod, spread: &TopologySpreadConstraint) -> bool {
        if spread.min_domains.is_some_and(|min_domains| min_domains > 1) {
            return true;
        }
        let honoured = spread.node_affinity_policy.as_deref() != Some("Ignore");
        let selector = pod.spec.as_ref().and_then(|spec| spec.node_selector.as_ref()).filter(|_| honoured);
        let key = serde_json::to_string(&(&spread.topology_key, selector)).unwrap_or_default();
        *self.cache.borrow_mut().entry(key).or_insert_with(|| {
            let labels = self.nodes.iter().filter_map(|node| node.metadata.labels.as_ref());
            let selected = labels.filter(|labels| {
                selector.is_none_or(|selector| selector.iter().all(|(key, value)| labels.get(key) == Some(value)))
            });
            let mut domains = selected.filter_map(|labels| labels.get(&spread.topology_key));
            domains.next().is_none_or(|first| domains.any(|other| other != first))
        })
    }
}

/// Priority of a pod; kube-scheduler ignores nominated pods of a lower priority.
fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0)
}

/// Required topology spread constraints.
fn spreads(pod: &Pod) -> impl Iterator<Item = &TopologySpreadConstraint> {
    let constraints = pod.spec.iter().flat_map(|spec| spec.topology_spread_constraints.iter().flatten());
    constraints.filter(|spread| spread.when_unsatisfiable == "DoNotSchedule")
}

/// Required pod affinity terms.
fn required_pod_affinity(pod: &Pod) -> impl Iterator<Item = &PodAffinityTerm> {
    let affinity = pod.spec.iter().filter_map(|spec| spec.affinity.as_ref()?.pod_affinity.as_ref());
    affinity.flat_map(|affinity| affinity.required_during_scheduling_ignored_during_execution.iter().flatten())
}

/// Whether `pod` may be unschedulable until `other` is placed.
fn waits_for(pod: &Pod, other: &Pod) -> bool {
    let selects_other = |term: &PodAffinityTerm| {
        let all_namespaces = term.namespace_selector.is_some();
        let named = term.namespaces.as_ref().filter(|names| !names.is_empty());
        let namespace = other.metadata.namespace.as_ref();
        let in_namespaces = named.map_or(pod.metadata.namespace.as_ref() == namespace, |names| {
            namespace.is_some_and(|namespace| names.contains(namespace))
        });
        let selected = |selector| selectors::matches(selector, &other.labels).unwrap_or(true);
        (all_namespaces || in_namespaces) && term.label_selector.as_ref().is_some_and(selected)
    };
    spreads(pod).any(|spread| counts(pod, spread, other)) || required_pod_affinity(pod).any(selects_other)
}

/// Whether the spread of `pod` selects `other`. An invalid selector selects everything; the API server rejects such
/// selectors.
fn counts(pod: &Pod, spread: &TopologySpreadConstraint, other: &Pod) -> bool {
    let selected = |selector| selectors::matches(selector, &other.labels).unwrap_or(true);
    // Only API servers from 1.34 on add these keys to the selector.
    let is_same = |key: &String| pod.labels.get(key).is_none_or(|value| other.labels.get(key) == Some(value));
    pod.metadata.namespace == other.metadata.namespace
        && spread.label_selector.as_ref().is_some_and(selected)
        && spread.match_label_keys.iter().flatten().all(is_same)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn spread(skew: i32, when: &str, selected: &Value) -> Value {
        json!({"topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": when, "maxSkew": skew,
            "labelSelector": {"matchLabels": selected}})
    }

    fn pod(namespace: &str, labels: &Value, spreads: &[Value]) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": namespace, "labels": labels},
            "spec": {"containers": [], "topologySpreadConstraints": spreads},
        }))
        .unwrap()
    }

    fn admissible(requests: &[(&Pod, &str, bool)]) -> Vec<bool> {
        admissible_on_nodes(requests, &[])
    }

    /// As `admissible`, on nodes with the given labels.
    fn admissible_on_nodes(requests: &[(&Pod, &str, bool)], nodes: &[Value]) -> Vec<bool> {
        let node = |labels| serde_json::from_value(json!({"metadata": {"labels": labels}})).unwrap();
        let nodes: Vec<Node> = nodes.iter().map(node).collect();
        let requests: Vec<NominationRequest<'_>> = requests
            .iter()
            .map(|(pod, node, is_current)| NominationRequest { pod, node, is_current: *is_current })
            .collect();
        super::admissible(&requests, &nodes)
    }

    #[test]
    fn at_most_max_skew_pods_of_a_spread_are_nominated_to_a_node() {
        let web = json!({"app": "web"});
        let web_pod = pod("default", &web, &[spread(2, "DoNotSchedule", &web)]);
        // Pods on another node, in another namespace, or with a soft spread are not counted.
        let soft = pod("other", &web, &[spread(1, "ScheduleAnyway", &web)]);
        let other = pod("other", &web, &[spread(2, "DoNotSchedule", &web)]);
        let requests =
            [(&web_pod, "n1", false), (&web_pod, "n1", false), (&web_pod, "n1", false), (&web_pod, "n2", false)];
        assert_eq!(admissible(&requests), [true, true, false, true]);
        assert_eq!(admissible(&[requests[0], requests[1], (&other, "n1", false), (&other, "n1", false)]), [true; 4]);
        assert_eq!(admissible(&[(&soft, "n1", false), (&soft, "n1", false)]), [true; 2]);
    }

    #[test]
    fn a_spread_counts_only_pods_with_the_same_values_of_its_match_label_keys() {
        let revision = |hash: &str| {
            let labels = json!({"app": "web", "pod-template-hash": hash});
            let mut spread = spread(1, "DoNotSchedule", &json!({"app": "web"}));
            spread["matchLabelKeys"] = json!(["pod-template-hash", "a-label-that-the-pods-lack"]);
            pod("default", &labels, &[spread])
        };
        let (old, new) = (revision("1"), revision("2"));
        assert_eq!(admissible(&[(&old, "n1", false), (&new, "n1", false)]), [true, true]);
        assert_eq!(admissible(&[(&new, "n1", false), (&new, "n1", false)]), [true, false]);
    }

    #[test]
    fn the_oldest_pods_are_nominated_first() {
        let web = json!({"app": "web"});
        let spread = [spread(1, "DoNotSchedule", &web)];
        let made = |second: u32| {
            let mut pod = pod("default", &web, &spread);
            let time = json!(format!("2026-01-01T00:00:{second:02}Z"));
            pod.metadata.creation_timestamp = serde_json::from_value(time).unwrap();
            pod
        };
        let (older, younger) = (made(1), made(2));
        assert_eq!(admissible(&[(&younger, "n1", false), (&older, "n1", false)]), [false, true]);
        assert_eq!(admissible(&[(&older, "n1", false), (&younger, "n1", false)]), [true, false]);
        assert_eq!(
            admissible(&[(&older, "n1", false), (&older, "n1", false)]),
            [true, false],
            "the one that was named first"
        );
    }

    #[test]
    fn nominated_pods_of_lower_priority_block_nothing() {
        let web = json!({"app": "web"});
        let with = |priority: i32| {
            let mut pod = pod("default", &web, &[spread(1, "DoNotSchedule", &web)]);
            Arc::make_mut(pod.spec.as_mut().unwrap()).priority = Some(priority);
            pod
        };
        let (low, high) = (with(0), with(1000));
        // The pod of higher priority would block the other pod, even if that one is already nominated.
        assert_eq!(admissible(&[(&low, "n1", true), (&high, "n1", false)]), [false, true]);
        let mut beside = low.clone();
        Arc::make_mut(beside.spec.as_mut().unwrap()).topology_spread_constraints = None;
        let mut free = high.clone();
        Arc::make_mut(free.spec.as_mut().unwrap()).topology_spread_constraints.as_mut().unwrap()[0].max_skew = 2;
        assert_eq!(admissible(&[(&free, "n1", false), (&free, "n1", false), (&low, "n1", false)]), [true, true, false]);
        assert_eq!(admissible(&[(&beside, "n1", false), (&high, "n1", false)]), [true, true]);
    }

    #[test]
    fn a_single_domain_cannot_exceed_the_skew() {
        let web = json!({"app": "web"});
        let zone = |zone: &str, team: &str| json!({"topology.kubernetes.io/zone": zone, "team": team});
        let (zone_a, zone_b, unzoned) = (zone("a", "blue"), zone("b", "red"), json!({"team": "blue"}));
        let mut web_pod = pod("default", &web, &[spread(1, "DoNotSchedule", &web)]);
        let both = |pod: &Pod, nodes: &[Value]| admissible_on_nodes(&[(pod, "n1", false), (pod, "n1", false)], nodes);
        // A node without the topology label is in no domain.
        assert_eq!(both(&web_pod, &[zone_a.clone(), zone_a.clone(), unzoned]), [true, true]);
        assert_eq!(both(&web_pod, &[zone_a.clone(), zone_b.clone()]), [true, false]);
        // Nodes that the node selector excludes are no domains, unless nodeAffinityPolicy is Ignore.
        let mut blue = web_pod.clone();
        let spec = Arc::make_mut(blue.spec.as_mut().unwrap());
        spec.node_selector = Some([("team".to_owned(), "blue".to_owned())].into());
        assert_eq!(both(&blue, &[zone_a.clone(), zone_b.clone()]), [true, true]);
        let spreads = |pod: &mut Pod, change: fn(&mut TopologySpreadConstraint)| {
            Arc::make_mut(pod.spec.as_mut().unwrap()).topology_spread_constraints.iter_mut().flatten().for_each(change);
        };
        spreads(&mut blue, |spread| spread.node_affinity_policy = Some("Ignore".to_owned()));
        assert_eq!(both(&blue, &[zone_a.clone(), zone_b]), [true, false]);
        spreads(&mut web_pod, |spread| spread.min_domains = Some(1));
        assert_eq!(both(&web_pod, std::slice::from_ref(&zone_a)), [true, true]);
        // With fewer domains than minDomains, the global minimum is zero.
        spreads(&mut web_pod, |spread| spread.min_domains = Some(2));
        assert_eq!(both(&web_pod, &[zone_a]), [true, false]);
    }

    #[test]
    fn a_current_nomination_is_kept() {
        let web = json!({"app": "web"});
        let web_pod = pod("default", &web, &[spread(1, "DoNotSchedule", &web)]);
        assert_eq!(admissible(&[(&web_pod, "n1", false), (&web_pod, "n1", true)]), [false, true]);
    }

    #[test]
    fn pod_affinity_to_a_pod_whose_spread_counts_the_pod_delays_it() {
        let (front, first) = (json!({"tier": "front"}), json!({"tier": "front", "app": "first"}));
        let counted = pod("default", &front, &[]);
        let mut follows = counted.clone();
        Arc::make_mut(follows.spec.as_mut().unwrap()).affinity = serde_json::from_value(json!({"podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "first"}}}]}}))
        .unwrap();
        let spread = pod("default", &first, &[spread(1, "DoNotSchedule", &front)]);
        assert_eq!(admissible(&[(&follows, "n1", false), (&spread, "n1", false)]), [false, true]);
        let selecting = |change: fn(&mut PodAffinityTerm)| {
            let mut pod = follows.clone();
            let affinity = Arc::make_mut(pod.spec.as_mut().unwrap()).affinity.as_mut().unwrap();
            let affinity = affinity.pod_affinity.as_mut().unwrap();
            affinity.required_during_scheduling_ignored_during_execution.iter_mut().flatten().for_each(change);
            admissible(&[(&pod, "n1", false), (&spread, "n1", false)])
        };
        assert_eq!(selecting(|term| term.namespaces = Some(vec!["other".to_owned()])), [true; 2], "it is elsewhere");
        assert_eq!(selecting(|term| term.namespaces = Some(vec!["default".to_owned()])), [false, true]);
        assert_eq!(selecting(|term| term.namespaces = Some(Vec::new())), [false, true], "as if there were none");
        assert_eq!(selecting(|term| term.label_selector = None), [true; 2], "it selects no pod");
        let all = |term: &mut PodAffinityTerm| {
            (term.namespaces, term.namespace_selector) = (Some(vec!["other".to_owned()]), Some(Default::default()));
        };
        assert_eq!(selecting(all), [false, true], "all namespaces may be selected");
        // Once the other pod is bound, both may be nominated.
        assert_eq!(admissible(&[(&follows, "n1", false), (&follows, "n1", false)]), [true; 2]);
        // A pod that waits for no other is bound immediately and blocks nothing.
        assert_eq!(admissible(&[(&counted, "n1", false), (&spread, "n1", false)]), [true; 2]);
    }
}
