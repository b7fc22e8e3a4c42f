use crate::{MAX_PODS, Manifests, Text, read};
use k8s_openapi::api::core::v1::PodSpec;
use plimsoll_snapshot::effective_requests;

fn input(content: &str) -> Result<Manifests, String> {
    let text = Text { name: "-".to_owned(), content: content.to_owned() };
    read(&[text], MAX_PODS).map_err(|errors| errors.to_string())
}

/// The spec of the first pod.
fn spec(content: &str) -> PodSpec {
    let objects = input(content).unwrap().objects.expanded();
    objects.pods[0].spec.as_deref().unwrap().clone()
}

fn cpu(content: &str) -> i64 {
    effective_requests(&spec(content)).unwrap().get("cpu")
}

fn limit_range(name: &str, item: &str) -> String {
    format!("---\napiVersion: v1\nkind: LimitRange\nmetadata: {{name: {name}}}\nspec: {{limits: [{{{item}}}]}}\n")
}

/// A Deployment whose pod has these containers and fields.
fn workload(spec: &str) -> String {
    format!(
        "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\n\
         spec:\n  selector: {{matchLabels: {{app: web}}}}\n  template:\n    metadata: {{labels: {{app: web}}}}\n\
         \x20   spec: {{{spec}}}\n"
    )
}

fn pod(metadata: &str, spec: &str) -> String {
    format!("---\napiVersion: v1\nkind: Pod\nmetadata: {{name: a{metadata}}}\nspec: {{{spec}}}\n")
}

fn runtime_class(fields: &str) -> String {
    format!("---\napiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {{name: gvisor}}\n{fields}\n")
}

const PLAIN: &str = "containers: [{name: c}]";
const GVISOR: &str = "handler: runsc\noverhead: {podFixed: {cpu: 2, memory: 1Gi}}\n\
                      scheduling: {nodeSelector: {gvisor: \"1\"}, tolerations: [{key: gvisor, operator: Exists}]}";

#[test]
fn a_container_gets_the_default_request_of_its_namespace() {
    let web = workload(PLAIN);
    for (item, expected) in [
        ("type: Container, defaultRequest: {cpu: 500m}, default: {cpu: 1}, max: {cpu: 2}, min: {cpu: 100m}", 500),
        ("type: Container, default: {cpu: 1}, max: {cpu: 2}, min: {cpu: 100m}", 1000),
        ("type: Container, max: {cpu: 2}, min: {cpu: 100m}", 2000),
        ("type: Container, min: {cpu: 100m}", 100),
        ("type: Pod, max: {cpu: 2}", 0),
    ] {
        assert_eq!(cpu(&(web.clone() + &limit_range("a", item))), expected, "{item}");
    }
    let half = limit_range("a", "type: Container, defaultRequest: {cpu: 500m}");
    let one = limit_range("b", "type: Container, defaultRequest: {cpu: 1}");
    assert_eq!([cpu(&format!("{web}{one}{half}")), cpu(&format!("{half}{one}{web}"))], [500, 500], "the first by name");
    let elsewhere = half.replace("name: a}", "name: a, namespace: shop}");
    assert_eq!(cpu(&format!("{web}{elsewhere}")), 0);
}

#[test]
fn a_default_request_replaces_nothing() {
    let range = limit_range("a", "type: Container, defaultRequest: {cpu: 3}");
    for (containers, expected) in [
        ("containers: [{name: c, resources: {requests: {cpu: 1}}}]", 1000),
        ("containers: [{name: c, resources: {limits: {cpu: 1}}}]", 1000),
        ("containers: [{name: c, resources: {requests: {memory: 1Gi}}}]", 3000),
        ("containers: [{name: c, resources: {requests: {cpu: 1}}}], initContainers: [{name: i}]", 3000),
        ("containers: [{name: c}], resources: {limits: {cpu: 1}}", 1000),
    ] {
        assert_eq!(cpu(&(workload(containers) + &range)), expected, "{containers}");
    }
}

#[test]
fn a_runtime_class_adds_its_overhead_and_its_place() {
    let class = runtime_class(GVISOR);
    let own = "runtimeClassName: gvisor, nodeSelector: {disk: ssd}, tolerations: [{key: a, operator: Exists}]";
    let spec = spec(&format!("{}{class}", workload(&format!("{PLAIN}, {own}"))));
    assert_eq!(effective_requests(&spec).unwrap().get("cpu"), 2000);
    let selector: Vec<(String, String)> = spec.node_selector.unwrap().into_iter().collect();
    assert_eq!(selector, [("disk".to_owned(), "ssd".to_owned()), ("gvisor".to_owned(), "1".to_owned())]);
    let keys: Vec<Option<String>> = spec.tolerations.unwrap().into_iter().map(|it| it.key).collect();
    assert_eq!(keys, [Some("a".to_owned()), Some("gvisor".to_owned())]);
    // What agrees with the class is not repeated.
    let own = "runtimeClassName: gvisor, nodeSelector: {gvisor: \"1\"}, overhead: {cpu: 2000m, memory: 1024Mi}, \
               tolerations: [{key: gvisor, operator: Exists}]";
    let spec = self::spec(&format!("{}{class}", workload(&format!("{PLAIN}, {own}"))));
    assert_eq!((spec.tolerations.unwrap().len(), spec.node_selector.unwrap().len()), (1, 1));
    // Another class, or none of the input.
    assert_eq!(cpu(&format!("{}{class}", workload(&format!("{PLAIN}, runtimeClassName: kata")))), 0);
}

