use super::*;
use crate::catalog::CapacityType;
use crate::costs::NodeCosts;
use crate::identity::NodePoolName;
use crate::requirements::Operator;

fn kind(name: &str, price: i64) -> InstanceType {
    let offering = |zone: &str| Offering {
        zone: zone.to_owned(),
        capacity_type: CapacityType::OnDemand,
        price: MicroUsdPerHour(price),
        available: true,
        ..Offering::default()
    };
    InstanceType {
        name: name.to_owned(),
        architecture: "amd64".to_owned(),
        operating_systems: vec!["linux".to_owned()],
        capacity: Resources::from([("cpu", 2000)]),
        overhead: Resources::new(),
        labels: BTreeMap::from([("family".to_owned(), name[..1].to_owned())]),
        offerings: vec![offering("a"), offering("b")],
    }
}

fn pool(name: &str, overlays: &[NodeOverlay]) -> NodePool {
    NodePool {
        name: NodePoolName::from(name),
        labels: BTreeMap::from([("team".to_owned(), name.to_owned())]),
        node_class: "default".to_owned(),
        catalog: Some(CatalogId::from("c")),
        overlays: overlays.to_vec(),
        ..NodePool::default()
    }
}

fn overlay(name: &str, weight: i32, key: &str, value: &str, price: Option<PriceChange>) -> NodeOverlay {
    let requirements = vec![NodeSelectorRequirement::new(key, Operator::In, [value])];
    NodeOverlay { name: name.to_owned(), weight, requirements, price, capacity: Resources::new() }
}

/// Prices of (pool, type) in both zones and the amount of the resource `slots`, for two pools with the same overlays.
fn result(overlays: &[NodeOverlay]) -> BTreeMap<(String, String), (i64, i64, i64)> {
    of_pools(vec![pool("p", overlays), pool("q", overlays)])
}

fn of_pools(node_pools: Vec<NodePool>) -> BTreeMap<(String, String), (i64, i64, i64)> {
    let catalog = Catalog { region: "r".to_owned(), instance_types: vec![kind("c1", 100), kind("m1", 200)] };
    let catalogs = BTreeMap::from([(CatalogId::from("c"), catalog)]);
    let snapshot = Snapshot { node_pools, ..Snapshot::default() };
    let (snapshot, catalogs) = applied(&snapshot, &catalogs).unwrap_or((snapshot, catalogs));
    let mut values = BTreeMap::new();
    for pool in &snapshot.node_pools {
        for kind in &catalogs[pool.catalog.as_ref().unwrap()].instance_types {
            let price = |number: usize| kind.offerings[number].price.0;
            values.insert((pool.name.0.clone(), kind.name.clone()), (price(0), price(1), kind.capacity.get("slots")));
        }
    }
    values
}

fn of(all: &BTreeMap<(String, String), (i64, i64, i64)>, pool: &str, kind: &str) -> (i64, i64, i64) {
    all[&(pool.to_owned(), kind.to_owned())]
}

#[test]
fn prices_are_replaced_adjusted_and_scaled_but_never_negative() {
    let table = [
        (PriceChange::To(MicroUsdPerHour(7)), 100, 7),
        (PriceChange::By(MicroUsdPerHour(-30)), 100, 70),
        (PriceChange::By(MicroUsdPerHour(-300)), 100, 0),
        (PriceChange::ByShare(-100_000), 100, 90),
        (PriceChange::ByShare(500_000), 3, 5),
        (PriceChange::ByShare(-1_000_000), 100, 0),
    ];
    for (change, before, after) in table {
        assert_eq!(change.of(MicroUsdPerHour(before)), MicroUsdPerHour(after), "{change:?}");
    }
}

#[test]
fn an_overlay_applies_to_the_selected_types_offerings_and_pools() {
    let half = Some(PriceChange::ByShare(-500_000));
    let by_type = result(&[overlay("o", 0, "family", "c", half)]);
    assert_eq!((of(&by_type, "p", "c1"), of(&by_type, "p", "m1")), ((50, 50, 0), (200, 200, 0)));
    let by_zone = result(&[overlay("o", 0, "failure-domain.beta.kubernetes.io/zone", "b", half)]);
    assert_eq!(of(&by_zone, "q", "m1"), (200, 100, 0));
    let by_pool = result(&[overlay("o", 0, label::NODE_POOL, "q", half)]);
    assert_eq!((of(&by_pool, "p", "c1"), of(&by_pool, "q", "c1")), ((100, 100, 0), (50, 50, 0)));
    let by_template = result(&[overlay("o", 0, "team", "p", half)]);
    assert_eq!((of(&by_template, "p", "c1"), of(&by_template, "q", "c1")), ((50, 50, 0), (100, 100, 0)));
    let by_nothing = result(&[overlay("o", 0, "unknown", "x", half)]);
    assert_eq!(of(&by_nothing, "p", "c1"), (100, 100, 0));
}

#[test]
fn the_highest_weight_wins_and_equal_weights_conflict() {
    let to = |price| Some(PriceChange::To(MicroUsdPerHour(price)));
    let heavy = result(&[overlay("a", 10, "family", "c", to(1)), overlay("b", 5, label::ARCH, "amd64", to(2))]);
    assert_eq!((of(&heavy, "p", "c1"), of(&heavy, "p", "m1")), ((1, 1, 0), (2, 2, 0)));
    // `b` wins. `a` also selects c1, so it is ignored for m1 as well.
    let clash = result(&[overlay("a", 5, label::ARCH, "amd64", to(1)), overlay("b", 5, "family", "c", to(2))]);
    assert_eq!((of(&clash, "p", "c1"), of(&clash, "p", "m1")), ((2, 2, 0), (200, 200, 0)));
    // The same beside a heavier overlay for c1.
    let (some, all) = (overlay("b", 5, "family", "c", to(2)), overlay("a", 5, label::ARCH, "amd64", to(1)));
    let hidden = result(&[overlay("heavy", 9, "family", "c", to(3)), some, all]);
    assert_eq!((of(&hidden, "p", "c1"), of(&hidden, "p", "m1")), ((3, 3, 0), (200, 200, 0)));
}

