//! Builds pod shapes. A shape contains everything that affects where a pod can run, and is identified by its content.

use crate::pdbs::Budgets;
use crate::pod_table::ReadContext;
use crate::problems::Fault;
use crate::volumes::Volumes;
use crate::{Objects, Source, requests, selectors};
use k8s_openapi::api::core::v1::{
    PodAffinityTerm as KubePodAffinityTerm, PodSpec, Toleration as KubeToleration,
    TopologySpreadConstraint as KubeSpread,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as KubeSelector;
use plimsoll_model::identity::ShapeId;
use plimsoll_model::snapshot::{HostPort, LabelSelector, OnDemandRatio, PodAffinityTerm, PodShape, TopologySpread};
use plimsoll_model::taints::{TaintEffect, Toleration, TolerationOperator};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Label that every namespace has.
const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Input of a shape.
pub(crate) struct Template<'object> {
    pub(crate) namespace: &'object str,
    /// Name of the pod, which determines the claims of its ephemeral volumes.
    pub(crate) name: &'object str,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) spec: &'object PodSpec,
    pub(crate) on_demand: Option<OnDemandRatio>,
}

/// Relation between a pod and its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeBinding {
    /// The pod has no node.
    None,
    /// The pod runs on a node and may be moved.
    Movable,
    /// The pod runs on a node and cannot leave it.
    Pinned,
    /// The pod is the template of a DaemonSet.
    Daemon,
}

/// Collects distinct shapes.
pub(crate) struct Shapes<'objects> {
    /// Shapes with their ids, by shapes whose ids are empty. Comparing shapes is cheaper than hashing the shape of
    /// every pod.
    by_content: BTreeMap<PodShape, Arc<PodShape>>,
    used: BTreeMap<ShapeId, Arc<PodShape>>,
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
    priorities: BTreeMap<&'objects str, i32>,
    default_priority: i32,
    /// Keys of the labels that shapes keep.
    label_keys: BTreeSet<String>,
    volumes: Volumes<'objects>,
}

