//! Clusters with much free capacity on most nodes, for measuring consolidation.

use super::Types;
use super::nodes::node;
use crate::manifest::{container, requirement, selects};
use crate::{Case, Rng};
use plimsoll_model::catalog::{CapacityType, InstanceType, Offering};
use plimsoll_model::names::{annotation, label};
use plimsoll_model::quantity::format_amount;
use plimsoll_model::resources::{CPU, MEMORY};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Zones of the nodes.
const ZONES: [&str; 3] = ["us-east-1a", "us-east-1b", "us-east-1c"];
/// Families of the nodes, older and newer ones with different prices for the same capacity.
const FAMILIES: [&str; 9] = ["m5", "c5", "r5", "m6i", "c6i", "r6i", "m6a", "c7i", "r7i"];
const SIZES: [&str; 4] = ["large", "xlarge", "2xlarge", "4xlarge"];
/// Requests of one pod: CPU in thousandths, and GiB per CPU.
const CPU_MILLIS: [i64; 6] = [100, 250, 500, 1000, 1500, 2000];
const GIB_PER_CPU: [i64; 4] = [1, 2, 4, 8];
/// Minimum and maximum utilization of a node's scarcest resource, in percent.
const USED: (usize, usize) = (20, 70);
/// Maximum number of pods per node.
const PODS: usize = 16;
/// Maximum number of attempts to fill a node.
const DRAWS: usize = 60;

/// Properties of a cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Underused {
    /// Nodes.
    pub nodes: usize,
    /// Nodes with a pod that must not be disrupted, in percent.
    pub protected: usize,
    /// Spot nodes, in percent. The pool then allows both capacity types.
    pub spot: usize,
    /// Nodes that the pools' budgets allow to be disrupted at the same time, in percent.
    pub budget: usize,
    /// NodePools of the same weight, at least one.
    pub pools: usize,
}

/// Pods of one Deployment.
struct App {
    name: String,
    cpu: i64,
    gib: i64,
    spread: bool,
    /// Pods by zone.
    zones: BTreeMap<&'static str, usize>,
}

impl App {
    fn pods(&self) -> usize {
        self.zones.values().sum()
    }

    /// Whether a further pod in the zone keeps a spread with maxSkew 1.
    fn admits(&self, zone: &str) -> bool {
        let count = |zone: &str| self.zones.get(zone).copied().unwrap_or(0);
        let least = ZONES.iter().map(|zone| count(zone)).min().unwrap_or(0);
        !self.spread || count(zone) <= least
    }
}

/// A running cluster without pending pods. Nodes are 20 to 70 % used. Of the Deployments, one in five is spread over
/// zones with maxSkew 1, and one in three has a PodDisruptionBudget.
#[must_use]
pub fn underused(seed: u64, options: Underused) -> Case {
    let mut rng = Rng::new(seed);
    let types = Types::BuiltIn.choice();
    let catalog = types.catalog();
    let mut case = Case::empty(seed, types);
    case.objects.push(crate::manifest::node_class());
    let pools: Vec<String> = (0..options.pools.max(1)).map(|number| format!("pool-{number}")).collect();
    case.objects.extend(pools.iter().map(|name| node_pool(name, options)));
    let kinds: Vec<&InstanceType> = FAMILIES
        .iter()
        .flat_map(|family| SIZES.iter().map(move |size| format!("{family}.{size}")))
        .filter_map(|name| catalog.get(&name))
        .collect();
    let mut apps: Vec<App> = (0..(options.nodes * 7).div_ceil(10).max(3)).map(|number| app(&mut rng, number)).collect();
    let mut running = Vec::new();
    for number in 0..options.nodes {
        let name = format!("node-{number}");
        let capacity_type = if rng.chance(options.spot) { CapacityType::Spot } else { CapacityType::OnDemand };
        let zone = rng.text(&ZONES);
        let has = |offering: &&Offering| offering.capacity_type == capacity_type && offering.zone == zone;
        let offered: Vec<_> = kinds.iter().filter_map(|it| Some((it, it.offerings.iter().find(has)?))).collect();
        let Some((it, offering)) = rng.pick(&offered).copied() else { continue };
        let pool = rng.pick(&pools).cloned().unwrap_or_default();
        case.objects.push(node(&name, &pool, it, offering, &catalog.region));
        let protected = rng.chance(options.protected);
        fill(&mut rng, (&name, it, offering), protected, &mut apps, &mut running);
    }
    case.objects.extend(running);
    let budgets = apps.iter().enumerate().filter(|(number, app)| number.is_multiple_of(3) && app.pods() > 0);
    case.objects.extend(budgets.map(|(_, app)| disruption_budget(app)));
    case
}

