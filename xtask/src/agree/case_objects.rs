//! Objects of a case in the control plane: the cluster after the plan, the pods that must be bound, and the pods that
//! must stay pending.

use super::case::Planned;
use super::isolate::Isolation;
use super::nodes::{CaseNode, bought_as};
use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Container, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodSpec};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use plimsoll_model::catalog::{Catalog, InstanceType, Offering};
use plimsoll_model::plan::Launch;
use plimsoll_model::snapshot::{PodState, Snapshot};
use plimsoll_snapshot::full_name;
use std::collections::{BTreeMap, BTreeSet};

/// Annotation of the default storage class.
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// Prefix of the classes that every cluster has.
const SYSTEM: &str = "system-";

/// A pod and its planned node.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    /// `namespace/name` in the manifests.
    pub(super) name: String,
    pub(super) pod: Pod,
    pub(super) node: String,
}

/// A pod that the plan leaves unschedulable.
#[derive(Debug, Clone)]
pub(super) struct Left {
    pub(super) name: String,
    pub(super) pod: Pod,
    /// Shape of the pod; pods of one shape are interchangeable.
    pub(super) shape: usize,
}

/// All objects of a case for the API server.
#[derive(Debug)]
pub(super) struct CaseObjects {
    pub(super) isolation: Isolation,
    pub(super) namespaces: Vec<Namespace>,
    pub(super) priority_classes: Vec<PriorityClass>,
    pub(super) storage_classes: Vec<StorageClass>,
    pub(super) volumes: Vec<PersistentVolume>,
    pub(super) claims: Vec<PersistentVolumeClaim>,
    pub(super) nodes: Vec<CaseNode>,
    /// Running pods.
    pub(super) running_pods: Vec<Pod>,
    pub(super) wanted: Vec<Wanted>,
    pub(super) left: Vec<Left>,
}

impl CaseObjects {
    pub(super) fn new(planned: &Planned) -> Result<CaseObjects> {
        let Planned { objects, snapshot, plan, .. } = planned;
        let leaving: BTreeSet<&str> =
            snapshot.nodes.iter().filter(|node| node.deleting).map(|node| node.name.as_str()).collect();
        let staying = snapshot.nodes.iter().filter(|node| !leaving.contains(node.name.as_str()));
        let mut nodes: Vec<CaseNode> = staying.map(CaseNode::existing).collect();
        let mut targets: BTreeMap<&str, String> = BTreeMap::new();
        for placement in &plan.placements {
            targets.extend(placement.pods.iter().map(|pod| (pod.name.as_str(), placement.node.0.clone())));
        }
        for (number, launch) in plan.launches.iter().enumerate() {
            let made = launched(planned, number, launch)?;
            targets.extend(launch.pods.iter().map(|pod| (pod.name.as_str(), made.name.clone())));
            nodes.push(made);
        }
        let isolation = isolation(planned, &nodes);
        let mut case_objects = CaseObjects {
            namespaces: namespaces(planned, &isolation),
            priority_classes: priority_classes(planned, &isolation),
            storage_classes: storage_classes(planned, &isolation),
            volumes: objects.persistent_volumes.iter().map(|it| isolation.volume(it)).collect(),
            claims: objects.persistent_volume_claims.iter().map(|it| isolation.claim(it)).collect(),
            nodes,
            running_pods: Vec::new(),
            wanted: Vec::new(),
            left: Vec::new(),
            isolation,
        };
        case_objects.add_pods(planned, &targets);
        for node in case_objects.nodes.clone() {
            let daemons = case_objects.daemons(planned, &node);
            case_objects.running_pods.extend(daemons);
        }
        Ok(case_objects)
    }

    fn add_pods(&mut self, planned: &Planned, targets: &BTreeMap<&str, String>) {
        let left: BTreeSet<&str> = planned.plan.unschedulable.iter().map(|it| it.pod.name.as_str()).collect();
        let states: BTreeMap<String, &plimsoll_model::snapshot::Pod> =
            planned.snapshot.pods.iter().map(|pod| (pod.full_name(), pod)).collect();
        let shapes: BTreeMap<_, usize> =
            planned.snapshot.shapes.iter().enumerate().map(|(index, shape)| (&shape.id, index)).collect();
        for pod in &planned.objects.pods {
            let pod = &Pod::from(pod.as_ref().clone());
            let name = full_name(&pod.metadata);
            let Some(known) = states.get(&name) else { continue };
            let shape = shapes.get(&known.shape).copied().unwrap_or_default();
            if let Some(node) = targets.get(name.as_str()) {
                let mut pod = self.isolation.pod(pod);
                // As the API server sets it: the nomination rule depends on the priority.
                pod.spec.get_or_insert_default().priority = planned.snapshot.shapes.get(shape).map(|it| it.priority);
                self.wanted.push(Wanted { pod, node: node.clone(), name });
            } else if left.contains(name.as_str()) {
                self.left.push(Left { pod: self.isolation.pod(pod), shape, name });
            } else if let PodState::Bound(node) = &known.state
                && self.nodes.iter().any(|it| it.name == node.as_str())
            {
                self.running_pods.push(self.isolation.pod_on(pod, &self.isolation.name(node.as_str())));
            }
        }
    }

