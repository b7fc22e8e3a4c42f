//! NodePools.

use crate::Feature;
use crate::Rng;
use crate::feature::Offer;
use crate::generate::Draft;
use crate::manifest::{self, Labels, requirement};
use plimsoll_model::names::label;
use serde_json::{Map, Value, json};

/// Label that distinguishes the pools of a case.
pub(crate) const TEAM: &str = "example.com/team";
/// Label with two allowed values in a pool.
pub(crate) const TIER: &str = "example.com/tier";
/// `NoSchedule` taint of pools.
pub(crate) const DEDICATED: &str = "example.com/dedicated";
/// `PreferNoSchedule` taint of pools.
pub(crate) const LEGACY: &str = "example.com/legacy";

/// A pool under construction.
pub(crate) struct Pool {
    pub(crate) name: String,
    pub(crate) architectures: Vec<&'static str>,
    pub(crate) capacity_types: Vec<&'static str>,
    pub(crate) zones: Vec<String>,
    pub(crate) categories: Vec<String>,
    /// Additional requirements.
    pub(crate) requirements: Vec<Value>,
    pub(crate) labels: Labels,
    pub(crate) taints: Vec<Value>,
    limits: Map<String, Value>,
    weight: Option<usize>,
}

pub(crate) fn draw(draft: &mut Draft, offer: Offer) {
    let several = [Feature::Taints, Feature::Weights, Feature::PoolLabels, Feature::Limits, Feature::CustomKeys];
    let features = &draft.features;
    let several = several.iter().any(|it| features.contains(it));
    let count = if several { draft.rng.range(1, 3) } else { 1 };
    let (zones, categories) = (draft.zones(), draft.values(&format!("{}/instance-category", label::AWS_DOMAIN)));
    for number in 0..count {
        let pool = Pool::draw(draft, number, &zones, &categories, offer);
        draft.pools.push(pool);
    }
}

impl Pool {
    fn draw(draft: &mut Draft, number: usize, zones: &[String], categories: &[String], offer: Offer) -> Self {
        let name = if number == 0 { "default".to_owned() } else { format!("pool-{number}") };
        let architectures = match draft.has(Feature::Architectures) {
            true if draft.rng.chance(20) => vec!["arm64"],
            true => vec!["amd64", "arm64"],
            false => vec!["amd64"],
        };
        let capacity_types = if draft.has(Feature::CapacityTypes) || draft.has(Feature::CapacityTypeSpread) {
            let one_of = [vec!["spot"], vec!["on-demand"], vec!["spot", "on-demand"], vec!["spot", "on-demand"]];
            draft.rng.pick(&one_of).cloned().unwrap_or_default()
        } else {
            vec!["on-demand"]
        };
        let rng = &mut draft.rng;
        let categories = match offer {
            Offer::BuiltIn => ["c", "m", "r"].map(str::to_owned).to_vec(),
            Offer::Small if rng.chance(20) => rng.some(categories, 1),
            Offer::Small => Vec::new(),
        };
        let zones = if rng.chance(15) { rng.some(zones, 1) } else { Vec::new() };
        let mut pool = Self {
            name,
            architectures,
            capacity_types,
            zones,
            categories,
            requirements: Vec::new(),
            labels: Labels::new(),
            taints: Vec::new(),
            limits: Map::new(),
            weight: None,
        };
        pool.add_features(draft, number);
        pool
    }

    fn add_features(&mut self, draft: &mut Draft, number: usize) {
        let comparisons = draft.has(Feature::Comparisons);
        let (taints, soft) = (draft.has(Feature::Taints), draft.has(Feature::SoftTaints));
        let (limits, weights) = (draft.has(Feature::Limits), draft.has(Feature::Weights));
        let labels = draft.has(Feature::PoolLabels) || draft.has(Feature::CustomKeys);
        let rng = &mut draft.rng;
        if taints && (number > 0 || rng.chance(40)) {
            let effect = if rng.chance(80) { "NoSchedule" } else { "NoExecute" };
            let value = rng.text(&["a", "b"]);
            self.taints.push(json!({"key": DEDICATED, "value": value, "effect": effect}));
        }
        if soft && (number == 0 || rng.chance(40)) {
            self.taints.push(json!({"key": LEGACY, "value": "true", "effect": "PreferNoSchedule"}));
        }
        if limits && (number == 0 || rng.chance(60)) {
            let cpus = rng.range(2, 24);
            self.limits.insert("cpu".to_owned(), cpus.to_string().into());
            if rng.chance(40) {
                self.limits.insert("memory".to_owned(), format!("{}Gi", cpus * rng.range(2, 6)).into());
            }
        }
        if weights && rng.chance(70) {
            self.weight = Some(rng.range(1, 100));
        }
        if labels {
            self.labels.insert(TEAM.to_owned(), rng.text(&["red", "blue"]).to_owned());
            if rng.chance(50) {
                self.requirements.push(requirement(TIER, "In", &["gold", "silver"]));
            }
        }
        if comparisons && rng.chance(50) {
            self.requirements.push(comparison(rng));
        }
    }

    /// Label values of the pool's nodes, as far as the pool determines them.
    pub(crate) fn node_labels(&self) -> Labels {
        let mut labels = self.labels.clone();
        if self.requirements.iter().any(|it| it["key"] == TIER) {
            labels.insert(TIER.to_owned(), "gold".to_owned());
        }
        labels
    }

    pub(crate) fn manifest(&self) -> Value {
        let mut requirements = vec![requirement(label::OS, "In", &["linux"])];
        requirements.push(requirement(label::ARCH, "In", &self.architectures));
        requirements.push(requirement(label::CAPACITY_TYPE, "In", &self.capacity_types));
        let category = format!("{}/instance-category", label::AWS_DOMAIN);
        for (key, values) in [(label::ZONE, &self.zones), (category.as_str(), &self.categories)] {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            if !values.is_empty() {
                requirements.push(requirement(key, "In", &values));
            }
        }
        requirements.extend(self.requirements.iter().cloned());
        let mut pool = manifest::node_pool(&self.name, &requirements);
        let template = &mut pool["spec"]["template"];
        if !self.labels.is_empty() {
            template["metadata"] = json!({"labels": self.labels});
        }
        if !self.taints.is_empty() {
            template["spec"]["taints"] = Value::Array(self.taints.clone());
        }
        if !self.limits.is_empty() {
            pool["spec"]["limits"] = Value::Object(self.limits.clone());
        }
        if let Some(weight) = self.weight {
            pool["spec"]["weight"] = weight.into();
        }
        pool
    }
}

/// A bound on the size of nodes that some types of every catalog satisfy.
pub(crate) fn comparison(rng: &mut Rng) -> Value {
    let cpu = format!("{}/instance-cpu", label::AWS_DOMAIN);
    if rng.chance(50) { requirement(&cpu, "Gt", &["2"]) } else { requirement(&cpu, "Lt", &["9"]) }
}