#[test]
fn an_ignored_overlay_is_named_with_the_one_that_sets_the_same_value() {
    let catalog = Catalog { region: "r".to_owned(), instance_types: vec![kind("c1", 100), kind("m1", 200)] };
    let catalogs = BTreeMap::from([(CatalogId::from("c"), Arc::new(catalog))]);
    let conflicts = |overlays: &[NodeOverlay]| {
        let snapshot = Snapshot { node_pools: vec![pool("p", overlays)], ..Snapshot::default() };
        let found = conflicts(&snapshot, &catalogs);
        found.into_iter().map(|(name, other)| format!("{name} {other}")).collect::<Vec<_>>()
    };
    let to = |price| Some(PriceChange::To(MicroUsdPerHour(price)));
    let slots = |name: &str, family: &str| NodeOverlay {
        capacity: Resources::from([("slots", 8)]),
        ..overlay(name, 5, "family", family, None)
    };
    let (all, some) = (overlay("a", 5, label::ARCH, "amd64", to(1)), overlay("b", 5, "family", "c", to(1)));
    assert_eq!(conflicts(&[all.clone(), some.clone()]), ["a b"], "equal values conflict, too");
    assert_eq!(conflicts(&[all.clone(), NodeOverlay { weight: 6, ..some }]), Vec::<String>::new());
    assert_eq!(conflicts(&[slots("s", "c"), slots("t", "m")]), Vec::<String>::new(), "other instance types");
    assert_eq!(conflicts(&[slots("s", "c"), slots("t", "c")]), ["s t"]);
    assert_eq!(conflicts(&[all, slots("s", "c")]), Vec::<String>::new(), "one sets the price, the other the capacity");
}

#[test]
fn capacity_is_added_to_a_type_that_has_a_matching_offering() {
    let mut slots = overlay("o", 0, label::ZONE, "a", None);
    slots.capacity = Resources::from([("slots", 8)]);
    slots.requirements.push(NodeSelectorRequirement::new("family", Operator::In, ["m"]));
    let all = result(&[slots]);
    assert_eq!((of(&all, "p", "c1"), of(&all, "p", "m1")), ((100, 100, 0), (200, 200, 8)));
}

#[test]
fn pool_costs_are_added_to_prices_of_overlays() {
    let half = overlay("o", 0, "family", "c", Some(PriceChange::ByShare(-500_000)));
    let dear = |overlays: &[NodeOverlay]| NodePool {
        costs: NodeCosts { per_node: MicroUsdPerHour(7), ..NodeCosts::default() },
        ..pool("q", overlays)
    };
    let alone = of_pools(vec![pool("p", &[]), dear(&[])]);
    assert_eq!((of(&alone, "p", "c1"), of(&alone, "q", "c1")), ((100, 100, 0), (107, 107, 0)));
    let half = [half];
    let both = of_pools(vec![pool("p", &half), dear(&half)]);
    assert_eq!((of(&both, "p", "c1"), of(&both, "q", "c1")), ((50, 50, 0), (57, 57, 0)));
    assert_eq!((of(&both, "p", "m1"), of(&both, "q", "m1")), ((200, 200, 0), (207, 207, 0)));
}

#[test]
fn the_list_price_is_that_of_the_catalog_whatever_overlays_and_costs_say() {
    let half = overlay("o", 0, "family", "c", Some(PriceChange::ByShare(-500_000)));
    let dear = NodePool {
        costs: NodeCosts { per_node: MicroUsdPerHour(7), ..NodeCosts::default() },
        ..pool("p", std::slice::from_ref(&half))
    };
    let catalog = Catalog { region: "r".to_owned(), instance_types: vec![kind("c1", 100), kind("m1", 200)] };
    let catalogs = BTreeMap::from([(CatalogId::from("c"), catalog)]);
    let of = |pool: NodePool| {
        let snapshot = Snapshot { node_pools: vec![pool], ..Snapshot::default() };
        let (snapshot, catalogs) = applied(&snapshot, &catalogs).unwrap();
        let catalog = catalogs[snapshot.node_pools[0].catalog.as_ref().unwrap()].clone();
        let offerings: Vec<Offering> = catalog.instance_types.iter().map(|kind| kind.offerings[0].clone()).collect();
        let prices: Vec<(i64, i64)> = offerings.iter().map(|one| (one.price.0, one.list_price().0)).collect();
        (catalog.id(), prices)
    };
    assert_eq!(of(pool("p", &[half])).1, [(50, 100), (200, 200)]);
    assert_eq!(of(dear).1, [(57, 100), (207, 200)]);
    let to = |price| overlay("o", 0, "family", "c", Some(PriceChange::To(MicroUsdPerHour(price))));
    let cheap = of(pool("p", &[to(1)])).0;
    let mut other = catalogs.clone();
    other.get_mut(&CatalogId::from("c")).unwrap().instance_types[0] = kind("c1", 101);
    let snapshot = Snapshot { node_pools: vec![pool("p", &[to(1)])], ..Snapshot::default() };
    let (snapshot, other) = applied(&snapshot, &other).unwrap();
    let id = other[snapshot.node_pools[0].catalog.as_ref().unwrap()].id();
    assert_ne!(id, cheap, "another list price makes another catalog, which caches must tell apart");
}
