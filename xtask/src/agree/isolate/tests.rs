use super::*;
use anyhow::Result;
use serde_json::{Value, json};

fn isolated(isolation: &Isolation, spec: &Value) -> Result<Value> {
    let pod: Pod = serde_json::from_value(json!({"metadata": {"namespace": "shop", "name": "web"}, "spec": spec}))?;
    Ok(serde_json::to_value(isolation.pod(&pod))?)
}

fn containers() -> Value {
    json!([{"name": "app", "image": "registry.example/app:1"}])
}

#[test]
fn a_pod_selects_the_nodes_of_its_case_and_knows_them_by_their_own_names() -> Result<()> {
    let isolation = Isolation::new(7, ["node-1".to_owned()]);
    let pod = isolated(
        &isolation,
        &json!({
            "containers": containers(),
            "nodeSelector": {"kubernetes.io/hostname": "node-1", "tier": "web"},
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-9"]}]},
            ]}}},
            "schedulerName": "other-scheduler",
            "priorityClassName": "class-1000",
        }),
    )?;
    assert_eq!(pod["metadata"]["namespace"], "c7-shop");
    assert_eq!(pod["spec"]["nodeSelector"], json!({"kubernetes.io/hostname": "c7-node-1", "tier": "web", CASE: "7"}));
    let required = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    // A name of no node of the case must not become the name of a node of another case.
    assert_eq!(required["nodeSelectorTerms"][0]["matchFields"][0]["values"], json!(["c7-node-9"]));
    assert_eq!(pod["spec"]["priorityClassName"], "c7-class-1000");
    assert_eq!(pod["spec"]["schedulerName"], Value::Null);
    assert_eq!(Isolation::seed_of("c7-shop/web"), Some(7));
    assert_eq!(Isolation::seed_of("kube-system/web"), None);
    Ok(())
}

#[test]
fn selectors_of_namespaces_stay_within_the_case() -> Result<()> {
    let isolation = Isolation::new(7, []);
    let term = |rest: Value| {
        let mut term = json!({"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {}});
        term.as_object_mut().into_iter().for_each(|it| it.extend(rest.as_object().cloned().unwrap_or_default()));
        term
    };
    let pod = isolated(
        &isolation,
        &json!({"containers": containers(), "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            term(json!({"namespaceSelector": {}})),
            term(json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}})),
            term(json!({"namespaces": ["shop"]})),
        ]}}}),
    )?;
    let terms = &pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(terms[0]["namespaceSelector"], json!({"matchLabels": {CASE: "7"}}));
    let by_name = json!({"matchLabels": {"kubernetes.io/metadata.name": "c7-shop", CASE: "7"}});
    assert_eq!(terms[1]["namespaceSelector"], by_name);
    assert_eq!(terms[2]["namespaces"], json!(["c7-shop"]));
    Ok(())
}

#[test]
fn a_spread_that_looks_at_all_nodes_sees_those_of_its_case_alone() -> Result<()> {
    let mut isolation = Isolation::new(7, ["node-1".to_owned()]);
    let spread = |policy: &str| json!({"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule", "nodeAffinityPolicy": policy});
    let spec = json!({"containers": containers(), "topologySpreadConstraints": [spread("Ignore"), spread("Honor")]});
    isolation.note_private_keys(&serde_json::from_value(spec.clone())?);
    let pod = isolated(&isolation, &spec)?;
    let keys = &pod["spec"]["topologySpreadConstraints"];
    assert_eq!(keys[0]["topologyKey"], "c7.plimsoll.test/topology.kubernetes.io.zone");
    // The node selector already excludes nodes of other cases.
    assert_eq!(keys[1]["topologyKey"], "topology.kubernetes.io/zone");
    let mut labels = BTreeMap::from([
        ("topology.kubernetes.io/zone".to_owned(), "a".to_owned()),
        ("kubernetes.io/hostname".to_owned(), "node-1".to_owned()),
    ]);
    isolation.node_labels(&mut labels);
    assert_eq!(labels.get("c7.plimsoll.test/topology.kubernetes.io.zone").map(String::as_str), Some("a"));
    assert_eq!(labels.get("kubernetes.io/hostname").map(String::as_str), Some("c7-node-1"));
    assert_eq!(labels.get(CASE).map(String::as_str), Some("7"));
    Ok(())
}

#[test]
fn claims_and_volumes_find_each_other_under_their_own_names() -> Result<()> {
    let mut isolation = Isolation::new(7, []);
    isolation.default_storage_class = Some("gp3".to_owned());
    let claim = |spec: Value| -> Result<Value> {
        let claim = serde_json::from_value(json!({"metadata": {"namespace": "shop", "name": "data"}, "spec": spec}))?;
        Ok(serde_json::to_value(isolation.claim(&claim))?["spec"].clone())
    };
    assert_eq!(
        claim(json!({"volumeName": "pv", "storageClassName": ""}))?,
        json!({"volumeName": "c7-pv", "storageClassName": ""})
    );
    // The cluster has no default class, because cases would mix.
    assert_eq!(claim(json!({}))?["storageClassName"], "c7-gp3");
    let volume = serde_json::from_value(json!({
        "metadata": {"name": "pv"},
        "spec": {"storageClassName": "ebs", "claimRef": {"namespace": "shop", "name": "data", "uid": "1"}},
    }))?;
    let volume = serde_json::to_value(isolation.volume(&volume))?;
    assert_eq!(volume["metadata"]["name"], "c7-pv");
    assert_eq!(volume["spec"]["claimRef"], json!({"namespace": "c7-shop", "name": "data"}));
    assert_eq!(volume["spec"]["storageClassName"], "c7-ebs");
    Ok(())
}
