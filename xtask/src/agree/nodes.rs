//! Node objects as the actuator and a kubelet would create them.

use super::isolate::Isolation;
use k8s_openapi::api::core::v1::{Node as KubeNode, NodeCondition, NodeSpec, NodeStatus, Taint as KubeTaint};
use k8s_openapi::api::storage::v1::{CSINode, CSINodeDriver, CSINodeSpec, VolumeNodeResources};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plimsoll_kubesched::volumes;
use plimsoll_model::catalog::{CapacityType, InstanceType, Offering};
use plimsoll_model::names::{label, taint};
use plimsoll_model::plan::Launch;
use plimsoll_model::quantity::format_amount;
use plimsoll_model::requirements::Operator;
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{Node, NodePool, NodeState};
use plimsoll_model::taints::{Taint, TaintEffect};
use std::collections::BTreeMap;

const EBS_DRIVER: &str = "ebs.csi.aws.com";

/// A node of a case, with its name in plan and manifests.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CaseNode {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) taints: Vec<Taint>,
    pub(super) allocatable: Resources,
    pub(super) cordoned: bool,
    /// Whether the plan launches the node, or could have.
    pub(super) bought: bool,
    /// Capacity that counts against limits.
    pub(super) capacity: Resources,
    /// Type, zone and capacity type of a new node, for reports.
    pub(super) what: String,
}

impl CaseNode {
    /// An existing node, or the future node of a claim.
    pub(super) fn existing(node: &Node) -> CaseNode {
        let mut taints = node.taints.clone();
        if node.state == NodeState::Initialized && !node.ready {
            // As the node lifecycle controller does.
            taints.push(Taint {
                key: taint::NOT_READY.to_owned(),
                value: String::new(),
                effect: TaintEffect::NoSchedule,
            });
        }
        CaseNode {
            name: node.name.0.clone(),
            labels: node.labels.clone(),
            taints,
            allocatable: node.allocatable.clone(),
            cordoned: node.cordoned,
            bought: false,
            capacity: node.allocatable.clone(),
            what: "existing node".to_owned(),
        }
    }

    /// The node of a launch, launched as `offering` of `kind`.
    pub(super) fn launched(
        name: &str,
        launch: &Launch,
        kind: &InstanceType,
        offering: &Offering,
        region: &str,
    ) -> CaseNode {
        let mut labels = of_type(kind, offering, region);
        // As in a claim of the actuator: one value of each custom label of the pool, then the labels of the template.
        for requirement in launch.requirements.iter() {
            let is_custom = !label::is_well_known(&requirement.key) && !label::is_restricted(&requirement.key);
            if let (true, Operator::In, Some(value)) =
                (is_custom, requirement.operator, requirement.values.iter().min())
            {
                labels.insert(requirement.key.clone(), value.clone());
            }
        }
        labels.extend(launch.labels.clone());
        in_service(&mut labels, name, launch.node_pool.as_str(), &launch.node_class);
        CaseNode::new(name, labels, launch.taints.clone(), kind, offering)
    }

    /// A node that `pool` could launch, with these custom labels.
    pub(super) fn possible(
        name: &str,
        pool: &NodePool,
        own: &BTreeMap<String, String>,
        (kind, offering): (&InstanceType, &Offering),
        region: &str,
    ) -> CaseNode {
        let mut labels = of_type(kind, offering, region);
        labels.extend(own.clone());
        labels.extend(pool.labels.clone());
        in_service(&mut labels, name, pool.name.as_str(), &pool.node_class);
        CaseNode::new(name, labels, pool.taints.clone(), kind, offering)
    }

    fn new(
        name: &str,
        labels: BTreeMap<String, String>,
        taints: Vec<Taint>,
        kind: &InstanceType,
        offering: &Offering,
    ) -> CaseNode {
        CaseNode {
            name: name.to_owned(),
            labels,
            taints,
            allocatable: kind.allocatable(),
            cordoned: false,
            bought: true,
            capacity: kind.capacity.clone(),
            what: format!("{} in {} ({})", kind.name, offering.zone, offering.capacity_type),
        }
    }

    /// Pool of the node; empty if none.
    pub(super) fn pool(&self) -> &str {
        self.labels.get(label::NODE_POOL).map_or("", String::as_str)
    }

    /// Renames the node.
    pub(super) fn rename(&mut self, name: &str) {
        name.clone_into(&mut self.name);
        self.labels.insert(label::HOSTNAME.to_owned(), name.to_owned());
    }

    /// Whether the DaemonSet controller runs a pod of this shape on the node.
    pub(super) fn runs_daemon(&self, shape: &plimsoll_model::snapshot::PodShape) -> bool {
        let wanted = self.taints.iter().filter(|taint| taint.effect != TaintEffect::PreferNoSchedule);
        let selected = shape.node_selector.iter().all(|(key, value)| self.labels.get(key) == Some(value));
        let terms = &shape.required_node_affinity;
        let matched = terms.is_empty() || terms.iter().any(|term| term.matches_node(&self.name, &self.labels));
        selected && matched && wanted.into_iter().all(|taint| shape.tolerations.iter().any(|it| it.tolerates(taint)))
    }

