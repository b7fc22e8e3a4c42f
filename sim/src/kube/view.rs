//! Pods and Nodes as controllers use them: parsed once from JSON.

use super::quantity::{Amounts, add, amounts, raise};
use crate::apiserver::object;
use crate::apiserver::selector::expression_holds;
use crate::apiserver::store::{Key, Object};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Parsed pod.
#[derive(Debug, Clone)]
pub(super) struct PodView {
    pub(super) object: Object,
    pub(super) key: Key,
    pub(super) uid: String,
    /// UID of its controller, or empty.
    pub(super) owner: String,
    /// Empty if the pod is not bound.
    pub(super) node: String,
    /// The nominated node, or empty.
    pub(super) nominated: String,
    pub(super) phase: String,
    /// End of the grace period of a pod that is being deleted.
    pub(super) deletion: Option<Timestamp>,
    pub(super) ready: bool,
    /// Including init containers, sidecars, overhead, and one `pods`.
    pub(super) requests: Amounts,
    /// Port, protocol, address.
    pub(super) host_ports: BTreeSet<(i64, String, String)>,
    pub(super) priority: i64,
    /// Equal for pods that are identical to the scheduler.
    pub(super) shape: u64,
}

impl PodView {
    pub(super) fn read(pod: &Object) -> Self {
        let requests = requests(pod);
        let host_ports = host_ports(pod);
        let mut hasher = DefaultHasher::new();
        requests.hash(&mut hasher);
        host_ports.hash(&mut hasher);
        for field in ["nodeSelector", "affinity", "tolerations"] {
            object::at(pod, &["spec", field]).map(Value::to_string).hash(&mut hasher);
        }
        Self {
            key: Key::of(pod),
            uid: object::uid(pod).to_owned(),
            owner: object::controller(pod).map(|owner| object::text(owner, &["uid"]).to_owned()).unwrap_or_default(),
            node: object::text(pod, &["spec", "nodeName"]).to_owned(),
            nominated: object::text(pod, &["status", "nominatedNodeName"]).to_owned(),
            phase: object::text(pod, &["status", "phase"]).to_owned(),
            deletion: object::time_at(pod, &["metadata", "deletionTimestamp"]),
            ready: object::condition_is_true(pod, "Ready"),
            requests,
            host_ports,
            priority: object::integer(pod, &["spec", "priority"]).unwrap_or(0),
            shape: hasher.finish(),
            object: pod.clone(),
        }
    }

    /// Whether the pod has finished.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Whether the pod counts as a replica: neither finished nor being deleted.
    pub(super) fn is_active(&self) -> bool {
        !self.is_over() && self.deletion.is_none()
    }

    pub(super) fn tolerations(&self) -> &[Value] {
        object::items(&self.object, &["spec", "tolerations"])
    }
}

/// Peak requests of a pod: all containers together, or an init container with the sidecars before it.
fn requests(pod: &Value) -> Amounts {
    let of = |container: &Value| amounts(object::at(container, &["resources", "requests"]));
    let mut running = Amounts::new();
    for container in object::items(pod, &["spec", "containers"]) {
        add(&mut running, &of(container));
    }
    let (mut sidecars, mut starting) = (Amounts::new(), Amounts::new());
    for container in object::items(pod, &["spec", "initContainers"]) {
        let mut together = of(container);
        if object::text(container, &["restartPolicy"]) == "Always" {
            add(&mut running, &together);
            add(&mut sidecars, &together);
            together = sidecars.clone();
        } else {
            add(&mut together, &sidecars);
        }
        raise(&mut starting, &together);
    }
    raise(&mut running, &starting);
    // Pod-level requests replace the requests of the containers.
    running.extend(amounts(object::at(pod, &["spec", "resources", "requests"])));
    add(&mut running, &amounts(object::at(pod, &["spec", "overhead"])));
    running.insert("pods".to_owned(), 1000);
    running
}

fn host_ports(pod: &Value) -> BTreeSet<(i64, String, String)> {
    let containers = object::items(pod, &["spec", "containers"]).iter();
    let sidecars = object::items(pod, &["spec", "initContainers"])
        .iter()
        .filter(|container| object::text(container, &["restartPolicy"]) == "Always");
    let or = |text: &str, default: &str| if text.is_empty() { default.to_owned() } else { text.to_owned() };
    containers
        .chain(sidecars)
        .flat_map(|container| object::items(container, &["ports"]))
        .filter_map(|port| {
            let number = object::integer(port, &["hostPort"]).filter(|number| *number > 0)?;
            Some((number, or(object::text(port, &["protocol"]), "TCP"), or(object::text(port, &["hostIP"]), "0.0.0.0")))
        })
        .collect()
}

/// Parsed taint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Taint {
    pub(super) key: String,
    pub(super) value: String,
    pub(super) effect: String,
    pub(super) since: Option<Timestamp>,
}

impl Taint {
    fn read(taint: &Value) -> Self {
        let field = |name| object::text(taint, &[name]).to_owned();
        Self {
            key: field("key"),
            value: field("value"),
            effect: field("effect"),
            since: object::time_at(taint, &["timeAdded"]),
        }
    }

