//! The cluster as it will be once the nodes of a plan are there, before kube-scheduler has bound the plan's pods.

use super::rules::Rules;
use super::{Question, is_actor, score};
use crate::frame::Frame;
use crate::intern::{Amounts, ResourceTable, add, fits};
use crate::nodes::Nodes;
use crate::repair::projection;
use crate::world::Welcome;
use plimsoll_model::identity::{NodeName, PodUid, ShapeId};
use plimsoll_model::overlay;
use plimsoll_model::plan::{Launch, Plan, PlanOptions};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{HostPort, Node, Pod, PodShape, PodState, Snapshot, SnapshotIndex};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Resources by which kube-scheduler compares nodes.
const COMPARED: [&str; 2] = ["cpu", "memory"];

/// A pod that the plan places.
#[derive(Debug, Clone)]
pub(super) struct Actor {
    pub(super) uid: PodUid,
    /// Number of its shape.
    pub(super) shape: usize,
    pub(super) priority: i32,
    /// Number of the plan's node for it.
    pub(super) node: usize,
}

/// A node.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) name: NodeName,
    /// What it can be; the first is the cheapest.
    pub(super) kinds: Vec<Kind>,
    pub(super) ports: Vec<HostPort>,
}

/// A node as a machine of one type.
#[derive(Debug, Clone)]
pub(super) struct Kind {
    /// What it has for all its pods, by [`COMPARED`].
    pub(super) allocatable: [i64; 2],
    pub(super) free: Amounts,
}

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Stage {
    /// With the launches as nodes, and each pod where the plan has it. Shared by all that differ in where actors are to go.
    pub(super) after: Rc<Snapshot>,
    /// By number, as in `after`.
    pub(super) places: Vec<Place>,
    /// In the order in which kube-scheduler comes to them: by priority, then the oldest.
    pub(super) actors: Vec<Actor>,
    /// By shape.
    pub(super) requests: Vec<Amounts>,
    pub(super) ports: Vec<Vec<HostPort>>,
    /// By shape: places that pods may go to, other pods aside.
    pub(super) open: Vec<Vec<usize>>,
    /// By shape and place: what kube-scheduler likes about the node itself.
    pub(super) liked: Vec<Vec<i64>>,
    pub(super) rules: Rules,
    /// Places of [`COMPARED`] in amounts.
    pub(super) compared: [Option<usize>; 2],
}

/// Where pods are to go, by UID.
pub(super) type Targets = BTreeMap<PodUid, NodeName>;

impl Stage {
    /// `None` if there is nothing to play.
    pub(super) fn new(question: Question<'_>, plan: &Plan) -> Option<Self> {
        let targets = targets(question.snapshot, plan);
        let mut after = projection::project(question.snapshot, question.catalogs, plan);
        after.nodes.retain(|node| !node.deleting);
        after.pods.retain(|pod| !pod.is_virtual());
        let mut before = Snapshot { node_pools: Vec::new(), ..after.clone() };
        let coming = before.pods.iter_mut().filter(|pod| targets.contains_key(&pod.uid));
        coming.for_each(|pod| pod.state = PodState::Pending);
        let index = SnapshotIndex::new(&before);
        // Nothing is bought: only nodes are looked at.
        let nothing = BTreeMap::new();
        let (frame, _) = Frame::new(None, &before, &index, &nothing, &PlanOptions::default());
        let mut nodes = Nodes::new(&frame);
        nodes.follow(&frame, &before, &index, &nothing);
        let sizes = sizes(question, plan);
        let mut places = Vec::new();
        for (number, node) in before.nodes.iter().enumerate() {
            let room = &nodes.get(number)?.room;
            let kinds = match sizes.get(&node.name) {
                Some(all) => all.iter().map(|size| Kind::new(frame.table(), &room.free, node, size)).collect(),
                None => vec![Kind::new(frame.table(), &room.free, node, &node.allocatable)],
            };
            places.push(Place { name: node.name.clone(), kinds, ports: room.ports.clone() });
        }
        let shapes = 0..before.shapes.len();
        let shared = shared_claims(&before);
        let requests: Vec<Amounts> =
            shapes.clone().map(|shape| requests(&frame, &before.shapes[shape], shape, &shared)).collect();
        let open = |shape: usize| -> Vec<usize> {
            let may = |number: &usize| {
                let node = &before.nodes[*number];
                let class = nodes.get(*number).map(|data| data.class);
                !node.cordoned
                    && node.ready
                    && class.is_some_and(|class| nodes.welcome(class, shape) != Welcome::No)
                    && places[*number].kinds.iter().any(|kind| fits(&requests[shape], &kind.free))
            };
            (0..places.len()).filter(may).collect()
        };
        Some(Self {
            actors: actors(&before, &index, &targets)?,
            open: shapes.map(open).collect(),
            ports: before.shapes.iter().map(|shape| shape.host_ports.clone()).collect(),
            liked: before.shapes.iter().map(|shape| score::liked(shape, &before.nodes)).collect(),
            rules: Rules::new(&before, &index),
            compared: COMPARED.map(|name| frame.table().place(name)),
            after: Rc::new(after),
            places,
            requests,
        })
    }

    /// How often a pod looks at a node if each of them does once.
    pub(super) fn looks(&self) -> usize {
        self.actors.iter().map(|actor| self.open[actor.shape].len()).sum()
    }

