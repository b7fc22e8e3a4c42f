#![allow(clippy::unwrap_used, reason = "test helpers fail by panicking")]

use crate::bench::{self, Types};
use crate::{Case, Feature, Profile, Rng, case};
use k8s_openapi::api::core::v1::PodSpec;
use plimsoll_api::Pod;
use plimsoll_snapshot::{Extra, Source, tolerate_extended_resources};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

fn bytes(case: &Case) -> Vec<u8> {
    let mut bytes = Vec::new();
    case.write_manifests(&mut bytes).unwrap();
    bytes.extend(case.catalog_json().into_bytes());
    bytes
}

/// The case with the tolerations that the API server adds to new pods, as the reader of files does.
fn admitted(case: &Case) -> Case {
    let mut case = case.clone();
    for object in &mut case.objects {
        let spec = match object["kind"].as_str() {
            Some("Pod") => object.pointer_mut("/spec"),
            Some("Deployment" | "StatefulSet") => object.pointer_mut("/spec/template/spec"),
            _ => None,
        };
        if let Some(spec) = spec {
            let mut typed: PodSpec = serde_json::from_value(spec.take()).unwrap();
            tolerate_extended_resources(&mut typed);
            *spec = serde_json::to_value(typed).unwrap();
        }
    }
    case
}

/// Parses the files of a case. Returns the number of pending pods, or the problems that the parser or the snapshot
/// report.
fn read(case: &Case, folder: &Path) -> Result<usize, String> {
    let case = admitted(case);
    case.write(folder).unwrap();
    let read = plimsoll_cli::manifests::read(&[folder.join("manifests")], &mut std::io::empty());
    let manifests = read.map_err(|errors| errors.to_string())?;
    if !manifests.ignored.is_empty() {
        return Err(format!("ignored: {:?}", manifests.ignored));
    }
    let extra = Extra { source: Source::Files, ..Extra::default() };
    let (snapshot, problems) = plimsoll_snapshot::build(&manifests.objects, &extra);
    if let Some(problem) = problems.first() {
        return Err(format!("{problem:?}"));
    }
    // The conversion without files has the same result.
    let (mine, _) = plimsoll_snapshot::build(&case.typed_objects().map_err(|error| error.to_string())?, &extra);
    assert_eq!(mine, snapshot, "{}", case.title());
    let text = std::fs::read_to_string(folder.join("catalog.json")).unwrap();
    let catalog = plimsoll_catalog::file::parse(&text).map_err(|error| error.to_string())?;
    assert_eq!(catalog, case.catalog.catalog());
    let waiting = |pod: &&Arc<Pod>| pod.node_name.is_none();
    Ok(manifests.objects.expanded().pods.iter().filter(waiting).count())
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    for profile in [Profile::plain(), Profile::karpenter(), Profile::kubernetes()] {
        let first = bytes(&case(7, &profile));
        assert_eq!(first, bytes(&case(7, &profile)));
        assert_ne!(first, bytes(&case(8, &profile)));
    }
}

#[test]
fn numbers_stay_in_range_and_reach_both_ends() {
    let mut rng = Rng::new(1);
    let drawn: BTreeSet<usize> = (0..200).map(|_| rng.range(3, 6)).collect();
    assert_eq!(drawn, BTreeSet::from([3, 4, 5, 6]));
    assert_eq!(rng.range(5, 5), 5);
    // The output of SplitMix64 for the seed 0, from its definition.
    assert_eq!(Rng::new(0).bits(), 0xE220_A839_7B1D_CDAF);
}

#[test]
fn every_feature_appears_and_most_cases_combine_some() {
    let profile = Profile::kubernetes();
    let cases: Vec<Case> = (0..200).map(|seed| case(seed, &profile)).collect();
    let seen: BTreeSet<Feature> = cases.iter().flat_map(|case| case.features.clone()).collect();
    let all: BTreeSet<Feature> = [Feature::KARPENTER, Feature::KUBERNETES].concat().into_iter().collect();
    assert_eq!(seen, all);
    let several = cases.iter().filter(|case| (2..=6).contains(&case.features.len())).count();
    assert!(several > 140, "{several} of 200 cases have two to six features");
}

#[test]
fn no_pod_has_two_spreads_that_an_api_server_takes_for_one() {
    let mut several = 0;
    for seed in 0..300 {
        for object in case(seed, &Profile::kubernetes()).objects {
            let spec = if object["kind"] == "Pod" { &object["spec"] } else { &object["spec"]["template"]["spec"] };
            let spreads = spec["topologySpreadConstraints"].as_array().cloned().unwrap_or_default();
            let ids: BTreeSet<String> =
                spreads.iter().map(|it| format!("{} {}", it["topologyKey"], it["whenUnsatisfiable"])).collect();
            assert_eq!(ids.len(), spreads.len(), "seed {seed}: {object}");
            several += usize::from(ids.len() > 1);
        }
    }
    assert!(several > 0, "nothing was looked at");
}

