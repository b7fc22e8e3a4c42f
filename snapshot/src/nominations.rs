//! Which pods kube-scheduler may be told the node of at once (`status.nominatedNodeName`).
//!
//! It counts all pods that are nominated to a node when it tries one there, and none that are nominated elsewhere. Where a pod must be
//! spread, more than `maxSkew` nominated pods on its node that the spread counts make that node too full for it; for ever, if they wait
//! for it as well: since their spread counts it, or since they must be near it. So such pods are nominated one after another, as
//! those before them are bound. Where all nodes are in one domain of the spread, none of them can be too full.
//!
//! Nominated pods of a lower priority than the one that it tries are not counted.

use crate::selectors;
use k8s_openapi::api::core::v1::{Node, Pod, PodAffinityTerm, TopologySpreadConstraint};
use plimsoll_kubesched::nomination::{self, Candidate, Group, SpreadLimit};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// A pod that waits, and the node that a plan has for it.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The node.
    pub node: &'a str,
    /// It is nominated to that node now.
    pub stands: bool,
}

/// Which of them may be nominated beside each other, in their order; `there` are the nodes of the cluster. Which pods come first: [`nomination::admissible`].
#[must_use]
pub fn at_once<'n>(wishes: &[Wish<'_>], there: impl IntoIterator<Item = &'n Node>) -> Vec<bool> {
    let there = There::new(there);
    let mut nodes: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, wish) in wishes.iter().enumerate() {
        nodes.entry(wish.node).or_default().push(index);
    }
    let mut may = vec![true; wishes.len()];
    for own in nodes.into_values() {
        if own.iter().any(|index| spreads(wishes[*index].pod).next().is_some()) {
            sort_out(wishes, own, &there, &mut may);
        }
    }
    may
}

/// The same for the pods of one node.
fn sort_out(wishes: &[Wish<'_>], mut own: Vec<usize>, there: &There<'_>, may: &mut [bool]) {
    let groups = Groups::new(wishes, &own, there);
    own.sort_by_key(|index| (wishes[*index].pod.metadata.creation_timestamp.as_ref().map(|time| time.0), *index));
    let candidates = own.iter().map(|index| {
        let wish = &wishes[*index];
        Candidate { group: groups.of[index], priority: priority(wish.pod), is_current: wish.stands }
    });
    let candidates: Vec<Candidate> = candidates.collect();
    let admitted = nomination::admissible(&groups.all, &candidates);
    own.iter().zip(admitted).for_each(|(index, admitted)| may[*index] = admitted);
}

/// Pods of a node, grouped by the rules that the nomination gate looks at.
struct Groups {
    /// By pod.
    of: BTreeMap<usize, usize>,
    all: Vec<Group>,
}

impl Groups {
    fn new(wishes: &[Wish<'_>], own: &[usize], there: &There<'_>) -> Self {
        let mut known: BTreeMap<_, usize> = BTreeMap::new();
        let mut of = BTreeMap::new();
        let mut pods: Vec<&Pod> = Vec::new();
        for index in own {
            let pod = wishes[*index].pod;
            let asked = (spreads(pod).collect::<Vec<_>>(), near(pod).collect::<Vec<_>>());
            let asked = serde_json::to_string(&asked).unwrap_or_default();
            let key = (&pod.metadata.namespace, &pod.metadata.labels, asked, priority(pod));
            let group = *known.entry(key).or_insert_with(|| {
                pods.push(pod);
                pods.len() - 1
            });
            of.insert(*index, group);
        }
        let counted = |pod: &Pod, spread: &TopologySpreadConstraint| -> Vec<usize> {
            let locks =
                |other: &Pod| priority(other) >= priority(pod) && counts(pod, spread, other) && waits_for(other, pod);
            pods.iter().enumerate().filter(|(_, other)| locks(other)).map(|(group, _)| group).collect()
        };
        let group = |pod: &&Pod| {
            let uneven = spreads(pod).filter(|spread| there.has_several(pod, spread));
            let limit = |spread: &TopologySpreadConstraint| SpreadLimit {
                max_skew: i64::from(spread.max_skew),
                counted: counted(pod, spread),
            };
            Group { spreads: uneven.map(limit).collect() }
        };
        Self { of, all: pods.iter().map(group).collect() }
    }
}

/// The nodes of the cluster.
struct There<'n> {
    nodes: Vec<&'n Node>,
    /// By key of a spread and what its pods select nodes by: see [`Self::has_several`].
    known: RefCell<BTreeMap<String, bool>>,
}

impl<'n> There<'n> {
    fn new(nodes: impl IntoIterator<Item = &'n Node>) -> Self {
        Self { nodes: nodes.into_iter().collect(), known: RefCell::default() }
    }

    /// Whether there is more than one domain of the spread, so that one of them can be fuller than another; also where it wants more than one.
    /// Domains that only node affinity rules out count here.
    fn has_several(&self, pod: &Pod, spread: &TopologySpreadConstraint) -> bool {
        if spread.min_domains.is_some_and(|least| least > 1) {
            return true;
        }
        let honoured = spread.node_affinity_policy.as_deref() != Some("Ignore");
        let selector = pod.spec.as_ref().and_then(|spec| spec.node_selector.as_ref()).filter(|_| honoured);
        let key = serde_json::to_string(&(&spread.topology_key, selector)).unwrap_or_default();
        *self.known.borrow_mut().entry(key).or_insert_with(|| {
            let labels = self.nodes.iter().filter_map(|node| node.metadata.labels.as_ref());
            let selected = labels.filter(|labels| {
                selector.is_none_or(|selector| selector.iter().all(|(key, value)| labels.get(key) == Some(value)))
            });
            let mut domains = selected.filter_map(|labels| labels.get(&spread.topology_key));
            domains.next().is_none_or(|first| domains.any(|other| other != first))
        })
    }
}

/// kube-scheduler counts no nominated pods of a lower priority than the one that it tries.
fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0)
}

