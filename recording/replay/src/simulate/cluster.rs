//! The simulated cluster: its nodes, its pods and the removals under way.

mod removals;

use super::workload::by_kind;
use super::{Moment, PoolNodes, pool_nodes};
use crate::figures::Figures;
use plimsoll_kubesched::{ClusterState, Nominated};
use plimsoll_model::identity::{NodeName, NodePoolName, PodUid, ShapeId};
use plimsoll_model::names::label;
use plimsoll_model::plan::Plan;
use plimsoll_model::snapshot::{
    Node, NodePool, NodeState, Pod, PodShape, PodState, SharedPod, Snapshot, SnapshotIndex,
};
use plimsoll_model::time::{Millis, Timestamp};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A cluster whose time is that of the last call.
#[derive(Default)]
pub(super) struct Cluster {
    boot: Millis,
    started: bool,
    nodes: BTreeMap<NodeName, Node>,
    /// When nodes that boot are in service.
    ready: BTreeMap<NodeName, Timestamp>,
    /// Shared with the snapshots of plans.
    pods: BTreeMap<PodUid, SharedPod>,
    /// Pods without a node that were evicted.
    evicted: BTreeSet<PodUid>,
    /// Nodes that pods are planned for, until they are bound.
    targets: BTreeMap<PodUid, NodeName>,
    shapes: BTreeMap<ShapeId, PodShape>,
    /// Nodes to be removed, each with the new nodes that it waits for.
    leaving: BTreeMap<NodeName, BTreeSet<NodeName>>,
    /// Number of objects that were created.
    created: u64,
}

impl Cluster {
    pub(super) fn new(boot: Millis) -> Self {
        Self { boot, ..Self::default() }
    }

    /// All nodes, also those that boot.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    /// Number of pods that wait for a node for the first time, or that were evicted and for which there is no node.
    pub(super) fn waiting(&self) -> usize {
        let waits = |pod: &&SharedPod| !matches!(pod.state, PodState::Bound(_)) && pod.buffer.is_none();
        let moves = |pod: &SharedPod| self.evicted.contains(&pod.uid) && self.targets.contains_key(&pod.uid);
        self.pods.values().filter(waits).filter(|pod| !moves(pod)).count()
    }

    /// When the next node is in service.
    pub(super) fn next_ready(&self) -> Option<Timestamp> {
        self.ready.values().copied().min()
    }

    pub(super) fn pool_nodes(&self) -> BTreeMap<NodePoolName, PoolNodes> {
        pool_nodes(self.nodes())
    }

    /// The snapshot that a plan is made for.
    pub(super) fn snapshot(&self, moment: &Moment<'_>, pools: &[NodePool]) -> Snapshot {
        let mut snapshot = Snapshot {
            now: moment.now,
            pods: self.pods.values().map(|pod| self.planned(pod)).collect(),
            nodes: self.nodes.values().cloned().collect(),
            node_pools: pools.to_vec(),
            daemon_sets: moment.recorded.daemon_sets.clone(),
            pod_disruption_budgets: moment.recorded.pod_disruption_budgets.clone(),
            unavailable_offerings: moment.unavailable_offerings(),
            reservations: moment.reservations(self.nodes()),
            capacity_quotas: moment.recorded.capacity_quotas.clone(),
            ..Snapshot::default()
        };
        let used: BTreeSet<&ShapeId> = snapshot
            .pods
            .iter()
            .map(|pod| &pod.shape)
            .chain(snapshot.daemon_sets.iter().map(|set| &set.shape))
            .collect();
        snapshot.shapes = used.into_iter().filter_map(|id| self.shapes.get(id).cloned()).collect();
        snapshot.sort();
        snapshot
    }

    /// The pod as plans see it: a pod that is to move has its place on the other node.
    fn planned(&self, pod: &SharedPod) -> SharedPod {
        let is_leaving = matches!(&pod.state, PodState::Bound(node) if self.leaving.contains_key(node));
        match self.targets.get(&pod.uid).filter(|_| is_leaving) {
            Some(target) => {
                let mut moved = pod.clone();
                moved.state = PodState::Reserved(target.clone());
                moved
            }
            None => pod.clone(),
        }
    }

