//! Catalogs: random, some families of the built-in catalog, or all of it.

use crate::Rng;
use plimsoll_catalog::{NodeClassSettings, builtin};
use plimsoll_model::catalog::{CapacityType, Catalog, InstanceType, Offering};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::label;
use plimsoll_model::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Resources};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Region of the built-in catalog.
const REGION: &str = "us-east-1";
const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;

static BUILT_IN: LazyLock<Catalog> =
    LazyLock::new(|| builtin::catalog(REGION, &NodeClassSettings::default()).unwrap_or_default());

/// The built-in catalog of the only region that cases use.
pub(crate) fn built_in() -> &'static Catalog {
    &BUILT_IN
}

/// Families of the built-in catalog for a small catalog: about 30 types with different ratios, architectures and
/// generations.
const FAMILIES: [&[&str]; 3] =
    [&["t3", "c5", "m5", "c6g"], &["c6i", "m6i", "r6i", "m7g", "r7g"], &["t4g", "c7g", "m6a", "r5", "c7i"]];
/// Families with GPUs.
const GPU_FAMILIES: &[&str] = &["g4dn", "g5"];
/// Zones of small catalogs.
const ZONES: [&str; 3] = ["us-east-1a", "us-east-1b", "us-east-1c"];
/// Size of the largest type of a small catalog, in millicores: a larger type would fit all pods of a case.
const CPU_MAX: i64 = 32_000;

/// Some families of the built-in catalog in three zones.
pub(crate) fn families(rng: &mut Rng, gpus: bool) -> Catalog {
    let mut families: Vec<&str> = rng.pick(&FAMILIES).map(|it| it.to_vec()).unwrap_or_default();
    if gpus {
        families.extend_from_slice(GPU_FAMILIES);
    }
    let family = format!("{}/instance-family", label::AWS_DOMAIN);
    let wanted = |it: &&InstanceType| {
        it.labels.get(&family).is_some_and(|name| families.contains(&name.as_str())) && it.capacity.get(CPU) <= CPU_MAX
    };
    let mut types: Vec<InstanceType> = BUILT_IN.instance_types.iter().filter(wanted).cloned().collect();
    for it in &mut types {
        it.offerings.retain(|offering| ZONES.contains(&offering.zone.as_str()));
    }
    types.retain(|it| !it.offerings.is_empty());
    Catalog { region: REGION.to_owned(), instance_types: types }
}

/// A random catalog: 2 to 5 families of 3 to 5 sizes, with some offerings missing or unavailable.
pub(crate) fn drawn(rng: &mut Rng, gpus: bool) -> Catalog {
    let mut types = Vec::new();
    let kinds = [("c", 2_i64), ("m", 4), ("r", 8)];
    for number in 0..rng.range(2, 5) {
        let (category, ratio) = rng.pick(&kinds).copied().unwrap_or(("m", 4));
        let arm = number > 0 && rng.chance(30);
        let generation = rng.range(5, 8);
        let family = format!("{category}{generation}{}{number}", if arm { "g" } else { "i" });
        let per_cpu = rng.range(18_000, 30_000) + usize::try_from(ratio).unwrap_or(0) * rng.range(2_500, 4_000);
        let first = rng.range(1, 2);
        for power in first..first + rng.range(3, 5) {
            let cpus = 1_i64 << power;
            types.push(drawn_type(rng, &Drawn { family: &family, category, generation, arm, cpus, ratio, per_cpu }));
        }
    }
    if gpus {
        let base =
            Drawn { family: "g6i9", category: "g", generation: 6, arm: false, cpus: 0, ratio: 4, per_cpu: 130_000 };
        types.extend([4, 8, 16].map(|cpus| drawn_type(rng, &Drawn { cpus, ..base })));
    }
    types.sort_by(|a, b| a.name.cmp(&b.name));
    Catalog { region: REGION.to_owned(), instance_types: types }
}

#[derive(Clone, Copy)]
struct Drawn<'a> {
    family: &'a str,
    category: &'a str,
    generation: usize,
    arm: bool,
    cpus: i64,
    /// GiB per vCPU.
    ratio: i64,
    /// Micro-USD per hour and vCPU.
    per_cpu: usize,
}