impl<'objects> Shapes<'objects> {
    /// `pod_namespaces` are the namespaces of all pods, and `label_keys` the keys of labels that selectors name.
    pub(crate) fn new<'n>(
        objects: &'objects Objects,
        source: Source,
        pod_namespaces: impl Iterator<Item = &'n String>,
        label_keys: BTreeSet<String>,
    ) -> Self {
        let classes = &objects.priority_classes;
        Self {
            by_content: BTreeMap::new(),
            used: BTreeMap::new(),
            namespaces: namespaces(objects, pod_namespaces),
            priorities: classes
                .iter()
                .filter_map(|class| Some((class.metadata.name.as_deref()?, class.value.unwrap_or(0))))
                .collect(),
            default_priority: classes
                .iter()
                .filter(|class| class.global_default == Some(true))
                .filter_map(|class| class.value)
                .min()
                .unwrap_or(0),
            label_keys,
            volumes: Volumes::new(objects, source),
        }
    }

    /// Priority of a pod, including the built-in priority classes of Kubernetes.
    pub(crate) fn priority(&self, spec: &PodSpec) -> i32 {
        if let Some(priority) = spec.priority {
            return priority;
        }
        match spec.priority_class_name.as_deref() {
            None | Some("") => self.default_priority,
            Some("system-cluster-critical") => 2_000_000_000,
            Some("system-node-critical") => 2_000_001_000,
            Some(class) => self.priorities.get(class).copied().unwrap_or(self.default_priority),
        }
    }

    /// Adds the shape of `template` and returns it with its id. Volumes of pods that cannot leave their node only count
    /// towards its attach limits.
    pub(crate) fn add(&mut self, template: &Template<'_>, binding: NodeBinding) -> Result<Arc<PodShape>, Fault> {
        let mut shape = self.shape(template, binding)?;
        shape.volumes = match binding {
            NodeBinding::None | NodeBinding::Movable => self.volumes.of(template, binding == NodeBinding::Movable)?,
            NodeBinding::Pinned | NodeBinding::Daemon => self.volumes.attached(template),
        };
        if let Some(known) = self.by_content.get(&shape) {
            return Ok(Arc::clone(known));
        }
        let with_id = Arc::new(PodShape { id: shape.content_id(), ..shape.clone() });
        self.mark_used(&with_id);
        self.by_content.insert(shape, Arc::clone(&with_id));
        Ok(with_id)
    }

    /// Adds a shape that was read for an earlier snapshot.
    pub(crate) fn mark_used(&mut self, shape: &Arc<PodShape>) {
        if !self.used.contains_key(&shape.id) {
            self.used.insert(shape.id.clone(), Arc::clone(shape));
        }
    }

    /// What reading a pod without volume claims depends on.
    pub(crate) fn read_context(&self, budgets: &Budgets<'_>) -> ReadContext {
        ReadContext {
            namespaces: self.namespaces.clone(),
            priorities: self.priorities.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            default_priority: self.default_priority,
            label_keys: self.label_keys.clone(),
            budgets: budgets.identities(),
        }
    }

    pub(crate) fn into_shapes(self) -> Vec<PodShape> {
        drop(self.by_content);
        self.used.into_values().map(Arc::unwrap_or_clone).collect()
    }

    fn shape(&self, template: &Template<'_>, binding: NodeBinding) -> Result<PodShape, Fault> {
        let spec = template.spec;
        let affinity = spec.affinity.as_ref();
        // The node affinity of a DaemonSet's pod names its node, so that each such pod would have a shape of its own.
        let node_affinity =
            affinity.and_then(|affinity| affinity.node_affinity.as_ref()).filter(|_| binding != NodeBinding::Pinned);
        Ok(PodShape {
            id: ShapeId::default(),
            namespace: template.namespace.to_owned(),
            labels: template.labels.clone().into_iter().filter(|(key, _)| self.label_keys.contains(key)).collect(),
            requests: requests::effective_requests(spec)?,
            node_selector: spec.node_selector.clone().unwrap_or_default(),
            required_node_affinity: selectors::required_terms(node_affinity)?,
            preferred_node_affinity: selectors::preferred_terms(node_affinity)?,
            tolerations: tolerations(spec.tolerations.iter().flatten())?,
            host_ports: host_ports(spec)?,
            topology_spread: spec
                .topology_spread_constraints
                .iter()
                .flatten()
                .enumerate()
                .map(|(index, spread)| {
                    topology_spread(spread, &template.labels)
                        .map_err(|fault| fault.below(&format!("spec.topologySpreadConstraints[{index}]")))
                })
                .collect::<Result<_, _>>()?,
            pod_affinity: self.pod_affinity(template)?,
            volumes: Vec::new(),
            resource_claims: spec.resource_claims.iter().flatten().map(|claim| claim.name.clone()).collect(),
            priority: self.priority(spec),
            on_demand: template.on_demand.clone(),
        })
    }

    fn pod_affinity(&self, template: &Template<'_>) -> Result<Vec<PodAffinityTerm>, Fault> {
        let Some(affinity) = &template.spec.affinity else { return Ok(Vec::new()) };
        let mut terms = Vec::new();
        let pod_affinity = affinity.pod_affinity.as_ref();
        let pod_anti_affinity = affinity.pod_anti_affinity.as_ref();
        let required = [
            (
                false,
                pod_affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref()),
            ),
            (
                true,
                pod_anti_affinity
                    .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref()),
            ),
        ];
        let preferred = [
            (
                false,
                pod_affinity
                    .and_then(|affinity| affinity.preferred_during_scheduling_ignored_during_execution.as_ref()),
            ),
            (
                true,
                pod_anti_affinity
                    .and_then(|affinity| affinity.preferred_during_scheduling_ignored_during_execution.as_ref()),
            ),
        ];
        for (anti, list) in required {
            for (index, term) in list.into_iter().flatten().enumerate() {
                let path = format!("{}.requiredDuringSchedulingIgnoredDuringExecution[{index}]", affinity_path(anti));
                terms.push(self.affinity_term(term, anti, None, template).map_err(|fault| fault.below(&path))?);
            }
        }
        for (anti, list) in preferred {
            for (index, weighted) in list.into_iter().flatten().enumerate() {
                let path = format!(
                    "{}.preferredDuringSchedulingIgnoredDuringExecution[{index}].podAffinityTerm",
                    affinity_path(anti)
                );
                let term = self.affinity_term(&weighted.pod_affinity_term, anti, Some(weighted.weight), template);
                terms.push(term.map_err(|fault| fault.below(&path))?);
            }
        }
        Ok(terms)
    }

    fn affinity_term(
        &self,
        term: &KubePodAffinityTerm,
        anti: bool,
        weight: Option<i32>,
        template: &Template<'_>,
    ) -> Result<PodAffinityTerm, Fault> {
        if term.topology_key.is_empty() {
            return Err(Fault::new("topologyKey", "must not be empty"));
        }
        let mut selector = optional_selector(term.label_selector.as_ref())?;
        if let Some(selector) = &mut selector {
            let keys = term.match_label_keys.iter().flatten();
            selectors::add_label_keys(selector, keys, &template.labels, true);
            let keys = term.mismatch_label_keys.iter().flatten();
            selectors::add_label_keys(selector, keys, &template.labels, false);
        }
        let mut namespaces: BTreeSet<String> = term.namespaces.iter().flatten().cloned().collect();
        if let Some(selector) = &term.namespace_selector {
            for (name, labels) in &self.namespaces {
                if selectors::matches(selector, labels).map_err(|fault| fault.below("namespaceSelector"))? {
                    namespaces.insert(name.clone());
                }
            }
        } else if namespaces.is_empty() {
            namespaces.insert(template.namespace.to_owned());
        }
        Ok(PodAffinityTerm {
            anti,
            weight,
            topology_key: term.topology_key.clone(),
            selector,
            namespaces: namespaces.into_iter().collect(),
        })
    }
}