    /// DaemonSet pods that a node still needs.
    pub(super) fn daemons(&self, planned: &Planned, node: &CaseNode) -> Vec<Pod> {
        let on = self.isolation.name(&node.name);
        self.plain_daemons(planned, node).iter().map(|pod| self.isolation.pod_on(pod, &on)).collect()
    }

    /// The same pods without isolation from other cases.
    pub(super) fn plain_daemons(&self, planned: &Planned, node: &CaseNode) -> Vec<Pod> {
        let mut pods = Vec::new();
        let snapshot = &planned.snapshot;
        for (number, daemon) in snapshot.daemon_sets.iter().enumerate() {
            let Some(shape) = snapshot.shapes.iter().find(|shape| shape.id == daemon.shape) else { continue };
            if !node.runs_daemon(shape) || has_daemon(planned, &daemon.namespace, &daemon.name, &node.name) {
                continue;
            }
            let same = |it: &&k8s_openapi::api::apps::v1::DaemonSet| {
                it.metadata.name.as_deref() == Some(&daemon.name)
                    && it.metadata.namespace.as_deref() == Some(&daemon.namespace)
            };
            let Some(template) = planned.objects.daemon_sets.iter().find(same).and_then(|it| it.spec.as_ref()) else {
                continue;
            };
            let owner = OwnerReference {
                api_version: "apps/v1".to_owned(),
                kind: "DaemonSet".to_owned(),
                name: daemon.name.clone(),
                ..OwnerReference::default()
            };
            let mut pod = Pod {
                metadata: ObjectMeta {
                    name: Some(format!("ds{number}-{}", node.name)),
                    namespace: Some(daemon.namespace.clone()),
                    labels: template.template.metadata.as_ref().and_then(|it| it.labels.clone()),
                    owner_references: Some(vec![owner]),
                    ..ObjectMeta::default()
                },
                spec: template.template.spec.clone(),
                status: None,
            };
            pod.spec.get_or_insert_default().node_name = Some(node.name.clone());
            pods.push(pod);
        }
        pods
    }

    /// A pod that fits on no node.
    pub(super) fn nobodys(&self) -> Pod {
        let namespace = self.namespaces.first().and_then(|it| it.metadata.name.clone());
        Pod {
            metadata: ObjectMeta { name: Some("nobodys".to_owned()), namespace, ..ObjectMeta::default() },
            spec: Some(PodSpec {
                containers: vec![Container {
                    name: "app".to_owned(),
                    image: Some("registry.example/app:1".to_owned()),
                    ..Container::default()
                }],
                node_selector: Some(BTreeMap::from([("plimsoll.test/nobodys".to_owned(), String::new())])),
                ..PodSpec::default()
            }),
            status: None,
        }
    }

    /// CSINodes of the launched nodes.
    pub(super) fn drivers(&self) -> Vec<CSINode> {
        self.nodes.iter().filter_map(|node| node.driver(&self.isolation)).collect()
    }

    pub(super) fn node_objects(&self) -> Vec<Node> {
        self.nodes.iter().map(|node| node.object(&self.isolation)).collect()
    }
}

/// Whether a pod of the DaemonSet is on the node already.
fn has_daemon(planned: &Planned, namespace: &str, name: &str, node: &str) -> bool {
    planned.objects.pods.iter().any(|pod| {
        let owned = pod.owners.iter().any(|it| it.kind == "DaemonSet" && it.name == name);
        let there = pod.node_name.as_deref() == Some(node);
        owned && there && pod.metadata.namespace.as_deref() == Some(namespace)
    })
}

