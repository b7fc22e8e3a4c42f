use super::knapsack::{Knapsack, Offered};
use super::*;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

fn rows(all: &[(i64, [i64; 2])], kinds: usize) -> IndexVec<Row, Row> {
    all.iter().map(|(price, room)| Row { price: *price, room: room.to_vec(), suits: Bits::all(kinds) }).collect()
}

fn kinds(all: &[([i64; 2], usize)]) -> PodKinds {
    all.iter()
        .map(|(requests, count)| PodKind { requests: requests.to_vec(), count: *count, most: usize::MAX >> 16 })
        .collect()
}

fn solved(all: &[([i64; 2], usize)], offers: &[(i64, [i64; 2])]) -> Fractional {
    solve(&kinds(all), &rows(offers, all.len()), &mut 1_000_000).unwrap()
}

#[test]
fn what_is_left_over_on_each_node_is_paid_for() {
    // Two pods of 3 fit on a node of 8. 100 pods need 50 nodes, although the total capacity of 38 nodes would be
    // enough.
    let found = solved(&[([3, 0], 100)], &[(800, [8, 10])]);
    assert!((found.bound - 40_000.0).abs() < 40.0, "{found:?}");
    assert_eq!(found.used.len(), 1);
    assert!((found.used[0].times - 50.0).abs() < 1e-6, "{found:?}");
}

#[test]
fn kinds_that_complete_each_other_share_nodes() {
    // (6, 1) and (1, 6) fit together on (7, 7), so 10 nodes are enough instead of 20.
    let found = solved(&[([6, 1], 10), ([1, 6], 10)], &[(100, [7, 7])]);
    assert!((found.bound - 1_000.0).abs() < 1.0, "{found:?}");
    assert_eq!(found.used[0].take, [(Id::new(0), 1), (Id::new(1), 1)]);
    // One pod of each kind fills a node.
    let worth: f64 = found.worths.iter().sum();
    assert!(worth <= 100.0 && worth > 99.9, "{found:?}");
}

#[test]
fn pods_that_need_nothing_of_what_is_used_up_fill_the_node() {
    // The first pod uses the whole second resource. The second one fills the rest of the first resource.
    let found = solved(&[([1, 1], 10), ([15, 0], 10)], &[(100, [16, 1])]);
    assert!((found.bound - 1_000.0).abs() < 1.0, "{found:?}");
    assert_eq!(found.used[0].take, [(Id::new(0), 1), (Id::new(1), 1)]);
    // Kinds that use nothing of a resource fit whatever their worth.
    let (large, small) = (vec![1, 9], vec![1, 0]);
    let offered: [Offered<'_, PodKind>; 2] = [(Id::new(0), 1e4, &large, 9), (Id::new(1), 1e-9, &small, 9)];
    let filling = Knapsack::new(&offered, &vec![4, 9], &[0.0, 1.0]).search(100, 0.0);
    assert_eq!(filling.take, [(Id::new(0), 1), (Id::new(1), 3)]);
    assert!(filling.bound >= filling.worth, "{} {}", filling.bound, filling.worth);
}

#[test]
fn nodes_without_anything_scarce_are_filled_too() {
    // Only the second resource is scarce. The other nodes have none of it, and hold one pod of each of the other kinds.
    let pods = kinds(&[([1, 1], 10), ([5, 0], 10), ([3, 0], 10)]);
    let mut nodes = rows(&[(100, [96, 1]), (40, [8, 0])], 3);
    nodes[Id::new(0)].suits = Bits::of(3, |kind| kind == Id::new(0));
    nodes[Id::new(1)].suits = Bits::of(3, |kind| kind != Id::new(0));
    let found = solve(&pods, &nodes, &mut 1_000_000).unwrap();
    assert!((found.bound - 1_400.0).abs() < 2.0, "{found:?}");
}

#[test]
fn a_node_holds_no_more_than_there_is() {
    // The node of 100 is cheaper per unit, but there are only 4 pods. Small nodes cost 30 for 2 pods, the large node
    // costs 90 for 4.
    let found = solved(&[([1, 0], 4)], &[(30, [2, 10]), (90, [100, 10])]);
    assert!((found.bound - 60.0).abs() < 0.1, "{found:?}");
}

#[test]
fn no_row_for_a_kind_means_no_solution() {
    assert!(solve(&kinds(&[([9, 0], 1)]), &rows(&[(1, [8, 8])], 1), &mut 1_000).is_none());
    assert!(solve(&kinds(&[]), &rows(&[], 0), &mut 1_000).is_none());
}

/// The integral bound, if a plan costs `enough`.
fn whole(all: &[([i64; 2], usize)], offers: &[(i64, [i64; 2])], enough: f64) -> f64 {
    let (kinds, rows) = (kinds(all), rows(offers, all.len()));
    let root = solve(&kinds, &rows, &mut 1_000_000).unwrap();
    tightened(&kinds, &rows, root, enough, &mut 1_000_000)
}

#[test]
fn half_a_node_is_a_whole_one() {
    // Two of three pods fit on a node. One and a half nodes cost 150, two cost 200.
    let (pods, node) = ([([5, 0], 3)], [(100, [10, 10])]);
    assert!((solved(&pods, &node).bound - 150.0).abs() < 0.2);
    assert!((whole(&pods, &node, 200.0) - 200.0).abs() < 1.0);
    // A more expensive plan does not raise the bound above the optimum.
    assert!((whole(&pods, &node, 1_000.0) - 200.0).abs() < 1.0);
}

#[test]
fn nodes_of_one_kind_are_whole_beside_those_of_others() {
    // One large and one small node, 100 and 60, are cheaper than two large ones.
    let (pods, nodes) = ([([5, 0], 3)], [(60, [5, 10]), (100, [10, 10])]);
    assert!((whole(&pods, &nodes, 200.0) - 160.0).abs() < 1.0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn it_is_above_the_optimum_in_fractions_and_never_above_that_in_whole_nodes(
        pods in proptest::collection::vec(([1..9_i64, 0..9_i64], 1..5_usize), 1..4),
        nodes in proptest::collection::vec((20..200_i64, [8..24_i64, 8..24_i64]), 1..5),
    ) {
        compare_with_whole_nodes(&pods, &nodes)?;
    }

    /// Of the second resource, nodes have so little that some pods use it up.
    #[test]
    fn the_same_holds_if_a_resource_is_used_up(
        pods in proptest::collection::vec(([1..9_i64, 0..2_i64], 1..5_usize), 1..4),
        nodes in proptest::collection::vec((20..200_i64, [8..24_i64, 1..3_i64]), 1..5),
    ) {
        compare_with_whole_nodes(&pods, &nodes)?;
    }
}

fn compare_with_whole_nodes(pods: &[([i64; 2], usize)], nodes: &[(i64, [i64; 2])]) -> Result<(), TestCaseError> {
    let (few, offers) = (kinds(pods), rows(nodes, pods.len()));
    let root = solve(&few, &offers, &mut 1_000_000).unwrap().bound;
    let (optimum, _) = small::optimum(&few, &offers, &mut 1_000_000).unwrap();
    let optimum = money(optimum);
    let found = whole(pods, nodes, optimum * 1.5);
    prop_assert!(found >= root && found <= optimum * (1.0 + 1e-9), "{root} {found} {optimum}");
    // The bound for an optimal plan is at least the fractional bound.
    prop_assert!(whole(pods, nodes, optimum) >= root);
    Ok(())
}