/// What the pod must be spread by.
fn spreads(pod: &Pod) -> impl Iterator<Item = &TopologySpreadConstraint> {
    let all = pod.spec.iter().flat_map(|spec| spec.topology_spread_constraints.iter().flatten());
    all.filter(|one| one.when_unsatisfiable == "DoNotSchedule")
}

/// What the pod must be near.
fn near(pod: &Pod) -> impl Iterator<Item = &PodAffinityTerm> {
    let affinity = pod.spec.iter().filter_map(|spec| spec.affinity.as_ref()?.pod_affinity.as_ref());
    affinity.flat_map(|all| all.required_during_scheduling_ignored_during_execution.iter().flatten())
}

/// Whether `pod` may have no place before `other` has one.
fn waits_for(pod: &Pod, other: &Pod) -> bool {
    let labels = other.metadata.labels.clone().unwrap_or_default();
    let follows = |term: &PodAffinityTerm| {
        let all = term.namespace_selector.is_some();
        let named = term.namespaces.as_ref().filter(|names| !names.is_empty());
        let namespace = other.metadata.namespace.as_ref();
        let there = named.map_or(pod.metadata.namespace.as_ref() == namespace, |names| {
            namespace.is_some_and(|namespace| names.contains(namespace))
        });
        let selected = |selector| selectors::matches(selector, &labels).unwrap_or(true);
        (all || there) && term.label_selector.as_ref().is_some_and(selected)
    };
    spreads(pod).any(|spread| counts(pod, spread, other)) || near(pod).any(follows)
}