    /// Takes over the workload of a recorded snapshot: as many pods of each kind. Returns whether anything changed.
    pub(super) fn follow(&mut self, recorded: &Snapshot) -> bool {
        for shape in &recorded.shapes {
            self.shapes.entry(shape.id.clone()).or_insert_with(|| shape.clone());
        }
        if !self.started {
            self.start(recorded);
            return true;
        }
        let mut changed = self.follow_other_nodes(recorded);
        // Pods of DaemonSets belong to their nodes. Pods that are being deleted are gone, unless their owner replaces
        // them.
        let wanted = by_kind(recorded.pods.iter().filter(|pod| pod.moves()));
        let present = by_kind(self.pods.values().map(|pod| &**pod).filter(|pod| !pod.stays_with_node));
        let (mut gone, mut new) = (Vec::new(), Vec::new());
        for (kind, wanted) in &wanted {
            new.extend(wanted.iter().copied().skip(present.get(kind).map_or(0, Vec::len)));
        }
        for (kind, mut present) in present {
            let excess = present.len().saturating_sub(wanted.get(&kind).map_or(0, Vec::len));
            if excess > 0 {
                present.sort_by(|one, other| going(one).cmp(&going(other)));
                gone.extend(present.into_iter().take(excess).map(|pod| pod.uid.clone()));
            }
        }
        changed |= !gone.is_empty() || !new.is_empty();
        gone.iter().for_each(|uid| self.delete(uid, recorded.now));
        new.into_iter().for_each(|like| self.create(like, recorded.now));
        changed
    }

    /// Creates a pending pod.
    fn create(&mut self, like: &Pod, now: Timestamp) {
        self.created += 1;
        let uid = PodUid(format!("simulated-{:08}", self.created));
        let (name, state) = (format!("{}-{}", like.name, self.created), PodState::Pending);
        let pod = Pod { uid: uid.clone(), name, created: now, state, terminating: false, ..like.clone() };
        self.pods.insert(uid, pod.into());
    }

    /// Begins with the nodes and the pods of a recorded snapshot.
    fn start(&mut self, recorded: &Snapshot) {
        self.started = true;
        for node in &recorded.nodes {
            if node.state != NodeState::Initialized {
                self.ready.insert(node.name.clone(), recorded.now.plus(self.boot));
            }
            self.nodes.insert(node.name.clone(), node.clone());
        }
        // A pod that is being deleted and whose owner replaces it is one that runs.
        let pods = recorded.pods.iter().filter(|pod| pod.moves() || !pod.terminating);
        let running = |pod: &Pod| SharedPod::from(Pod { terminating: false, ..pod.clone() });
        self.pods.extend(pods.map(|pod| (pod.uid.clone(), running(pod))));
    }

    /// Nodes outside of pools come, change and go as recorded.
    fn follow_other_nodes(&mut self, recorded: &Snapshot) -> bool {
        let others = recorded.nodes.iter().filter(|node| node.node_pool.is_none());
        let others: BTreeMap<&NodeName, &Node> = others.map(|node| (&node.name, node)).collect();
        let is_gone = |node: &&Node| node.node_pool.is_none() && !others.contains_key(&node.name);
        let gone: Vec<NodeName> = self.nodes.values().filter(is_gone).map(|node| node.name.clone()).collect();
        let mut changed = !gone.is_empty();
        gone.iter().for_each(|node| _ = self.remove(node, recorded.now));
        if others.is_empty() {
            return changed;
        }
        // Pods of DaemonSets come after their node.
        let is_daemon =
            |pod: &Pod| pod.stays_with_node && matches!(&pod.state, PodState::Bound(node) if others.contains_key(node));
        let before = self.pods.len();
        self.pods.retain(|_, pod| !is_daemon(pod));
        let daemons = recorded.pods.iter().filter(|pod| is_daemon(pod));
        self.pods.extend(daemons.map(|pod| (pod.uid.clone(), SharedPod::from(pod.clone()))));
        changed |= self.pods.len() != before;
        for (name, node) in others {
            // A node outside of pools does not wait for `consolidateAfter`.
            let differs = |own: &Node| *own != Node { idle_since: own.idle_since, ..node.clone() };
            if self.nodes.get(name).is_none_or(differs) {
                changed = true;
                self.nodes.insert(name.clone(), node.clone());
            }
        }
        changed
    }