fn app(rng: &mut Rng, number: usize) -> App {
    let cpu = rng.pick(&CPU_MILLIS).copied().unwrap_or(500);
    let gib = rng.pick(&GIB_PER_CPU).copied().unwrap_or(2);
    App { name: format!("app-{number}"), cpu, gib, spread: number.is_multiple_of(5), zones: BTreeMap::new() }
}

/// Puts pods on a node until enough of it is used.
fn fill(
    rng: &mut Rng,
    (name, it, offering): (&str, &InstanceType, &Offering),
    protected: bool,
    apps: &mut [App],
    running: &mut Vec<Value>,
) {
    let Some(zone) = ZONES.iter().copied().find(|zone| *zone == offering.zone) else { return };
    let part = |amount: i64, percent: usize| amount / 100 * i64::try_from(percent).unwrap_or(0);
    let used = rng.range(USED.0, USED.1);
    let room = it.allocatable();
    let (mut cpu, mut memory) = (part(room.get(CPU), used), part(room.get(MEMORY), used));
    let mut pods = 0;
    for _ in 0..DRAWS {
        let number = rng.range(0, apps.len() - 1);
        let Some(app) = apps.get_mut(number) else { return };
        let wanted = memory_of(app);
        if pods == PODS || app.cpu > cpu || wanted > memory || !app.admits(zone) {
            continue;
        }
        (cpu, memory) = (cpu - app.cpu, memory - wanted);
        running.push(pod(app, name, protected && pods == 0));
        *app.zones.entry(zone).or_default() += 1;
        pods += 1;
    }
}

fn memory_of(app: &App) -> i64 {
    (app.gib << 30) / 1000 * app.cpu
}

fn pod(app: &App, node: &str, protected: bool) -> Value {
    let amounts = (format_amount(CPU, app.cpu), format_amount(MEMORY, memory_of(app)));
    let mut spec = json!({"nodeName": node, "containers": [container("app", &amounts.0, &amounts.1)]});
    if app.spread {
        spec["topologySpreadConstraints"] = json!([{
            "maxSkew": 1, "topologyKey": label::ZONE, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": selects("app", &app.name),
        }]);
    }
    let mut metadata =
        json!({"name": format!("{}-{}", app.name, app.pods()), "namespace": "default", "labels": {"app": app.name}});
    if protected {
        metadata["annotations"] = json!({annotation::DO_NOT_DISRUPT: "true"});
    }
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec,
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// A quarter of the pods may be evicted at the same time, at least one.
fn disruption_budget(app: &App) -> Value {
    let (pods, allowed) = (app.pods(), (app.pods() / 4).max(1));
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": app.name, "namespace": "default"},
        "spec": {"maxUnavailable": allowed, "selector": selects("app", &app.name)},
        "status": {
            "expectedPods": pods, "currentHealthy": pods, "desiredHealthy": pods - allowed, "disruptionsAllowed": allowed,
            "observedGeneration": 0,
        },
    })
}

fn node_pool(name: &str, options: Underused) -> Value {
    let mut requirements = Types::BuiltIn.requirements();
    requirements.push(requirement(label::ZONE, "In", &ZONES));
    if options.spot > 0 {
        requirements.retain(|requirement| requirement["key"] != label::CAPACITY_TYPE);
        requirements.push(requirement(label::CAPACITY_TYPE, "In", &["on-demand", "spot"]));
    }
    let mut pool = crate::manifest::node_pool(name, &requirements);
    pool["spec"]["disruption"] = json!({
        "consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s",
        "budgets": [{"nodes": format!("{}%", options.budget)}],
    });
    pool
}