#[test]
fn karpenter_cases_have_nothing_that_its_scheduler_does_not_model() {
    let beyond: BTreeSet<Feature> = Feature::KUBERNETES.iter().copied().collect();
    for seed in 0..100 {
        let case = case(seed, &Profile::karpenter());
        assert!(case.features.is_disjoint(&beyond), "{}", case.title());
        let text = String::from_utf8(bytes(&case)).unwrap();
        for field in ["minDomains", "matchLabelKeys", "nodeTaintsPolicy", "\"namespaces\"", "\"Gt\"", "nvidia.com"] {
            assert!(!text.contains(field), "{field} in {}", case.title());
        }
    }
}

/// Shapes lack labels that no selector names. The selectors must match the same pods as with all labels.
#[test]
fn selectors_match_the_labels_of_shapes_as_those_of_pods() {
    let (mut matches, mut dropped) = (0, 0);
    for seed in 0..300 {
        let objects = case(seed, &Profile::kubernetes()).typed_objects().unwrap().expanded();
        let extra = Extra { source: Source::Files, ..Extra::default() };
        let (snapshot, _) = plimsoll_snapshot::build(&objects, &extra);
        let shapes: BTreeMap<_, _> = snapshot.shapes.iter().map(|shape| (&shape.id, shape)).collect();
        let spreads = snapshot.shapes.iter().flat_map(|shape| &shape.topology_spread).map(|spread| &spread.selector);
        let terms = snapshot.shapes.iter().flat_map(|shape| &shape.pod_affinity).map(|term| &term.selector);
        let selectors: Vec<_> = spreads.chain(terms).flatten().collect();
        let shape_of: BTreeMap<_, _> =
            snapshot.pods.iter().map(|pod| ((pod.namespace.as_str(), pod.name.as_str()), shapes[&pod.shape])).collect();
        for pod in &objects.pods {
            let name = (pod.metadata.namespace.as_deref().unwrap_or("default"), pod.metadata.name.as_deref().unwrap());
            // Pods with scheduling gates are ignored.
            let Some(shape) = shape_of.get(&name) else { continue };
            dropped += usize::from(shape.labels.len() < pod.labels.len());
            for selector in &selectors {
                let expected = selector.matches(&pod.labels);
                assert_eq!(selector.matches(&shape.labels), expected, "seed {seed}: {name:?}: {selector:?}");
                matches += usize::from(expected);
            }
        }
    }
    assert!(matches > 0 && dropped > 0, "{matches} matches, {dropped} pods with dropped labels");
}

/// A single feature changes the manifests.
#[test]
fn a_feature_changes_the_manifests() {
    for feature in [Feature::KARPENTER, Feature::KUBERNETES].concat() {
        let with = Profile { features: vec![feature], percent: 100, ..Profile::plain() };
        let changed = (0..20).filter(|seed| {
            // A feature that is not in the list draws no random number, so the same list at 0 % is the counterpart.
            bytes(&case(*seed, &with)) != bytes(&case(*seed, &Profile { percent: 0, ..with.clone() }))
        });
        assert!(changed.count() > 10, "{feature:?}");
    }
}

#[test]
fn the_reader_takes_every_case() {
    let folder = tempfile::tempdir().unwrap();
    for (profile, seeds) in [(Profile::plain(), 0..20), (Profile::karpenter(), 0..150), (Profile::kubernetes(), 0..300)]
    {
        for seed in seeds {
            let case = case(seed, &profile);
            let waiting = read(&case, folder.path()).unwrap_or_else(|error| panic!("{}: {error}", case.title()));
            assert!((1..=profile.pods_max).contains(&waiting), "{}: {waiting} pods", case.title());
        }
    }
}

#[test]
fn the_reader_takes_benchmarks_and_finds_all_pods() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        (bench::karpenter_mix(1, 103, Types::Synthetic(400)), 103),
        (bench::karpenter_mix(1, 50, Types::BuiltIn), 50),
        (bench::all_different(1, 40, Types::BuiltIn), 40),
        (bench::one_deployment(70, Types::Thinned(50)), 70),
        (bench::shapes(1, 1000, 30, Types::BuiltIn), 1000),
        (bench::sizes(1, 321, Types::BuiltIn), 321),
        (bench::many_pools(1, 300, 6, Types::BuiltIn), 300),
        (bench::with_nodes(1, 10, 200, 5), 5),
        (bench::with_controllers(1, 10, 200, 5), 5),
    ];
    for (number, (case, pods)) in cases.iter().enumerate() {
        assert_eq!(read(case, folder.path()), Ok(*pods), "case {number}");
    }
    let company = bench::company(1, 400);
    let waiting = read(&company, folder.path()).unwrap();
    assert!((200..=600).contains(&waiting), "{waiting}");
}

#[test]
fn karpenters_types_are_as_its_benchmark_has_them() {
    let case = bench::karpenter_mix(0, 5, Types::Synthetic(400));
    let catalog = case.catalog.catalog();
    assert_eq!(catalog.instance_types.len(), 400);
    let last = catalog.get("fake-it-399").unwrap();
    assert_eq!((last.capacity.get("cpu"), last.capacity.get("pods")), (400_000, 4_000));
    assert_eq!(last.capacity.get("memory"), 800 << 30);
    // 0.1 USD for each of 400 vCPU and of 858.99 GB.
    assert!((last.offerings[0].price.usd() - 125.899_346).abs() < 1e-5, "{}", last.offerings[0].price);
}
