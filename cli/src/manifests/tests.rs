use super::*;

fn input(text: &str) -> Result<Manifests, ManifestError> {
    read(&[PathBuf::from("-")], &mut text.as_bytes())
}

fn pod_names(manifests: &Manifests) -> Vec<String> {
    manifests.objects.pods.iter().filter_map(|pod| pod.metadata.name.clone()).collect()
}

const DEPLOYMENT: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: 2\n  \
    selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    \
    spec: {containers: [{name: app}]}\n";

#[test]
fn a_workload_becomes_its_pods() {
    let manifests = input(DEPLOYMENT).unwrap();
    assert_eq!(pod_names(&manifests), ["web-0", "web-1"]);
    let labels = manifests.objects.pods[0].metadata.labels.as_ref().unwrap();
    assert_eq!(labels.get("app").map(String::as_str), Some("web"));
    assert_eq!(manifests.objects.pods[0].metadata.namespace.as_deref(), Some("default"));
}

#[test]
fn pods_that_are_there_count_towards_replicas() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web-x\n  ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: u}]\nspec: {containers: [{name: app}]}\n";
    assert_eq!(pod_names(&input(&format!("{DEPLOYMENT}---\n{pod}")).unwrap()), ["web-x", "web-0"]);
}

#[test]
fn errors_name_document_object_and_field() {
    let pod =
        |spec: &str| format!("# first\n---\n---\napiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: {spec}\n");
    let table = [
        (pod("{containers: [{name: x, imagine: y}]}"), "Pod default/a: spec.containers.0.imagine: no such field"),
        (pod("{containers: 3}"), "Pod default/a: spec.containers: "),
    ];
    for (text, expected) in table {
        let error = input(&text).unwrap_err().to_string();
        assert!(error.contains(expected) && error.starts_with("-: document "), "{error}");
    }
}

#[test]
fn two_objects_of_one_name_are_an_error_that_names_both() {
    let error = input(&format!("{DEPLOYMENT}---\n{DEPLOYMENT}")).unwrap_err().to_string();
    assert_eq!(error, "-: document 2: Deployment default/web is also in -: document 1");
}

#[test]
fn lists_are_unpacked_and_other_kinds_counted() {
    let text = r#"{"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}]}"#;
    let manifests = input(text).unwrap();
    assert_eq!(manifests.objects.namespaces.len(), 1);
    assert_eq!(manifests.ignored, BTreeMap::from([("v1 Service".to_owned(), 1)]));
}
