#![allow(clippy::unwrap_used, reason = "test helpers fail by panicking")]

use super::*;
use plimsoll_workloads::{Profile, case};
use serde_json::json;

fn side(pods: &[&str], hourly: f64, violations: &[&str]) -> Side {
    Side {
        placed: pods.iter().map(|pod| (*pod).to_owned()).collect(),
        hourly,
        violations: violations.iter().map(|it| (*it).to_owned()).collect(),
        ..Side::default()
    }
}

#[test]
fn pods_count_before_money() {
    let theirs = side(&["a", "b"], 1.0, &[]);
    for (ours, verdict) in [
        (side(&["a", "b"], 1.0, &[]), Verdict::Same),
        (side(&["a", "b"], 1.000_001, &[]), Verdict::Same),
        (side(&["a", "b"], 0.9, &[]), Verdict::Cheaper),
        (side(&["a", "c"], 0.9, &[]), Verdict::OtherPods),
        (side(&["a", "b"], 1.1, &[]), Verdict::Dearer),
        (side(&["a"], 0.1, &[]), Verdict::FewerPods),
        (side(&["a", "b", "c"], 9.0, &[]), Verdict::MorePods),
        (side(&["a", "b", "c"], 0.1, &["wrong"]), Verdict::Invalid),
    ] {
        assert_eq!(compare(&ours, &theirs), verdict, "{ours:?}");
    }
}

#[test]
fn an_exception_is_explained_only_if_ours_is_as_good_as_each_valid_answer() {
    let broken = side(&["a", "b", "c"], 1.0, &["b cannot run there"]);
    let ours = side(&["a", "b"], 1.0, &[]);
    let worse = side(&["a"], 1.0, &[]);
    let better = side(&["a", "b"], 0.5, &[]);
    assert_eq!(reasons(&ours, &[broken.clone(), worse.clone()], &broken).len(), 1);
    assert!(reasons(&ours, &[broken.clone(), better.clone()], &broken).is_empty());
    assert!(reasons(&ours, &[better.clone(), worse], &better).is_empty());
}

#[test]
fn the_peers_plan_is_checked_like_ours() {
    let case = case(3, &Profile::plain());
    let question = case.question().unwrap();
    let pod = question.snapshot.pods.first().unwrap().full_name();
    let catalog = question.catalogs.values().next().unwrap();
    let smallest = catalog.instance_types.iter().min_by_key(|it| it.capacity.get("cpu")).unwrap();
    let answer = |pods: usize, price: f64| -> Answer {
        let offering = smallest.offerings.first().unwrap();
        serde_json::from_value(json!({"karpenter": "v1", "results": [{
            "seed": 0,
            "launches": [{
                "nodePool": "default", "zones": [], "capacityTypes": [], "requirements": [],
                "offering": {
                    "instanceType": smallest.name, "zone": offering.zone, "capacityType": "on-demand", "price": price,
                },
                "pods": vec![pod.clone(); pods],
            }],
            "existing": [], "unschedulable": [], "ignored": [], "cost": {"hourly": price}, "timedOut": false,
        }]}))
        .unwrap()
    };
    let wrong_price = judge(&case, &question, &answer(1, 123.0), &[]);
    assert!(wrong_price.theirs.violations.iter().any(|it| it.contains("costs")), "{wrong_price:?}");
    let twice = judge(&case, &question, &answer(2, 123.0), &[]);
    assert!(twice.theirs.violations.iter().any(|it| it.contains("twice")), "{twice:?}");
}

#[test]
fn no_answer_is_an_exception_with_its_error_as_the_reason() {
    let case = case(3, &Profile::plain());
    let question = case.question().unwrap();
    let failed: Answer = serde_json::from_value(json!({"karpenter": "v1", "error": "panic: x\nstack"})).unwrap();
    let judgement = judge(&case, &question, &failed, &[]);
    assert_eq!((judgement.verdict, judgement.is_unexplained()), (Verdict::NoAnswer, false));
    assert!(judgement.reasons[0].ends_with("panic: x"), "{:?}", judgement.reasons);
}

#[test]
fn a_pod_with_two_affinity_terms_needs_one_pod_that_matches_both() {
    use plimsoll_workloads::CatalogChoice;
    let term = |key: &str, label: &str, value: &str| json!({"topologyKey": key, "labelSelector": {"matchLabels": {label: value}}});
    let pod = |name: &str, labels: serde_json::Value, terms: Vec<serde_json::Value>| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "labels": labels},
            "spec": {
                "containers": [{"name": "app", "image": "registry.example/app:1"}],
                "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
            },
        })
    };
    let base = case(3, &Profile::plain());
    let judged = |both: bool| {
        let labels = if both { json!({"tier": "front", "app": "b"}) } else { json!({"tier": "front"}) };
        let waiting = vec![term(label::ZONE, "tier", "front"), term(label::HOSTNAME, "app", "b")];
        let mut case = Case { catalog: CatalogChoice::BuiltIn, ..base.clone() };
        case.objects.retain(|it| it["kind"] == "NodePool" || it["kind"] == "EC2NodeClass");
        case.objects.push(pod("a", labels, Vec::new()));
        case.objects.push(pod("b", json!({"app": "b"}), waiting));
        let question = case.question().unwrap();
        let answer: Answer = serde_json::from_value(json!({"karpenter": "v1", "results": [{
            "launches": [{
                "nodePool": "default", "pods": ["default/a", "default/b"], "offering": {
                    "instanceType": "m5.large", "zone": "us-east-1a", "capacityType": "on-demand", "price": 0.096,
                },
            }],
            "existing": [], "unschedulable": [], "timedOut": false,
        }]}))
        .unwrap();
        let mut violations =
            super::side(&question, &as_plan(&question.snapshot, &answer.results.unwrap()[0])).violations;
        violations.retain(|it| it.contains("podAffinity"));
        violations
    };
    assert_eq!(judged(true), Vec::<String>::new());
    let broken = judged(false);
    assert!(!broken.is_empty() && broken.iter().all(|it| it.contains("pod default/b")), "{broken:?}");
}
