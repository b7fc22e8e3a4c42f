use super::*;
use crate::state::catalogs::fixtures::{entries, instance_type};
use plimsoll_model::catalog::InstanceType;
use serde_json::{Value, json};

fn claim(change: impl Fn(&mut NodeClaim)) -> Arc<NodeClaim> {
    let mut claim: NodeClaim = serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": "c", "labels": {label::INSTANCE_TYPE: "m5.large"}},
        "spec": {"requirements": [],
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}},
        "status": {"providerID": "aws:///a/i-1", "imageID": "ami-new", "conditions": [
            {"type": REGISTERED, "status": "True", "reason": "Registered", "message": "",
                "lastTransitionTime": "2026-11-26T00:00:00Z"}]},
    }))
    .unwrap();
    change(&mut claim);
    Arc::new(claim)
}

fn node(capacity: &Value) -> Arc<Node> {
    let node = json!({"metadata": {"name": "n"}, "status": {"capacity": capacity}});
    Arc::new(serde_json::from_value(node).unwrap())
}

fn observe(claim: Arc<NodeClaim>, nodes: Vec<Arc<Node>>) -> Vec<Observation> {
    let class: EC2NodeClass = serde_json::from_value(json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
        "spec": {"amiSelectorTerms": [{"alias": "al2023@latest"}], "subnetSelectorTerms": [{"id": "s"}],
            "securityGroupSelectorTerms": [{"id": "g"}]},
        "status": {"amis": [
            {"id": "ami-arm", "requirements": [{"key": label::ARCH, "operator": "In", "values": ["arm64"]}]},
            {"id": "ami-new", "requirements": [{"key": label::ARCH, "operator": "In", "values": ["amd64"]}]},
            {"id": "ami-old", "requirements": [{"key": label::ARCH, "operator": "In", "values": ["amd64"]}]}]},
    }))
    .unwrap();
    let labels = [(label::INSTANCE_MEMORY.to_owned(), "8192".to_owned())].into();
    let catalogs = entries(InstanceType { labels, ..instance_type("m5.large") });
    let is_its = |claim: &NodeClaim| claim.provider_id() == Some("aws:///a/i-1");
    let nodes_of = move |claim: &NodeClaim| if is_its(claim) { nodes.clone() } else { Vec::new() };
    observations(&[claim], nodes_of, &[Arc::new(class)], &catalogs)
}

fn bytes(capacity: &Value) -> Option<i64> {
    observe(claim(|_| {}), vec![node(capacity)]).first().map(|one| one.bytes)
}

#[test]
fn a_registered_node_of_the_current_image_tells_its_memory() {
    let key = MemoryKey { instance_type: "m5.large".to_owned(), image: "ami-new".to_owned() };
    let expected = Observation { node: "n".to_owned(), key, nominal_mib: 8192, bytes: 7_900_000 << 10 };
    assert_eq!(observe(claim(|_| {}), vec![node(&json!({"memory": "7900000Ki"}))]), [expected]);
}

#[test]
fn other_nodes_tell_nothing() {
    let memory = json!({"memory": "7900000Ki"});
    let image =
        |id: Option<&'static str>| claim(move |claim| claim.status.as_mut().unwrap().image_id = id.map(str::to_owned));
    let instance_type = |name: &'static str| {
        claim(move |claim| {
            claim.metadata.labels = Some([(label::INSTANCE_TYPE.to_owned(), name.to_owned())].into());
        })
    };
    for (what, changed) in [
        ("not registered", claim(|claim| claim.status.as_mut().unwrap().conditions.clear())),
        ("an older image", image(Some("ami-old"))),
        ("an image for another architecture", image(Some("ami-arm"))),
        ("no image", image(None)),
        ("another instance", claim(|claim| claim.status.as_mut().unwrap().provider_id = Some("i-2".to_owned()))),
        ("a type that is not in the catalog", instance_type("m5.xlarge")),
        ("no labels", claim(|claim| claim.metadata.labels = None)),
        ("an unknown node class", claim(|claim| claim.spec.node_class_ref.name = "other".to_owned())),
    ] {
        assert_eq!(observe(changed, vec![node(&memory)]), [], "{what}");
    }
    assert_eq!(bytes(&json!({"cpu": "2"})), None, "it has not reported its memory yet");
    let two = vec![node(&memory), node(&memory)];
    assert_eq!(observe(claim(|_| {}), two), [], "two Nodes of one instance");
}

#[test]
fn an_amount_that_cannot_be_read_is_implausible() {
    assert_eq!(bytes(&json!({"memory": "lots"})), Some(0));
    assert_eq!(bytes(&json!({"memory": "99999999999999999Ei"})), Some(i64::MAX), "amounts saturate");
}
