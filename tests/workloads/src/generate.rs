//! Generates a case from a seed and a profile.

use crate::feature::Offer;
use crate::manifest;
use crate::pools::{self, Pool};
use crate::template::Workload;
use crate::{
    Case, CatalogChoice, Feature, Profile, Rng, catalogs, cluster, constraints, kubernetes, preferences, volumes,
};
use plimsoll_model::catalog::Catalog;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A case under construction.
pub(crate) struct Draft {
    pub(crate) rng: Rng,
    pub(crate) features: BTreeSet<Feature>,
    pub(crate) catalog: Catalog,
    pub(crate) pools: Vec<Pool>,
    pub(crate) workloads: Vec<Workload>,
    /// All objects except node class, pools and workloads.
    pub(crate) objects: Vec<Value>,
}

impl Draft {
    pub(crate) fn has(&self, feature: Feature) -> bool {
        self.features.contains(&feature)
    }

    /// Zones of the catalog, sorted.
    pub(crate) fn zones(&self) -> Vec<String> {
        let offerings = self.catalog.instance_types.iter().flat_map(|it| &it.offerings);
        offerings.map(|offering| offering.zone.clone()).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Values of a label over all types, sorted.
    pub(crate) fn values(&self, label: &str) -> Vec<String> {
        let types = self.catalog.instance_types.iter();
        types.filter_map(|it| it.labels.get(label).cloned()).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The `app` label of a random workload.
    pub(crate) fn any_app(&mut self) -> String {
        let apps: Vec<String> = self.workloads.iter().map(|it| it.name.clone()).collect();
        self.rng.pick(&apps).cloned().unwrap_or_default()
    }
}

/// The case of this seed. The same seed and profile give the same case.
#[must_use]
pub fn case(seed: u64, profile: &Profile) -> Case {
    let mut rng = Rng::new(seed);
    let features: BTreeSet<Feature> =
        profile.features.iter().copied().filter(|_| rng.chance(profile.percent)).collect();
    let choice = choose_catalog(&mut rng, profile, &features);
    let catalog = choice.catalog();
    let mut draft = Draft { rng, features, catalog, pools: Vec::new(), workloads: Vec::new(), objects: Vec::new() };
    pools::draw(&mut draft, profile.offer);
    draw_workloads(&mut draft, profile);
    for feature in draft.features.clone() {
        for index in chosen(&mut draft, feature) {
            constraints::apply(&mut draft, feature, index);
            preferences::apply(&mut draft, feature, index);
            kubernetes::apply(&mut draft, feature, index);
            volumes::apply(&mut draft, feature, index);
        }
    }
    draft.workloads.iter_mut().for_each(Workload::drop_double_spreads);
    cluster::draw(&mut draft);
    finish(seed, choice, draft)
}

fn choose_catalog(rng: &mut Rng, profile: &Profile, features: &BTreeSet<Feature>) -> CatalogChoice {
    let gpus = features.contains(&Feature::ExtendedResources);
    match profile.offer {
        Offer::BuiltIn => CatalogChoice::BuiltIn,
        Offer::Small if rng.chance(50) => CatalogChoice::Given(catalogs::families(rng, gpus)),
        Offer::Small => CatalogChoice::Given(catalogs::drawn(rng, gpus)),
    }
}

/// More pods mean more workloads, but also more pods per workload.
const PODS_PER_WORKLOAD: usize = 50;

fn draw_workloads(draft: &mut Draft, profile: &Profile) {
    let rng = &mut draft.rng;
    let few = profile.pods_max.min(20);
    let mut remaining = if rng.chance(50) { rng.range(1, few) } else { rng.range(1, profile.pods_max) };
    let count = rng.range(1, 5 + remaining / PODS_PER_WORKLOAD);
    for number in 0..count {
        if remaining == 0 {
            break;
        }
        let replicas = if number + 1 == count { remaining } else { rng.range(1, (remaining / 2).max(1)) };
        remaining -= replicas;
        draft.workloads.push(Workload::plain(rng, number, replicas));
    }
}

/// Workloads that get a feature: at least one and some of the others.
fn chosen(draft: &mut Draft, feature: Feature) -> Vec<usize> {
    let indices: Vec<usize> = (0..draft.workloads.len()).collect();
    match feature {
        // The effect of a pod's priority or state is visible only together with different pods.
        Feature::Priorities | Feature::NotOurs => draft.rng.pick(&indices).copied().into_iter().collect(),
        _ => draft.rng.some(&indices, 1),
    }
}

fn finish(seed: u64, catalog: CatalogChoice, mut draft: Draft) -> Case {
    let mut case = Case::empty(seed, catalog);
    case.objects.push(manifest::node_class());
    case.objects.extend(draft.pools.iter().map(Pool::manifest));
    let namespaces: BTreeSet<String> = draft.workloads.iter().map(|it| it.namespace.clone()).collect();
    for name in namespaces {
        let team = if name == "default" { "none" } else { "web" };
        case.objects.push(json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": {"team": team, "kubernetes.io/metadata.name": name}},
        }));
    }
    case.objects.append(&mut draft.objects);
    for workload in &draft.workloads {
        case.objects.extend(workload.manifests(&mut draft.rng));
    }
    if draft.has(Feature::Budgets)
        && let Some(workload) = draft.workloads.first()
    {
        let mut budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": workload.name, "namespace": workload.namespace},
            "spec": {"maxUnavailable": 1},
        });
        budget["spec"]["selector"] = manifest::selects("app", &workload.name);
        case.objects.push(budget);
    }
    case.features = draft.features;
    case
}