    /// Whether one toleration tolerates the taint.
    pub(super) fn is_tolerated(&self, toleration: &Value) -> bool {
        let field = |name| object::text(toleration, &[name]);
        let effect = field("effect").is_empty() || field("effect") == self.effect;
        let key = field("key") == self.key || (field("key").is_empty() && field("operator") == "Exists");
        effect && key && (field("operator") == "Exists" || field("value") == self.value)
    }

    /// Whether any of the tolerations tolerates the taint.
    pub(super) fn is_tolerated_by(&self, tolerations: &[Value]) -> bool {
        tolerations.iter().any(|toleration| self.is_tolerated(toleration))
    }
}

/// Parsed Node.
#[derive(Debug, Clone)]
pub(super) struct NodeView {
    pub(super) object: Object,
    pub(super) name: String,
    pub(super) allocatable: Amounts,
    pub(super) taints: Vec<Taint>,
    pub(super) unschedulable: bool,
    pub(super) ready: String,
    /// Changes whenever a fact that placement depends on changes.
    pub(super) signature: u64,
}

impl NodeView {
    pub(super) fn read(node: &Object) -> Self {
        let allocatable = amounts(object::at(node, &["status", "allocatable"]));
        let taints: Vec<_> = object::items(node, &["spec", "taints"]).iter().map(Taint::read).collect();
        let unschedulable = object::at(node, &["spec", "unschedulable"]).and_then(Value::as_bool) == Some(true);
        let mut hasher = DefaultHasher::new();
        (&allocatable, &taints, unschedulable).hash(&mut hasher);
        object::at(node, &["metadata", "labels"]).map(Value::to_string).hash(&mut hasher);
        Self {
            name: object::name(node).to_owned(),
            allocatable,
            taints,
            unschedulable,
            ready: object::condition(node, "Ready")
                .map(|ready| object::text(ready, &["status"]).to_owned())
                .unwrap_or_default(),
            signature: hasher.finish(),
            object: node.clone(),
        }
    }

    /// Whether the Node satisfies a pod spec's node selector and required node affinity.
    pub(super) fn is_selected_by(&self, spec: &Value) -> bool {
        let label = |key: &str| object::label(&self.object, key);
        let selector = object::at(spec, &["nodeSelector"]).and_then(Value::as_object).into_iter().flatten();
        if !selector.into_iter().all(|(key, value)| label(key) == value.as_str()) {
            return false;
        }
        let required = &["affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];
        let Some(required) = object::at(spec, required) else { return true };
        object::items(required, &["nodeSelectorTerms"]).iter().any(|term| {
            let labels = object::items(term, &["matchExpressions"]);
            let fields = object::items(term, &["matchFields"]);
            let empty = labels.is_empty() && fields.is_empty();
            !empty
                && labels.iter().all(|test| expression_holds(test, label(object::text(test, &["key"]))))
                && fields.iter().all(|test| {
                    object::text(test, &["key"]) == "metadata.name" && expression_holds(test, Some(&self.name))
                })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{NodeView, PodView, Taint};
    use serde_json::{Value, json};
    use std::sync::Arc;

    #[test]
    fn a_pod_needs_its_greediest_moment() {
        let container = |cpu: &str| json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
        let sidecar =
            |cpu: &str| json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}});
        let cpu = |spec: Value| PodView::read(&Arc::new(json!({"spec": spec}))).requests["cpu"];
        assert_eq!(cpu(json!({"containers": [container("1"), container("500m")]})), 1500);
        assert_eq!(cpu(json!({"containers": [container("1")], "initContainers": [container("3")]})), 3000);
        // The init container after the sidecar runs together with it; the one before does not.
        assert_eq!(
            cpu(
                json!({"containers": [container("1")], "initContainers": [container("3"), sidecar("1"), container("3")]})
            ),
            4000
        );
        assert_eq!(
            cpu(json!({"containers": [container("1")], "initContainers": [sidecar("1")], "overhead": {"cpu": "100m"}})),
            2100
        );
    }

    #[test]
    fn tolerations() {
        let taint = Taint { key: "k".into(), value: "v".into(), effect: "NoExecute".into(), since: None };
        for (toleration, expected) in [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}), true),
            (json!({"key": "k", "value": "v"}), true),
            (json!({"key": "k", "operator": "Equal", "value": "w"}), false),
            (json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"}), false),
            (json!({"value": "v"}), false),
        ] {
            assert_eq!(taint.is_tolerated(&toleration), expected, "{toleration}");
        }
    }

    #[test]
    fn node_affinity_terms_are_alternatives_and_empty_ones_match_nothing() {
        let node = NodeView::read(&Arc::new(json!({"metadata": {"name": "n", "labels": {"zone": "a"}}})));
        let spec = |terms: Value| json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}});
        let zone = |zone: &str| json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]});
        let name = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]});
        assert!(node.is_selected_by(&spec(json!([zone("b"), zone("a")]))));
        assert!(node.is_selected_by(&spec(json!([name]))));
        assert!(!node.is_selected_by(&spec(json!([zone("b")]))));
        assert!(!node.is_selected_by(&spec(json!([{}]))));
        assert!(!node.is_selected_by(&json!({"nodeSelector": {"zone": "b"}})));
    }
}