fn drawn_type(rng: &mut Rng, it: &Drawn<'_>) -> InstanceType {
    let size = match it.cpus {
        2 => "large".to_owned(),
        4 => "xlarge".to_owned(),
        cpus => format!("{}xlarge", cpus / 4),
    };
    let name = format!("{}.{size}", it.family);
    let memory = it.cpus * it.ratio * GIB;
    let architecture = if it.arm { "arm64" } else { "amd64" };
    let mut capacity = Resources::from([
        (CPU, it.cpus * 1000),
        (MEMORY, memory / 100 * 93),
        (PODS, (it.cpus * 15 + 14).min(110)),
        (EPHEMERAL_STORAGE, 20 * GIB),
    ]);
    let overhead = Resources::from([(CPU, 60 + it.cpus * 5), (MEMORY, 400 * MIB), (EPHEMERAL_STORAGE, 3 * GIB)]);
    let aws = |name: &str| format!("{}/{name}", label::AWS_DOMAIN);
    let mut labels = BTreeMap::from([
        (aws("instance-category"), it.category.to_owned()),
        (aws("instance-family"), it.family.to_owned()),
        (aws("instance-generation"), it.generation.to_string()),
        (aws("instance-size"), size),
        (aws("instance-cpu"), it.cpus.to_string()),
        (aws("instance-memory"), (memory / MIB).to_string()),
        (aws("instance-hypervisor"), "nitro".to_owned()),
        (aws("instance-cpu-manufacturer"), if it.arm { "aws" } else { "intel" }.to_owned()),
    ]);
    if it.category == "g" {
        capacity.set("nvidia.com/gpu", it.cpus / 4);
        labels.insert(aws("instance-gpu-count"), (it.cpus / 4).to_string());
        labels.insert(aws("instance-gpu-name"), "t4".to_owned());
        labels.insert(aws("instance-gpu-manufacturer"), "nvidia".to_owned());
    }
    // Twice the size is not always twice the price.
    let price =
        i64::try_from(it.per_cpu).unwrap_or(0) * it.cpus / 100 * i64::try_from(rng.range(96, 104)).unwrap_or(100);
    InstanceType {
        name,
        architecture: architecture.to_owned(),
        operating_systems: vec!["linux".to_owned()],
        capacity,
        overhead,
        labels,
        offerings: offerings(rng, price),
    }
}

fn offerings(rng: &mut Rng, price: i64) -> Vec<Offering> {
    let mut offerings = Vec::new();
    for (number, zone) in ZONES.iter().enumerate() {
        if number > 0 && rng.chance(8) {
            continue;
        }
        for capacity_type in [CapacityType::Spot, CapacityType::OnDemand] {
            let percent = if capacity_type == CapacityType::Spot { rng.range(25, 60) } else { 100 };
            offerings.push(Offering {
                zone: (*zone).to_owned(),
                zone_id: format!("use1-az{}", number + 1),
                capacity_type,
                price: MicroUsdPerHour(price / 100 * i64::try_from(percent).unwrap_or(100)),
                available: number == 0 || !rng.chance(6),
                ..Offering::default()
            });
        }
    }
    offerings.sort();
    offerings
}

/// The types of Karpenter's own benchmark: the i-th has i vCPU, 2i GiB and 10i pods, with one price for all its
/// offerings.
pub(crate) fn karpenter_benchmark(count: usize) -> Catalog {
    // Karpenter's fake prices: 0.1 USD per vCPU and per 10^9 bytes.
    const PER_CPU: i64 = 100_000;
    let zone = |number: usize| format!("test-zone-{number}");
    let offered = [
        (zone(1), CapacityType::Spot),
        (zone(1), CapacityType::OnDemand),
        (zone(2), CapacityType::Spot),
        (zone(2), CapacityType::OnDemand),
        (zone(3), CapacityType::OnDemand),
    ];
    let of = |number: usize| {
        let cpus = i64::try_from(number).unwrap_or(i64::MAX);
        let memory = 2 * cpus * GIB;
        let price = MicroUsdPerHour(cpus * PER_CPU + memory / 10_000);
        InstanceType {
            name: format!("fake-it-{}", number - 1),
            architecture: "amd64".to_owned(),
            operating_systems: vec!["linux".to_owned()],
            capacity: Resources::from([(CPU, cpus * 1000), (MEMORY, memory), (PODS, cpus * 10)]),
            overhead: Resources::from([(CPU, 100), (MEMORY, 10 * MIB)]),
            labels: BTreeMap::new(),
            offerings: offered
                .iter()
                .map(|(zone, capacity_type)| Offering {
                    zone: zone.clone(),
                    capacity_type: *capacity_type,
                    price,
                    available: true,
                    ..Offering::default()
                })
                .collect(),
        }
    };
    let mut instance_types: Vec<InstanceType> = (1..=count).map(of).collect();
    instance_types.sort_by(|a, b| a.name.cmp(&b.name));
    Catalog { region: "test".to_owned(), instance_types }
}

/// The built-in catalog, reduced to `count` types over all families.
pub(crate) fn thinned(count: usize) -> Catalog {
    let all = &BUILT_IN.instance_types;
    let count = count.clamp(1, all.len().max(1));
    let kept = (0..count).filter_map(|index| all.get(index * all.len() / count)).cloned();
    Catalog { region: REGION.to_owned(), instance_types: kept.collect() }
}