fn isolation(planned: &Planned, nodes: &[CaseNode]) -> Isolation {
    let objects = &planned.objects;
    let known = planned.snapshot.nodes.iter().map(|node| node.name.0.clone());
    let mut isolation = Isolation::new(planned.seed, known.chain(nodes.iter().map(|node| node.name.clone())));
    let is_default = |class: &&StorageClass| {
        let annotations = class.metadata.annotations.as_ref();
        annotations.and_then(|it| it.get(DEFAULT_CLASS)).is_some_and(|it| it == "true")
    };
    isolation.default_storage_class =
        objects.storage_classes.iter().find(is_default).and_then(|class| class.metadata.name.clone());
    isolation.default_priority_class = objects
        .priority_classes
        .iter()
        .filter(|class| class.global_default == Some(true))
        .min_by_key(|class| class.value)
        .and_then(|class| class.metadata.name.clone());
    for spec in objects.pods.iter().filter_map(|pod| pod.spec.as_deref()) {
        isolation.note_private_keys(spec);
    }
    isolation
}

/// The node of a launch. EC2 may choose any of the offerings of one capacity type; seed and number select one of them.
/// If the plan leaves pods, it is the cheapest, on which the plan relies: a larger type would have more capacity than
/// planned.
fn launched(planned: &Planned, number: usize, launch: &Launch) -> Result<CaseNode> {
    let catalog = catalog_of(&planned.snapshot, planned, launch.node_pool.as_str())?;
    let bought = bought_as(launch).context("a launch without offerings")?;
    let choices: Vec<_> = launch.offerings.iter().filter(|it| it.capacity_type == bought).collect();
    let draw = planned.seed.wrapping_add(number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
    // The cheapest is as likely as all others together.
    let cheapest = draw.is_multiple_of(2) || !planned.plan.unschedulable.is_empty();
    let chosen = if cheapest { 0 } else { usize::try_from(draw / 2).unwrap_or(0) % choices.len().max(1) };
    let choice = choices.get(chosen).context("a launch without offerings")?;
    let (kind, offering) = offering(catalog, &choice.instance_type, |it| it.is(choice))
        .with_context(|| format!("{} in {} is not in the catalog", choice.instance_type, choice.zone))?;
    Ok(CaseNode::launched(&format!("launch-{number}"), launch, kind, offering, &catalog.region))
}

fn offering<'a>(
    catalog: &'a Catalog,
    name: &str,
    same: impl Fn(&&Offering) -> bool,
) -> Option<(&'a InstanceType, &'a Offering)> {
    let kind = catalog.get(name)?;
    Some((kind, kind.offerings.iter().find(same)?))
}

fn catalog_of<'a>(snapshot: &Snapshot, planned: &'a Planned, pool: &str) -> Result<&'a Catalog> {
    let pool = snapshot.node_pools.iter().find(|it| it.name.as_str() == pool).context("a launch of no pool")?;
    let id = pool.catalog.as_ref().context("a launch of a pool without catalog")?;
    planned.catalogs.get(id).context("the catalog of a pool is missing")
}

fn namespaces(planned: &Planned, isolation: &Isolation) -> Vec<Namespace> {
    let objects = &planned.objects;
    let named = |metadata: &ObjectMeta| metadata.namespace.clone();
    let mut all: BTreeMap<String, ObjectMeta> = BTreeMap::new();
    let used = objects.pods.iter().filter_map(|it| named(&it.metadata));
    let used = used.chain(objects.daemon_sets.iter().filter_map(|it| named(&it.metadata)));
    for name in used.chain(objects.persistent_volume_claims.iter().filter_map(|it| named(&it.metadata))) {
        all.insert(name.clone(), ObjectMeta { name: Some(name), ..ObjectMeta::default() });
    }
    for namespace in &objects.namespaces {
        all.insert(namespace.metadata.name.clone().unwrap_or_default(), namespace.metadata.clone());
    }
    let own = |metadata: &ObjectMeta| {
        let mut metadata = isolation.metadata(metadata);
        // The server sets this label from the name.
        metadata.labels.get_or_insert_default().remove("kubernetes.io/metadata.name");
        Namespace { metadata, ..Namespace::default() }
    };
    all.values().map(own).collect()
}

fn priority_classes(planned: &Planned, isolation: &Isolation) -> Vec<PriorityClass> {
    let classes = planned.objects.priority_classes.iter();
    let case_classes = classes.filter(|class| !class.metadata.name.as_deref().unwrap_or_default().starts_with(SYSTEM));
    case_classes
        .map(|class| PriorityClass {
            metadata: isolation.metadata(&class.metadata),
            global_default: None,
            ..class.clone()
        })
        .collect()
}

fn storage_classes(planned: &Planned, isolation: &Isolation) -> Vec<StorageClass> {
    let own = |class: &StorageClass| {
        let mut metadata = isolation.metadata(&class.metadata);
        metadata.annotations = None;
        StorageClass { metadata, ..class.clone() }
    };
    planned.objects.storage_classes.iter().map(own).collect()
}