    /// The same with actors where `places` has them.
    pub(super) fn with(&self, places: &[usize]) -> Self {
        let mut other = self.clone();
        other.actors.iter_mut().zip(places).for_each(|(actor, place)| actor.node = *place);
        other
    }

    /// Where actors are to go.
    pub(super) fn targets(&self) -> Targets {
        let target = |actor: &Actor| (actor.uid.clone(), self.places[actor.node].name.clone());
        self.actors.iter().map(target).collect()
    }
}

impl Kind {
    /// `node`, of which so much is `free`, as a machine of that size.
    fn new(table: &ResourceTable, free: &Amounts, node: &Node, size: &Resources) -> Self {
        let mut free = free.clone();
        add(&mut free, &table.vector(&node.allocatable), -1);
        add(&mut free, &table.vector(size), 1);
        Self { allocatable: COMPARED.map(|name| size.get(name)), free }
    }
}

/// Claims that several pods use, by namespace and name.
fn shared_claims(before: &Snapshot) -> BTreeSet<(&str, &str)> {
    let mut users: BTreeMap<&ShapeId, usize> = BTreeMap::new();
    before.pods.iter().for_each(|pod| *users.entry(&pod.shape).or_default() += 1);
    let mut claims: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for shape in &before.shapes {
        for volume in shape.volumes.iter().filter(|volume| !volume.claim.is_empty()) {
            *claims.entry((&shape.namespace, &volume.claim)).or_default() += users.get(&shape.id).copied().unwrap_or(0);
        }
    }
    claims.into_iter().filter(|(_, users)| *users > 1).map(|(claim, _)| claim).collect()
}

/// What a pod takes of a node. A volume that it shares is attached there for others as well, or is one of very few.
fn requests(frame: &Frame, shape: &PodShape, number: usize, shared: &BTreeSet<(&str, &str)>) -> Amounts {
    let mut requests = frame.shapes[number].requests.clone();
    for volume in &shape.volumes {
        if shared.contains(&(shape.namespace.as_str(), volume.claim.as_str()))
            && let Some(place) = frame.table().attached(&volume.driver)
        {
            requests[place] -= 1;
        }
    }
    requests
}

/// Where the plan has the pods that kube-scheduler is to bind. Launches have the names that [`projection::project`] gives their nodes.
fn targets(snapshot: &Snapshot, plan: &Plan) -> Targets {
    let actors: BTreeSet<&PodUid> = snapshot.pods.iter().filter(|pod| is_actor(pod)).map(|pod| &pod.uid).collect();
    let placements = plan.placements.iter().map(|to| (to.node.clone(), &to.pods));
    let launches = plan.launches.iter().map(|launch| (NodeName(launch.action_id.0.clone()), &launch.pods));
    let mut targets = Targets::new();
    for (node, pods) in placements.chain(launches) {
        let own = pods.iter().filter(|pod| actors.contains(&pod.uid));
        targets.extend(own.map(|pod| (pod.uid.clone(), node.clone())));
    }
    targets
}

/// In order; `None` if there are none, or one has no node.
fn actors(before: &Snapshot, index: &SnapshotIndex, targets: &Targets) -> Option<Vec<Actor>> {
    let numbers: BTreeMap<&NodeName, usize> =
        before.nodes.iter().enumerate().map(|(number, node)| (&node.name, number)).collect();
    let mut actors: Vec<(&Pod, Actor)> = Vec::new();
    for (place, pod) in before.pods.iter().enumerate() {
        let Some(target) = targets.get(&pod.uid) else { continue };
        let shape = index.shape_of(place)?;
        let priority = before.shapes[shape].priority;
        actors.push((pod, Actor { uid: pod.uid.clone(), shape, priority, node: *numbers.get(target)? }));
    }
    actors.sort_by_key(|(pod, actor)| (Reverse(actor.priority), pod.created, numbered(&pod.name), &pod.namespace));
    let actors: Vec<Actor> = actors.into_iter().map(|(_, actor)| actor).collect();
    (!actors.is_empty()).then_some(actors)
}

/// The name without the number that it ends with, and that number: web-2 comes before web-10, and both before worker-1.
fn numbered(name: &str) -> (&str, u64) {
    let plain = name.trim_end_matches(|one: char| one.is_ascii_digit());
    (plain, name[plain.len()..].parse().unwrap_or(0))
}

/// What a node of each launch has for all its pods, by the types that it lists as its cheapest offering is bought.
fn sizes(question: Question<'_>, plan: &Plan) -> BTreeMap<NodeName, Vec<Resources>> {
    let overlaid = overlay::applied(question.snapshot, question.catalogs);
    let (snapshot, catalogs) =
        overlaid.as_ref().map_or((question.snapshot, question.catalogs), |(snapshot, catalogs)| (snapshot, catalogs));
    let of_launch = |launch: &Launch| {
        let catalog = projection::catalog_of(snapshot, catalogs, launch)?;
        let bought = launch.offerings.first()?.capacity_type;
        let listed = launch.offerings.iter().filter(|one| one.capacity_type == bought);
        let all: Vec<Resources> =
            listed.filter_map(|one| Some(catalog.get(&one.instance_type)?.allocatable())).collect();
        (!all.is_empty()).then(|| (NodeName(launch.action_id.0.clone()), all))
    };
    plan.launches.iter().filter_map(of_launch).collect()
}