    /// The object for the API server.
    pub(super) fn object(&self, isolation: &Isolation) -> KubeNode {
        let mut node = self.plain();
        node.metadata.name = Some(isolation.name(&self.name));
        isolation.node_labels(node.metadata.labels.get_or_insert_default());
        node
    }

    /// CSINode of the EBS driver on the node, with the volume limit that plans assume for the instance type. Existing
    /// nodes have a CSINode in the manifests, or none.
    pub(super) fn driver(&self, isolation: &Isolation) -> Option<CSINode> {
        let count = i32::try_from(volumes::usual_limit(EBS_DRIVER, &self.labels, false)).ok();
        let name = isolation.name(&self.name);
        let mut labels = BTreeMap::new();
        isolation.node_labels(&mut labels);
        let driver = CSINodeDriver {
            name: EBS_DRIVER.to_owned(),
            node_id: name.clone(),
            topology_keys: Some(vec![label::ZONE.to_owned()]),
            allocatable: Some(VolumeNodeResources { count }),
        };
        self.bought.then(|| CSINode {
            metadata: ObjectMeta { name: Some(name), labels: Some(labels), ..ObjectMeta::default() },
            spec: CSINodeSpec { drivers: vec![driver] },
        })
    }

    /// The object without isolation from other cases.
    pub(super) fn plain(&self) -> KubeNode {
        let mut labels = self.labels.clone();
        also_known_as(&mut labels);
        let taints = self.taints.iter().map(|taint| KubeTaint {
            key: taint.key.clone(),
            value: Some(taint.value.clone()).filter(|value| !value.is_empty()),
            effect: taint.effect.as_str().to_owned(),
            time_added: None,
        });
        let amounts = |all: &Resources| -> BTreeMap<String, Quantity> {
            let positive = all.iter().filter(|(_, amount)| *amount > 0);
            positive.map(|(name, amount)| (name.to_owned(), Quantity(format_amount(name, amount)))).collect()
        };
        KubeNode {
            metadata: ObjectMeta { name: Some(self.name.clone()), labels: Some(labels), ..ObjectMeta::default() },
            spec: Some(NodeSpec {
                taints: Some(taints.collect()),
                unschedulable: self.cordoned.then_some(true),
                ..NodeSpec::default()
            }),
            status: Some(NodeStatus {
                capacity: Some(amounts(&self.capacity)),
                allocatable: Some(amounts(&self.allocatable)),
                conditions: Some(vec![NodeCondition {
                    type_: "Ready".to_owned(),
                    status: "True".to_owned(),
                    ..NodeCondition::default()
                }]),
                ..NodeStatus::default()
            }),
        }
    }
}

/// Labels of an instance, as its claim has them after the launch.
fn of_type(kind: &InstanceType, offering: &Offering, region: &str) -> BTreeMap<String, String> {
    let mut labels = kind.labels.clone();
    let os = kind.operating_systems.first().map_or("linux", String::as_str);
    for (key, value) in [
        (label::INSTANCE_TYPE, kind.name.as_str()),
        (label::ARCH, &kind.architecture),
        (label::OS, os),
        (label::ZONE, &offering.zone),
        (label::ZONE_ID, &offering.zone_id),
        (label::CAPACITY_TYPE, offering.capacity_type.as_str()),
        (label::REGION, region),
    ] {
        if !value.is_empty() {
            labels.insert(key.to_owned(), value.to_owned());
        }
    }
    for key in label::CAPACITY_RESERVATION {
        labels.extend(offering.reservation_label(key).map(|value| (key.to_owned(), value.to_owned())));
    }
    labels
}

fn in_service(labels: &mut BTreeMap<String, String>, name: &str, pool: &str, class: &str) {
    for (key, value) in [
        (label::NODE_POOL, pool),
        (label::EC2_NODE_CLASS, class),
        (label::HOSTNAME, name),
        (label::REGISTERED, "true"),
        (label::INITIALIZED, "true"),
    ] {
        labels.insert(key.to_owned(), value.to_owned());
    }
}

/// Kubelet, cloud controller and the EBS driver also set some labels with older or additional keys.
fn also_known_as(labels: &mut BTreeMap<String, String>) {
    const OLDER: [(&str, &str); 6] = [
        ("beta.kubernetes.io/arch", label::ARCH),
        ("beta.kubernetes.io/os", label::OS),
        ("beta.kubernetes.io/instance-type", label::INSTANCE_TYPE),
        ("failure-domain.beta.kubernetes.io/zone", label::ZONE),
        ("failure-domain.beta.kubernetes.io/region", label::REGION),
        ("topology.ebs.csi.aws.com/zone", label::ZONE),
    ];
    for (older, key) in OLDER {
        if let Some(value) = labels.get(key).cloned() {
            labels.entry(older.to_owned()).or_insert(value);
        }
    }
}