    fn delete(&mut self, uid: &PodUid, now: Timestamp) {
        self.targets.remove(uid);
        self.evicted.remove(uid);
        let Some(pod) = self.pods.remove(uid) else { return };
        if let PodState::Bound(node) = &pod.state {
            self.touch(node, now);
        }
    }

    /// Starts `consolidateAfter` of a node again.
    fn touch(&mut self, node: &NodeName, now: Timestamp) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.idle_since = Some(now);
        }
    }

    /// Puts nodes into service that have booted by now, and removes the nodes that waited for them. Returns whether
    /// there were any.
    pub(super) fn boot(&mut self, moment: &Moment<'_>, figures: &mut Figures) -> bool {
        let booted = self.ready.extract_if(.., |_, ready| *ready <= moment.now);
        let booted: BTreeSet<NodeName> = booted.map(|(name, _)| name).collect();
        for name in &booted {
            if let Some(node) = self.nodes.get_mut(name) {
                node.state = NodeState::Initialized;
                node.ready = true;
                node.idle_since = Some(moment.now);
            }
        }
        let arrives = |pod: &&mut SharedPod| matches!(&pod.state, PodState::Reserved(node) if booted.contains(node));
        if !booted.is_empty() {
            self.pods.values_mut().filter(arrives).for_each(|pod| pod.state = PodState::Pending);
        }
        self.finish_removals(moment.now, figures);
        !booted.is_empty()
    }

    /// Binds pending pods to nodes in service: to the planned node if it passes kube-scheduler's filters, else to the
    /// best.
    pub(super) fn schedule(&mut self, moment: &Moment<'_>, pools: &[NodePool]) {
        if !self.pods.values().any(|pod| pod.state == PodState::Pending) {
            return;
        }
        let mut snapshot = self.snapshot(moment, pools);
        snapshot.nodes.retain(|node| node.state == NodeState::Initialized);
        snapshot.pods.retain(|pod| !matches!(pod.state, PodState::Reserved(_)));
        let mut state = ClusterState::new(&snapshot, &SnapshotIndex::new(&snapshot));
        let numbers: BTreeMap<NodeName, usize> =
            (0..state.nodes()).map(|node| (state.node_name(node).clone(), node)).collect();
        let mut waiting = state.pods().to_vec();
        // A pod that a spread rejects now may fit after other pods are bound; kube-scheduler retries it.
        loop {
            let before = waiting.len();
            let mut left = Vec::new();
            // Shapes that no node takes until another pod is bound. Thousands of pods of one may wait for days.
            let mut rejected: BTreeSet<usize> = BTreeSet::new();
            for pod in waiting {
                if rejected.contains(&pod.shape) {
                    left.push(pod);
                    continue;
                }
                let fits = |node: &usize| state.filter(pod.shape, *node, &Nominated::default()).is_ok();
                let target = self.targets.get(&pod.uid).and_then(|name| numbers.get(name)).copied();
                let node = target.filter(fits).or_else(|| {
                    let nodes: Vec<usize> = (0..state.nodes()).filter(fits).collect();
                    state.best(pod.shape, &nodes)
                });
                match node {
                    Some(node) => {
                        rejected.clear();
                        state.bind(pod.shape, node);
                        let name = state.node_name(node).clone();
                        self.bind(&pod.uid, name, moment.now);
                    }
                    None => {
                        rejected.insert(pod.shape);
                        left.push(pod);
                    }
                }
            }
            waiting = left;
            if waiting.is_empty() || waiting.len() == before {
                break;
            }
        }
    }

    fn bind(&mut self, uid: &PodUid, node: NodeName, now: Timestamp) {
        self.targets.remove(uid);
        self.evicted.remove(uid);
        self.touch(&node, now);
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.state = PodState::Bound(node);
        }
    }

    /// Carries out a plan: new nodes begin to boot, nodes without replacement are removed at once, the others once
    /// their replacements are in service. Returns whether anything changed.
    pub(super) fn carry_out(
        &mut self,
        moment: &Moment<'_>,
        snapshot: &Snapshot,
        plan: &Plan,
        figures: &mut Figures,
    ) -> bool {
        let names = self.launch(moment, snapshot, plan);
        figures.launched += names.len();
        for termination in &plan.terminations {
            let waits_for: BTreeSet<NodeName> =
                termination.replaced_by.iter().filter_map(|launch| names.get(launch).cloned()).collect();
            if let Some(node) = self.nodes.get_mut(&termination.node) {
                (node.deleting, node.cordoned) = (true, true);
                self.leaving.insert(termination.node.clone(), waits_for);
            }
            let targets = termination.moved_to.iter().flat_map(|to| to.pods.iter().map(|pod| (&pod.uid, &to.node)));
            self.targets.extend(targets.map(|(pod, node)| (pod.clone(), node.clone())));
        }
        for placement in &plan.placements {
            let targets = placement.pods.iter().map(|pod| (pod.uid.clone(), placement.node.clone()));
            self.targets.extend(targets);
            if self.ready.contains_key(&placement.node) {
                placement.pods.iter().for_each(|pod| self.reserve(&pod.uid, &placement.node));
            }
        }
        let leave = self.let_deleted_nodes_leave();
        self.finish_removals(moment.now, figures);
        leave || !names.is_empty() || !plan.terminations.is_empty()
    }

    /// Adds the nodes of the plan's launches. Returns their names by the launch's index.
    fn launch(&mut self, moment: &Moment<'_>, snapshot: &Snapshot, plan: &Plan) -> BTreeMap<usize, NodeName> {
        let mut names = BTreeMap::new();
        if plan.launches.is_empty() {
            return names;
        }
        let after = plimsoll_solver::launched(snapshot, moment.catalogs, plan);
        let nodes: BTreeMap<&str, &Node> = after.nodes.iter().map(|node| (node.name.as_str(), node)).collect();
        let mut daemons: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
        for pod in after.pods.iter().filter(|pod| pod.stays_with_node) {
            if let PodState::Bound(node) = &pod.state {
                daemons.entry(node.as_str()).or_default().push(pod);
            }
        }
        for (number, launch) in plan.launches.iter().enumerate() {
            let Some(node) = nodes.get(launch.action_id.as_str()).copied() else { continue };
            self.created += 1;
            let name = NodeName(format!("simulated-{:08}", self.created));
            let mut node = Node {
                name: name.clone(),
                node_claim: Some(name.0.clone()),
                state: NodeState::InFlight,
                created: moment.now,
                ..node.clone()
            };
            node.labels.insert(label::HOSTNAME.to_owned(), name.0.clone());
            self.nodes.insert(name.clone(), node);
            self.ready.insert(name.clone(), moment.now.plus(self.boot));
            for pod in daemons.remove(launch.action_id.as_str()).unwrap_or_default() {
                let uid = PodUid(format!("{}/{}", pod.uid.0, name.0));
                let state = PodState::Bound(name.clone());
                self.pods.insert(uid.clone(), Pod { uid, state, ..pod.clone() }.into());
            }
            for pod in &launch.pods {
                self.targets.insert(pod.uid.clone(), name.clone());
                self.reserve(&pod.uid, &name);
            }
            names.insert(number, name);
        }
        names
    }

    /// Makes a pending pod wait for a node that boots.
    fn reserve(&mut self, uid: &PodUid, node: &NodeName) {
        if let Some(pod) = self.pods.get_mut(uid).filter(|pod| pod.state == PodState::Pending) {
            pod.state = PodState::Reserved(node.clone());
        }
    }
}

/// Order in which controllers delete pods: those without a node first, then the youngest.
fn going(pod: &Pod) -> (&PodState, Reverse<Timestamp>, &PodUid) {
    (&pod.state, Reverse(pod.created), &pod.uid)
}
