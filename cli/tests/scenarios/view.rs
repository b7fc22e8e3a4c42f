//! A plan by pod: the place of each pod after the plan is executed.

use plimsoll_cli::offline::Answer;
use plimsoll_model::names::label;
use plimsoll_model::plan::{Launch, OfferingChoice, Plan};
use plimsoll_model::requirements::Operator;
use plimsoll_model::snapshot::{Node, PodState, Snapshot};
use std::collections::{BTreeMap, BTreeSet};

/// Place of a pod.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place<'a> {
    Node(&'a Node),
    /// Index and launch.
    Launch(usize, &'a Launch),
}

pub(crate) struct View<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) plan: &'a Plan,
    answer: &'a Answer,
    /// `namespace/name` of all pods, including ignored ones.
    names: BTreeSet<String>,
    places: BTreeMap<String, Place<'a>>,
}

impl<'a> View<'a> {
    pub(crate) fn new(answer: &'a Answer) -> Self {
        let (snapshot, plan) = (&answer.snapshot, &answer.plan);
        let mut names: BTreeSet<String> = snapshot.pods.iter().map(plimsoll_model::snapshot::Pod::full_name).collect();
        names.extend(snapshot.ignored.iter().map(|it| it.pod.clone()));
        let nodes: BTreeMap<&str, &Node> = snapshot.nodes.iter().map(|node| (node.name.as_str(), node)).collect();
        let mut places = BTreeMap::new();
        for pod in &snapshot.pods {
            if let PodState::Bound(node) | PodState::Reserved(node) = &pod.state
                && let Some(node) = nodes.get(node.as_str())
            {
                places.insert(pod.full_name(), Place::Node(node));
            }
        }
        // Pods of a removed node without a new place are deleted with it, such as those of DaemonSets.
        for pod in plan.terminations.iter().flat_map(|it| &it.pods) {
            places.remove(&pod.name);
        }
        for taken in plan.placements.iter().chain(plan.terminations.iter().flat_map(|it| &it.moved_to)) {
            for pod in &taken.pods {
                if let Some(node) = nodes.get(taken.node.as_str()) {
                    places.insert(pod.name.clone(), Place::Node(node));
                }
            }
        }
        for (number, launch) in plan.launches.iter().enumerate() {
            for pod in &launch.pods {
                places.insert(pod.name.clone(), Place::Launch(number, launch));
            }
        }
        Self { snapshot, plan, answer, names, places }
    }

    /// Names that match the pattern, at least one.
    pub(crate) fn matching(&self, pattern: &str, faults: &mut Vec<String>) -> Vec<&str> {
        let full = if pattern.contains('/') { pattern.to_owned() } else { format!("default/{pattern}") };
        let found: Vec<&str> = self.names.iter().map(String::as_str).filter(|name| is_like(name, &full)).collect();
        if found.is_empty() {
            faults.push(format!("no pod is called {pattern}"));
        }
        found
    }

    pub(crate) fn place(&self, pod: &str) -> Option<Place<'a>> {
        self.places.get(pod).copied()
    }

    /// Description of the place.
    pub(crate) fn says(&self, pod: &str) -> String {
        match self.place(pod) {
            None => "nowhere".to_owned(),
            Some(Place::Node(node)) => format!("on node {}", node.name),
            Some(Place::Launch(number, launch)) => format!("on launch {number} of pool {}", launch.node_pool),
        }
    }

    /// Value of a label at the place of a pod; `None` if the pod is not placed or the place leaves the value open.
    pub(crate) fn domain(&self, pod: &str, key: &str) -> Option<String> {
        match self.place(pod)? {
            Place::Node(node) if key == label::HOSTNAME => Some(node.name.0.clone()),
            Place::Node(node) => node.labels.get(key).cloned(),
            Place::Launch(number, _) if key == label::HOSTNAME => Some(format!("launch {number}")),
            Place::Launch(_, launch) => {
                let values = self.label(launch, key);
                (values.len() == 1).then(|| values.into_iter().next()).flatten()
            }
        }
    }

    /// Values of a label that nodes of a launch can get; empty if they may lack the label.
    pub(crate) fn label(&self, launch: &Launch, key: &str) -> BTreeSet<String> {
        if key == label::NODE_POOL {
            return BTreeSet::from([launch.node_pool.0.clone()]);
        }
        let of_offerings: Vec<Option<String>> =
            launch.offerings.iter().map(|offering| self.label_of_offering(offering, key)).collect();
        if of_offerings.iter().all(Option::is_some) {
            return of_offerings.into_iter().flatten().collect();
        }
        if let Some(value) = launch.labels.get(key) {
            return BTreeSet::from([value.clone()]);
        }
        // All requirements on one key must hold.
        let said = launch.requirements.iter().filter(|it| it.key == key && it.operator == Operator::In);
        let said = said.map(|it| it.values.iter().cloned().collect::<BTreeSet<String>>());
        said.reduce(|both, one| both.intersection(&one).cloned().collect()).unwrap_or_default()
    }

    fn label_of_offering(&self, offering: &OfferingChoice, key: &str) -> Option<String> {
        let found = || self.answer.catalogs.values().find_map(|it| it.get(&offering.instance_type));
        match key {
            label::ZONE => Some(offering.zone.clone()),
            label::CAPACITY_TYPE => Some(offering.capacity_type.as_str().to_owned()),
            label::INSTANCE_TYPE => Some(offering.instance_type.clone()),
            label::ARCH => Some(found()?.architecture.clone()),
            _ => found()?.labels.get(key).cloned(),
        }
    }
}

/// Whether `pattern`, in which `*` matches any string, matches all of `name`.
pub(crate) fn is_like(name: &str, pattern: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return name == pattern };
    let Some(name) = name.strip_prefix(first) else { return false };
    (0..=name.len()).filter(|at| name.is_char_boundary(*at)).any(|at| is_like(&name[at..], rest))
}