#[test]
fn a_pod_tolerates_the_taints_of_its_extended_resources() {
    let device = "containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]";
    let tolerated = |text: &str| spec(text).tolerations.into_iter().flatten().map(|it| it.key).collect::<Vec<_>>();
    let gpu = || vec![Some("nvidia.com/gpu".to_owned())];
    assert_eq!(tolerated(&workload(device)), gpu());
    assert_eq!(tolerated(&pod("", device)), gpu());
    assert!(tolerated(&pod(", uid: u", device)).is_empty());
    let daemon_set = workload(device).replace("Deployment", "DaemonSet");
    let objects = input(&daemon_set).unwrap().objects;
    assert_eq!(objects.daemon_sets[0].spec.as_ref().unwrap().template.spec.as_ref().unwrap().tolerations, None);
}

#[test]
fn pods_of_a_cluster_have_been_admitted() {
    let admission = limit_range("a", "type: Container, defaultRequest: {cpu: 1}") + &runtime_class(GVISOR);
    let gvisor = format!("{PLAIN}, runtimeClassName: gvisor");
    assert_eq!(cpu(&format!("{}{admission}", pod("", &gvisor))), 3000);
    assert_eq!(cpu(&format!("{}{admission}", pod(", uid: u", &gvisor))), 0);
    assert_eq!(cpu(&format!("{}{admission}", pod("", &format!("{gvisor}, nodeName: node-1")))), 0);
    let daemon_set = workload(&gvisor).replace("Deployment", "DaemonSet");
    let objects = input(&format!("{daemon_set}{admission}")).unwrap().objects;
    let spec = objects.daemon_sets[0].spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    assert_eq!(effective_requests(spec).unwrap().get("cpu"), 3000);
}

#[test]
fn what_admission_would_refuse_is_an_error_of_the_object() {
    let class = runtime_class(GVISOR);
    let web = |own: &str| format!("{class}{}", workload(&format!("{PLAIN}, runtimeClassName: gvisor, {own}")));
    let range = |item: &str| limit_range("a", &format!("type: Container, {item}"));
    for (text, expected) in [
        (
            web("nodeSelector: {gvisor: \"0\"}"),
            "-: document 2: Deployment default/web: spec.template.spec.nodeSelector: gvisor: 0 contradicts \
             RuntimeClass gvisor, which has 1",
        ),
        (
            web("overhead: {cpu: 1}"),
            "-: document 2: Deployment default/web: spec.template.spec.overhead: differs from overhead.podFixed of \
             RuntimeClass gvisor",
        ),
        (
            runtime_class("handler: h")
                + &workload(&format!("{PLAIN}, runtimeClassName: gvisor, overhead: {{cpu: 1}}")),
            "Deployment default/web: spec.template.spec.overhead: RuntimeClass gvisor has none",
        ),
        (
            range("defaultRequest: {cpu: 1GB}"),
            "-: document 1: LimitRange default/a: spec.limits[0].defaultRequest.cpu: \"1GB\" is not a quantity",
        ),
        (range("max: {cpu: \"-1\"}"), "LimitRange default/a: spec.limits[0].max.cpu: must not be negative"),
        (range("maximum: {cpu: 1}"), "LimitRange default/a: spec.limits[0].maximum: no such field"),
        (runtime_class("overhead: {podFixed: {cpu: 1}}"), "-: document 1: RuntimeClass gvisor: handler: is required"),
        (
            runtime_class("handler: h\noverhead: {podFixed: {disk: 1}}"),
            "RuntimeClass gvisor: overhead.podFixed.disk: is no resource of containers",
        ),
        (
            runtime_class("handler: h\nscheduling: {tolerations: [{key: a, effect: Never}]}"),
            "RuntimeClass gvisor: scheduling.tolerations[0].effect: \"Never\" is not one of ",
        ),
        (
            runtime_class("handler: h\nscheduling: {nodeSelector: {a b: c}}"),
            "RuntimeClass gvisor: scheduling.nodeSelector: \"a b\": \"c\" is not a label",
        ),
    ] {
        let error = input(&text).err().unwrap_or_default();
        assert!(error.contains(expected) && error.lines().count() == 1, "{text}{error}\n{expected}");
    }
}

#[test]
fn classes_that_new_pods_name_and_that_are_missing_are_known() {
    let named = |name: &str| format!("{PLAIN}, priorityClassName: {name}, runtimeClassName: gvisor");
    let missing = |content: &str| input(content).unwrap().missing_classes.into_iter().collect::<Vec<_>>();
    let both = [("PriorityClass", "high".to_owned()), ("RuntimeClass", "gvisor".to_owned())];
    assert_eq!(missing(&workload(&named("high"))), both);
    assert_eq!(missing(&pod("", &named("high"))), both);
    assert!(missing(&pod(", uid: u", &named("high"))).is_empty(), "it was admitted");
    let high = "---\napiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 1\n";
    assert!(missing(&format!("{}{high}{}", workload(&named("high")), runtime_class(GVISOR))).is_empty());
    assert!(missing(&(workload(&named("system-node-critical")) + &runtime_class(GVISOR))).is_empty());
}