fn affinity_path(anti: bool) -> &'static str {
    if anti { "spec.affinity.podAntiAffinity" } else { "spec.affinity.podAffinity" }
}

fn optional_selector(selector: Option<&KubeSelector>) -> Result<Option<LabelSelector>, Fault> {
    selector
        .map(|selector| selectors::label_selector(selector).map_err(|fault| fault.below("labelSelector")))
        .transpose()
}

/// Labels by namespace. A namespace that only pods refer to is included, since it exists in a cluster.
fn namespaces<'n>(
    objects: &Objects,
    pod_namespaces: impl Iterator<Item = &'n String>,
) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut namespaces = BTreeMap::new();
    for namespace in &objects.namespaces {
        if let Some(name) = &namespace.metadata.name {
            namespaces.insert(name.clone(), namespace.metadata.labels.clone().unwrap_or_default());
        }
    }
    for name in pod_namespaces {
        if !namespaces.contains_key(name) {
            namespaces.insert(name.clone(), BTreeMap::new());
        }
    }
    for (name, labels) in &mut namespaces {
        labels.insert(NAMESPACE_NAME_LABEL.to_owned(), name.clone());
    }
    namespaces
}

fn topology_spread(spread: &KubeSpread, labels: &BTreeMap<String, String>) -> Result<TopologySpread, Fault> {
    let mut selector = optional_selector(spread.label_selector.as_ref())?;
    if let Some(selector) = &mut selector {
        selectors::add_label_keys(selector, spread.match_label_keys.iter().flatten(), labels, true);
    }
    if spread.max_skew < 1 {
        return Err(Fault::new("maxSkew", "must be at least 1"));
    }
    if spread.topology_key.is_empty() {
        return Err(Fault::new("topologyKey", "must not be empty"));
    }
    let required = match spread.when_unsatisfiable.as_str() {
        "DoNotSchedule" => true,
        "ScheduleAnyway" => false,
        _ => return Err(Fault::new("whenUnsatisfiable", "must be DoNotSchedule or ScheduleAnyway")),
    };
    Ok(TopologySpread {
        topology_key: spread.topology_key.clone(),
        max_skew: spread.max_skew,
        min_domains: spread.min_domains,
        required,
        selector,
        honor_node_affinity: spread.node_affinity_policy.as_deref().unwrap_or("Honor") == "Honor",
        honor_node_taints: spread.node_taints_policy.as_deref() == Some("Honor"),
    })
}

fn tolerations<'object>(list: impl Iterator<Item = &'object KubeToleration>) -> Result<Vec<Toleration>, Fault> {
    let mut tolerations = Vec::new();
    for (index, toleration) in list.enumerate() {
        let path = format!("spec.tolerations[{index}]");
        let operator = match toleration.operator.as_deref() {
            None | Some("" | "Equal") => TolerationOperator::Equal,
            Some("Exists") => TolerationOperator::Exists,
            // Numeric operators are behind a feature gate of Kubernetes. Such a toleration is ignored.
            Some("Gt" | "Lt") => continue,
            Some(other) => {
                return Err(Fault::new(format!("{path}.operator"), format!("{other:?} is neither Equal nor Exists")));
            }
        };
        let effect = match toleration.effect.as_deref() {
            None | Some("") => None,
            Some(text) => Some(TaintEffect::parse(text).ok_or_else(|| {
                let message = format!("{text:?} is none of NoSchedule, PreferNoSchedule and NoExecute");
                Fault::new(format!("{path}.effect"), message)
            })?),
        };
        tolerations.push(Toleration {
            key: toleration.key.clone().unwrap_or_default(),
            operator,
            value: toleration.value.clone().unwrap_or_default(),
            effect,
        });
    }
    Ok(tolerations)
}

/// Host ports of containers and sidecars. In the host network, every container port is a host port.
fn host_ports(spec: &PodSpec) -> Result<Vec<HostPort>, Fault> {
    let sidecars = spec.init_containers.iter().flatten().filter(|container| requests::is_sidecar(container));
    let mut ports = BTreeSet::new();
    for container in spec.containers.iter().chain(sidecars) {
        for port in container.ports.iter().flatten() {
            let implied = if spec.host_network == Some(true) { port.container_port } else { 0 };
            let number = port.host_port.filter(|number| *number != 0).unwrap_or(implied);
            if number == 0 {
                continue;
            }
            let field = format!("spec.containers.{}.ports.hostPort", container.name);
            ports.insert(HostPort {
                ip: port.host_ip.clone().filter(|ip| !ip.is_empty()).unwrap_or_else(|| "0.0.0.0".to_owned()),
                port: u16::try_from(number).map_err(|_| Fault::new(field, "must be between 1 and 65535"))?,
                protocol: port.protocol.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| "TCP".to_owned()),
            });
        }
    }
    Ok(ports.into_iter().collect())
}

#[cfg(test)]
mod tests;
