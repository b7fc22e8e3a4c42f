//! Two published NodePools: launches use only what the pools allow.

use crate::{Run, deployment, plimsoll_with, repository, texts};
use plimsoll_catalog::{NodeClassSettings, builtin};
use serde_json::Value;
use std::collections::BTreeMap;

fn plan(seed: &str, region: &str, workloads: &str) -> Run {
    let manifests = repository("api/tests/fixtures").join(seed);
    plimsoll_with(&["plan", "-f", manifests.to_str().unwrap(), "-f", "-", "--region", region, "-o", "json"], workloads)
}

/// Workloads of different sizes, from small to above the limits.
fn workloads() -> Vec<String> {
    let mixed = deployment("small", 7, "250m", "512Mi")
        + &deployment("middle", 3, "1", "4Gi")
        + &deployment("memory", 2, "200m", "6Gi");
    vec![
        deployment("one", 1, "100m", "64Mi"),
        deployment("web", 5, "1", "1Gi"),
        deployment("web", 15, "1", "1Gi"),
        deployment("crowd", 200, "100m", "128Mi"),
        mixed,
        deployment("large", 3, "6", "8Gi"),
    ]
}

/// Labels and vCPUs of each instance type.
fn types(region: &str) -> BTreeMap<String, (BTreeMap<String, String>, i64)> {
    let catalog = builtin::catalog(region, &NodeClassSettings::default()).unwrap();
    let of = |it: plimsoll_model::catalog::InstanceType| (it.name, (it.labels, it.capacity.get("cpu") / 1000));
    catalog.instance_types.into_iter().map(of).collect()
}

/// Types and zones of each launch, with its number of pods.
fn launches(plan: &Value) -> Vec<(Vec<String>, Vec<String>, usize)> {
    let launches = plan["launches"].as_array().unwrap().iter();
    launches
        .map(|it| (texts(&it["instanceTypes"], ""), texts(&it["zones"], ""), it["pods"].as_array().unwrap().len()))
        .collect()
}

fn all_pods(plan: &Value) -> usize {
    launches(plan).iter().map(|launch| launch.2).sum::<usize>() + plan["unschedulable"].as_array().unwrap().len()
}

#[test]
fn the_workshop_pool_never_buys_old_generations_other_categories_or_more_than_ten_vcpus() {
    let types = types("us-east-1");
    for workload in workloads() {
        let plan = plan("seed-001.yaml", "us-east-1", &workload).json();
        let mut vcpus = 0;
        for (names, _, _) in launches(&plan) {
            for name in &names {
                let (labels, _) = &types[name];
                let generation: u32 = labels["karpenter.k8s.aws/instance-generation"].parse().unwrap();
                assert!(generation >= 6, "{name}");
                assert!(["c", "m", "r"].contains(&labels["karpenter.k8s.aws/instance-category"].as_str()), "{name}");
            }
            // For any of the types of a launch.
            vcpus += names.iter().map(|name| types[name].1).max().unwrap();
        }
        assert!(vcpus <= 10, "{vcpus} vCPUs for {workload}");
    }
    let plan = plan("seed-001.yaml", "us-east-1", &deployment("web", 15, "1", "1Gi")).json();
    assert_eq!(all_pods(&plan), 15);
    assert!(!plan["launches"].as_array().unwrap().is_empty());
    let left = plan["unschedulable"].as_array().unwrap();
    assert!(!left.is_empty() && left.iter().all(|it| it["reasons"][0]["code"] == "LimitReached"), "{left:?}");
}

#[test]
fn the_blog_pool_buys_its_six_types_in_its_two_zones_only() {
    let six = ["c6g.large", "c6g.medium", "c6g.xlarge", "m6g.large", "m6g.medium", "m6g.xlarge"];
    let types = types("ap-northeast-2");
    for workload in workloads() {
        let plan = plan("seed-000.yaml", "ap-northeast-2", &workload).json();
        let mut vcpus = 0;
        for (names, zones, _) in launches(&plan) {
            assert!(names.iter().all(|name| six.contains(&name.as_str())), "{names:?}");
            assert!(
                zones.iter().all(|zone| ["ap-northeast-2a", "ap-northeast-2b"].contains(&zone.as_str())),
                "{zones:?}"
            );
            vcpus += names.iter().map(|name| types[name].1).max().unwrap();
        }
        assert!(vcpus <= 10, "{vcpus} vCPUs for {workload}");
        for launch in plan["launches"].as_array().unwrap() {
            assert_eq!(launch["labels"]["Environment"], "production");
            let capacity_type = launch["offering"]["capacityType"].as_str().unwrap();
            assert_eq!(capacity_type, "spot", "where both are allowed and offered, spot is cheaper");
        }
    }
    let plan = plan("seed-000.yaml", "ap-northeast-2", &deployment("web", 4, "1", "1Gi")).json();
    assert_eq!((all_pods(&plan), plan["unschedulable"].as_array().unwrap().len()), (4, 0));
}