/// Whether the spread of `pod` counts `other`. One that cannot be read counts all: the API server lets none through.
fn counts(pod: &Pod, spread: &TopologySpreadConstraint, other: &Pod) -> bool {
    let labels = other.metadata.labels.as_ref();
    let none = BTreeMap::new();
    let selected = |selector| selectors::matches(selector, labels.unwrap_or(&none)).unwrap_or(true);
    pod.metadata.namespace == other.metadata.namespace && spread.label_selector.as_ref().is_some_and(selected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

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

    fn may(wishes: &[(&Pod, &str, bool)]) -> Vec<bool> {
        may_beside(wishes, &[])
    }

    /// The same with nodes that have these labels.
    fn may_beside(wishes: &[(&Pod, &str, bool)], nodes: &[Value]) -> Vec<bool> {
        let node = |labels| serde_json::from_value(json!({"metadata": {"labels": labels}})).unwrap();
        let nodes: Vec<Node> = nodes.iter().map(node).collect();
        let wishes: Vec<Wish<'_>> =
            wishes.iter().map(|(pod, node, stands)| Wish { pod, node, stands: *stands }).collect();
        at_once(&wishes, &nodes)
    }

    #[test]
    fn at_most_max_skew_of_a_spread_stand_on_one_node() {
        let web = json!({"app": "web"});
        let one = pod("default", &web, &[spread(2, "DoNotSchedule", &web)]);
        // Another node, another namespace and what only should be spread are not counted with them.
        let soft = pod("other", &web, &[spread(1, "ScheduleAnyway", &web)]);
        let other = pod("other", &web, &[spread(2, "DoNotSchedule", &web)]);
        let all = [(&one, "n1", false), (&one, "n1", false), (&one, "n1", false), (&one, "n2", false)];
        assert_eq!(may(&all), [true, true, false, true]);
        assert_eq!(may(&[all[0], all[1], (&other, "n1", false), (&other, "n1", false)]), [true; 4]);
        assert_eq!(may(&[(&soft, "n1", false), (&soft, "n1", false)]), [true; 2]);
    }

    #[test]
    fn the_oldest_are_nominated_first() {
        let web = json!({"app": "web"});
        let spread = [spread(1, "DoNotSchedule", &web)];
        let made = |second: u32| {
            let mut pod = pod("default", &web, &spread);
            let time = json!(format!("2026-01-01T00:00:{second:02}Z"));
            pod.metadata.creation_timestamp = serde_json::from_value(time).unwrap();
            pod
        };
        let (older, younger) = (made(1), made(2));
        assert_eq!(may(&[(&younger, "n1", false), (&older, "n1", false)]), [false, true]);
        assert_eq!(may(&[(&older, "n1", false), (&younger, "n1", false)]), [true, false]);
        assert_eq!(may(&[(&older, "n1", false), (&older, "n1", false)]), [true, false], "the one that was named first");
    }

    #[test]
    fn nominated_pods_of_a_lower_priority_are_in_nobodys_way() {
        let web = json!({"app": "web"});
        let with = |priority: i32| {
            let mut pod = pod("default", &web, &[spread(1, "DoNotSchedule", &web)]);
            pod.spec.as_mut().unwrap().priority = Some(priority);
            pod
        };
        let (low, high) = (with(0), with(1000));
        // The higher one would keep the lower one out, also if that stands.
        assert_eq!(may(&[(&low, "n1", true), (&high, "n1", false)]), [false, true]);
        let mut beside = low.clone();
        beside.spec.as_mut().unwrap().topology_spread_constraints = None;
        let mut free = high.clone();
        free.spec.as_mut().unwrap().topology_spread_constraints.as_mut().unwrap()[0].max_skew = 2;
        assert_eq!(may(&[(&free, "n1", false), (&free, "n1", false), (&low, "n1", false)]), [true, true, false]);
        assert_eq!(may(&[(&beside, "n1", false), (&high, "n1", false)]), [true, true]);
    }

    #[test]
    fn the_only_domain_cannot_be_too_full() {
        let web = json!({"app": "web"});
        let zone = |zone: &str, team: &str| json!({"topology.kubernetes.io/zone": zone, "team": team});
        let (here, there, bare) = (zone("a", "blue"), zone("b", "red"), json!({"team": "blue"}));
        let mut one = pod("default", &web, &[spread(1, "DoNotSchedule", &web)]);
        let both = |pod: &Pod, nodes: &[Value]| may_beside(&[(pod, "n1", false), (pod, "n1", false)], nodes);
        // A node without the label is in no domain.
        assert_eq!(both(&one, &[here.clone(), here.clone(), bare]), [true, true]);
        assert_eq!(both(&one, &[here.clone(), there.clone()]), [true, false]);
        // Nodes that the pod does not select are no domains of its spread, unless that says so.
        let mut blue = one.clone();
        let spec = blue.spec.as_mut().unwrap();
        spec.node_selector = Some([("team".to_owned(), "blue".to_owned())].into());
        assert_eq!(both(&blue, &[here.clone(), there.clone()]), [true, true]);
        let spreads = |pod: &mut Pod, change: fn(&mut TopologySpreadConstraint)| {
            pod.spec.as_mut().unwrap().topology_spread_constraints.iter_mut().flatten().for_each(change);
        };
        spreads(&mut blue, |spread| spread.node_affinity_policy = Some("Ignore".to_owned()));
        assert_eq!(both(&blue, &[here.clone(), there]), [true, false]);
        // As long as there are fewer domains than it wants, the least counts as none.
        spreads(&mut one, |spread| spread.min_domains = Some(2));
        assert_eq!(both(&one, &[here]), [true, false]);
    }

    #[test]
    fn what_stands_is_not_taken_back_for_another_pod() {
        let web = json!({"app": "web"});
        let one = pod("default", &web, &[spread(1, "DoNotSchedule", &web)]);
        assert_eq!(may(&[(&one, "n1", false), (&one, "n1", true)]), [false, true]);
    }

    #[test]
    fn a_pod_that_must_be_near_another_waits_for_it_if_its_spread_counts_it() {
        let (front, first) = (json!({"tier": "front"}), json!({"tier": "front", "app": "first"}));
        let counted = pod("default", &front, &[]);
        let mut follows = counted.clone();
        follows.spec.as_mut().unwrap().affinity = serde_json::from_value(json!({"podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "first"}}}]}}))
        .unwrap();
        let spread = pod("default", &first, &[spread(1, "DoNotSchedule", &front)]);
        assert_eq!(may(&[(&follows, "n1", false), (&spread, "n1", false)]), [false, true]);
        // Once that one is bound, nothing speaks against the others.
        assert_eq!(may(&[(&follows, "n1", false), (&follows, "n1", false)]), [true; 2]);
        // One that waits for nobody is bound at once, and in nobody's way then.
        assert_eq!(may(&[(&counted, "n1", false), (&spread, "n1", false)]), [true; 2]);
    }
}