/// Capacity type of the launch, with the priority of the actuator: reserved, then Spot, then On-Demand.
pub(super) fn bought_as(launch: &Launch) -> Option<CapacityType> {
    CapacityType::ALL.into_iter().find(|kind| launch.offerings.iter().any(|choice| choice.capacity_type == *kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::money::MicroUsdPerHour;
    use plimsoll_model::plan::OfferingChoice;
    use plimsoll_model::requirements::NodeSelectorRequirement;

    fn choice(capacity_type: CapacityType) -> OfferingChoice {
        OfferingChoice {
            instance_type: "m5.large".to_owned(),
            zone: "test-1a".to_owned(),
            capacity_type,
            price: MicroUsdPerHour(1),
            reservation: None,
        }
    }

    fn launch() -> Launch {
        let requirement = |key: &str, values: &[&str]| NodeSelectorRequirement {
            key: key.to_owned(),
            operator: Operator::In,
            values: values.iter().map(|it| (*it).to_owned()).collect(),
            min_values: None,
        };
        Launch {
            action_id: plimsoll_model::identity::ActionId::from("a"),
            node_pool: "general".into(),
            node_class: "default".to_owned(),
            offerings: std::sync::Arc::new(vec![choice(CapacityType::OnDemand), choice(CapacityType::Spot)]),
            requirements: std::sync::Arc::new(vec![
                requirement("team", &["b", "a"]),
                requirement(label::ZONE, &["test-1a", "test-1b"]),
            ]),
            labels: BTreeMap::from([("tier".to_owned(), "web".to_owned())]),
            ..Launch::default()
        }
    }

    #[test]
    fn a_launch_becomes_the_node_that_the_actuator_would_make() {
        let kind = InstanceType {
            name: "m5.large".to_owned(),
            architecture: "amd64".to_owned(),
            operating_systems: vec!["linux".to_owned()],
            capacity: Resources::from([("cpu", 2000)]),
            overhead: Resources::from([("cpu", 70)]),
            labels: BTreeMap::from([("karpenter.k8s.aws/instance-family".to_owned(), "m5".to_owned())]),
            offerings: Vec::new(),
        };
        let offering = Offering {
            zone: "test-1b".to_owned(),
            capacity_type: CapacityType::Spot,
            price: MicroUsdPerHour(1),
            available: true,
            ..Offering::default()
        };
        let made = CaseNode::launched("launch-0", &launch(), &kind, &offering, "test-1");
        let of = |key: &str| made.labels.get(key).map(String::as_str);
        // The custom label of the pool has one value; the zone is the zone of the instance, not the first zone of the
        // launch.
        assert_eq!((of("team"), of("tier"), of(label::ZONE)), (Some("a"), Some("web"), Some("test-1b")));
        assert_eq!((of(label::NODE_POOL), of(label::CAPACITY_TYPE)), (Some("general"), Some("spot")));
        assert_eq!(of("karpenter.k8s.aws/instance-family"), Some("m5"));
        // An unknown zone id gives no label.
        assert_eq!(of(label::ZONE_ID), None);
        let object = made.object(&Isolation::new(7, ["launch-0".to_owned()]));
        let labels = object.metadata.labels.unwrap_or_default();
        assert_eq!(labels.get(label::HOSTNAME).map(String::as_str), Some("c7-launch-0"));
        assert_eq!(labels.get("failure-domain.beta.kubernetes.io/zone").map(String::as_str), Some("test-1b"));
        let allocatable = object.status.and_then(|status| status.allocatable).unwrap_or_default();
        assert_eq!(allocatable.get("cpu").map(|it| it.0.as_str()), Some("1930m"));
    }

    #[test]
    fn a_new_node_has_the_volume_limit_of_its_type() {
        let limit = |family: &str, bought| {
            let node = CaseNode {
                name: "launch-0".to_owned(),
                labels: BTreeMap::from([(label::INSTANCE_FAMILY.to_owned(), family.to_owned())]),
                taints: Vec::new(),
                allocatable: Resources::new(),
                cordoned: false,
                bought,
                capacity: Resources::new(),
                what: String::new(),
            };
            let made = node.driver(&Isolation::new(7, ["launch-0".to_owned()]))?;
            made.spec.drivers.first().and_then(|driver| driver.allocatable.as_ref()?.count)
        };
        assert_eq!((limit("r8i2", true), limit("m5", true), limit("m5", false)), (Some(30), Some(25), None));
    }

    #[test]
    fn spot_is_bought_before_on_demand() {
        assert_eq!(bought_as(&launch()), Some(CapacityType::Spot));
    }
}
