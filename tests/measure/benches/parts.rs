//! Benchmarks of parts of the planner: `cargo bench -p plimsoll-measure --features parts`.

#![allow(missing_docs, reason = "Criterion's macro makes a public function without any")]

use criterion::{Criterion, criterion_group, criterion_main};
use plimsoll_model::catalog::{CapacityType, Catalog, InstanceType, Offering};
use plimsoll_model::identity::CatalogId;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::PlanOptions;
use plimsoll_model::quantity::Quantity;
use plimsoll_model::requirements::{NodeSelectorRequirement, Operator, Requirements};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{NodePool, Pod, PodShape, Snapshot};
use plimsoll_proto::delta::{self, Mirror};
use std::collections::BTreeMap;
use std::hint::black_box;

const GIB: i64 = 1 << 30;
const ZONES: [&str; 3] = ["a", "b", "c"];

/// Types of 1 to 64 vCPU with 2 to 8 GiB each. Larger types are slightly cheaper per vCPU.
fn catalog(types: i64) -> Catalog {
    let kind = |number: i64| {
        let (cpus, gib) = (1 + number % 64, 2 << (number % 3));
        let price = MicroUsdPerHour(cpus * (30_000 + gib * 3_000 - cpus) + number % 7);
        let offering = |zone: &str| Offering {
            zone: zone.to_owned(),
            capacity_type: CapacityType::OnDemand,
            price,
            available: true,
            ..Offering::default()
        };
        InstanceType {
            name: format!("type-{number:04}"),
            architecture: "amd64".to_owned(),
            operating_systems: vec!["linux".to_owned()],
            capacity: resources(cpus * 1000, cpus * gib * GIB, 10 + cpus * 10),
            overhead: resources(80, GIB / 4, 0),
            labels: BTreeMap::new(),
            offerings: ZONES.map(offering).into(),
        }
    };
    Catalog { region: "test".to_owned(), instance_types: (0..types).map(kind).collect() }
}

fn resources(milli_cpu: i64, bytes: i64, pods: i64) -> Resources {
    [("cpu", milli_cpu), ("memory", bytes), ("pods", pods)].into()
}

/// A snapshot with `pods` pending pods of `shapes` sizes and one pool.
fn snapshot(catalog: &Catalog, pods: usize, shapes: usize) -> Snapshot {
    let shape = |number: i64| {
        let requests = resources(50 + number * 37 % 2_000, (64 + number * 101 % 4_000) << 20, 1);
        let mut shape = PodShape { namespace: "default".to_owned(), requests, ..PodShape::default() };
        shape.id = shape.content_id();
        shape
    };
    let shapes: Vec<PodShape> = (0..).take(shapes).map(shape).collect();
    let pod = |number: usize| Pod {
        uid: format!("default/pod-{number:06}").into(),
        namespace: "default".to_owned(),
        name: format!("pod-{number:06}"),
        shape: shapes[number % shapes.len()].id.clone(),
        eviction_cost_milli: 1000,
        ..Pod::default()
    };
    let pool = NodePool {
        name: "default".into(),
        requirements: vec![NodeSelectorRequirement::new("kubernetes.io/arch", Operator::In, ["amd64"])],
        node_class: "default".to_owned(),
        catalog: Some(catalog.id()),
        ..NodePool::default()
    };
    let pods = (0..pods).map(pod).collect();
    let mut snapshot = Snapshot { sequence: 1, shapes, pods, node_pools: vec![pool], ..Snapshot::default() };
    snapshot.sort();
    snapshot
}

fn values(c: &mut Criterion) {
    let texts = ["100m", "1500m", "2", "512Mi", "1.5Gi", "3e9", "128974848"];
    c.bench_function("7 quantities read", |b| {
        b.iter(|| texts.map(|text| Quantity::parse(black_box(text))));
    });
    let list = |values: &[&str]| NodeSelectorRequirement::new("zone", Operator::In, values.iter().copied());
    let (left, right) = ([list(&["a", "b", "c"])], [list(&["c", "d"])]);
    c.bench_function("2 requirements met", |b| {
        b.iter(|| {
            let mut both = Requirements::from_api(black_box(&left)).unwrap_or_default();
            both.add_all(&Requirements::from_api(black_box(&right)).unwrap_or_default());
            both
        });
    });
}

fn plans(c: &mut Criterion) {
    let options = PlanOptions::default();
    let cases = [
        ("1 pod on 1,000 types: offerings and bit sets", 1000, 1, 1),
        ("100 pods of 10 sizes: the columns' program and the search", 100, 100, 10),
        ("2,000 pods of 100 sizes: the same, larger", 100, 2_000, 100),
        ("2,000 pods, all different: packing at the prices of resources", 100, 2_000, 2_000),
    ];
    for (title, types, pods, shapes) in cases {
        let catalog = catalog(types);
        let snapshot = snapshot(&catalog, pods, shapes);
        let catalogs: BTreeMap<CatalogId, Catalog> = BTreeMap::from([(catalog.id(), catalog)]);
        c.bench_function(title, |b| b.iter(|| plimsoll_solver::solve(black_box(&snapshot), &catalogs, &options)));
        let plan = plimsoll_solver::solve(&snapshot, &catalogs, &options);
        c.bench_function(&format!("check of it: {title}"), |b| {
            b.iter(|| plimsoll_invariants::check(&snapshot, &catalogs, black_box(&plan)));
        });
    }
}

fn wire(c: &mut Criterion) {
    let snapshot = snapshot(&catalog(10), 10_000, 100);
    let chunks = delta::chunks(&snapshot, 1000);
    c.bench_function("a snapshot of 10,000 pods into messages", |b| {
        b.iter(|| delta::chunks(black_box(&snapshot), 1000));
    });
    c.bench_function("a mirror of 10,000 pods", |b| {
        b.iter(|| {
            let mut mirror = Mirror::default();
            chunks.iter().filter(|chunk| mirror.apply_chunk((*chunk).clone()).is_ok()).count()
        });
    });
    let mut next = snapshot.clone();
    next.sequence += 1;
    next.pods.truncate(9_999);
    c.bench_function("what changed in 10,000 pods", |b| b.iter(|| delta::diff(black_box(&snapshot), &next)));
}

criterion_group! {
    name = parts;
    config = Criterion::default().sample_size(20);
    targets = values, plans, wire
}
criterion_main!(parts);
