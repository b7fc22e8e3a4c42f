mod faults;
mod workloads;

use super::*;
use proptest::prelude::*;
use std::sync::Arc;

fn text(name: &str, content: &str) -> Text {
    Text { name: name.to_owned(), content: content.to_owned() }
}

fn input(content: &str) -> Result<Manifests, ManifestErrors> {
    read(&[text("-", content)], MAX_PODS)
}

fn error(text: &str) -> String {
    input(text).unwrap_err().to_string()
}

/// Pods of the input and of its workloads.
fn pods(manifests: &Manifests) -> Vec<Pod> {
    manifests.objects.clone().expanded().pods.into_iter().map(Arc::unwrap_or_clone).collect()
}

fn pod_names(manifests: &Manifests) -> Vec<String> {
    pods(manifests).into_iter().filter_map(|pod| pod.metadata.name).collect()
}

fn pod(name: &str, rest: &str, spec: &str) -> String {
    format!("---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}{rest}}}\nspec: {spec}\n")
}

fn owned(name: &str, owner: &str, more: &str) -> String {
    pod(name, &format!(", ownerReferences: [{{{owner}, uid: u}}]{more}"), "{containers: [{name: app}]}")
}

const DEPLOYMENT: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: 2\n  \
    selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    \
    spec: {containers: [{name: app}]}\n";
const OF_DEPLOYMENT: &str = "apiVersion: apps/v1, kind: Deployment, name: web";
const OF_REPLICA_SET: &str = "apiVersion: apps/v1, kind: ReplicaSet, name: web-5d9c";

#[test]
fn a_workload_becomes_its_pods() {
    let manifests = input(DEPLOYMENT).unwrap();
    assert_eq!(pod_names(&manifests), ["web-0", "web-1"]);
    let first = &pods(&manifests)[0];
    assert_eq!(first.labels.get("app").map(String::as_str), Some("web"));
    assert_eq!(first.metadata.namespace.as_deref(), Some("default"));
}

#[test]
fn each_kind_of_workload_makes_as_many_pods_as_its_controller_would() {
    let of = |kind: &str, spec: &str| {
        let version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
        let rest = if kind == "Job" {
            "template: {spec: {restartPolicy: Never, containers: [{name: app}]}}"
        } else {
            "selector: {matchLabels: {app: w}}, \
             template: {metadata: {labels: {app: w}}, spec: {containers: [{name: app}]}}"
        };
        let text = format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: w}}\nspec: {{{spec}{rest}}}\n");
        input(&text).map(|manifests| pod_names(&manifests).len())
    };
    let table = [
        ("Deployment", "", 1),
        ("Deployment", "replicas: 0, ", 0),
        ("ReplicaSet", "replicas: 3, ", 3),
        ("StatefulSet", "replicas: 2, ", 2),
        ("DaemonSet", "", 0),
        ("Job", "", 1),
        ("Job", "parallelism: 3, ", 3),
        ("Job", "completions: 3, ", 1),
        ("Job", "parallelism: 4, completions: 2, ", 2),
        ("Job", "parallelism: 2, completions: 4, ", 2),
        ("Job", "suspend: true, ", 0),
    ];
    for (kind, spec, expected) in table {
        assert_eq!(of(kind, spec), Ok(expected), "{kind} {spec}");
    }
    assert!(of("Job", "parallelism: -1, ").unwrap_err().to_string().contains("Job default/w: spec.parallelism: "));
    assert!(
        of("Deployment", "replicas: -1, ").unwrap_err().to_string().contains("spec.replicas: must not be negative")
    );
}

#[test]
fn pods_that_are_there_count_towards_replicas() {
    let replica_set = "---\napiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: web-5d9c, ownerReferences: \
        [{apiVersion: apps/v1, kind: Deployment, name: web, uid: u}]}\nspec: {replicas: 2, \
        selector: {matchLabels: {app: web}}, \
        template: {metadata: {labels: {app: web}}, spec: {containers: [{name: app}]}}}\n";
    let cases = [
        // Its own pod, whatever its name.
        (owned("web-x", OF_DEPLOYMENT, ""), vec!["web-x", "web-0"]),
        // A pod with the first name that the workload would give.
        (owned("web-0", OF_DEPLOYMENT, ""), vec!["web-0", "web-1"]),
        // By way of a ReplicaSet, which is owned itself and makes none.
        (format!("{replica_set}{}", owned("web-x", OF_REPLICA_SET, "")), vec!["web-x", "web-0"]),
        // The ReplicaSet is not in the input, but its name tells.
        (owned("web-x", OF_REPLICA_SET, ", labels: {pod-template-hash: 5d9c}"), vec!["web-x", "web-0"]),
        // An owner of that kind and name in another API group is another thing.
        (
            owned("web-x", "apiVersion: example.com/v1, kind: Deployment, name: web", ""),
            vec!["web-x", "web-0", "web-1"],
        ),
    ];
    for (more, expected) in cases {
        assert_eq!(pod_names(&input(&format!("{DEPLOYMENT}{more}")).unwrap()), expected, "{more}");
    }
    let failed = owned("web-x", OF_DEPLOYMENT, "") + "status: {phase: Failed}\n";
    assert_eq!(pod_names(&input(&format!("{DEPLOYMENT}{failed}")).unwrap()), ["web-x", "web-0", "web-1"]);
}

#[test]
fn a_workload_owned_by_something_of_another_group_is_expanded() {
    let job = |version: &str| {
        format!(
            "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {{name: r, ownerReferences: [{{apiVersion: {version}, kind: \
             Deployment, name: web, uid: u}}]}}\nspec: {{selector: {{matchLabels: {{app: r}}}}, \
             template: {{metadata: {{labels: {{app: r}}}}, spec: {{containers: [{{name: app}}]}}}}}}\n---\n{DEPLOYMENT}"
        )
    };
    assert_eq!(pod_names(&input(&job("apps/v1")).unwrap()), ["web-0", "web-1"]);
    assert_eq!(pod_names(&input(&job("example.com/v1")).unwrap()), ["r-0", "web-0", "web-1"]);
}

#[test]
fn a_job_of_an_ignored_cron_job_is_not_expanded() {
    let job = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j, ownerReferences: [{apiVersion: batch/v1, kind: CronJob, \
        name: nightly, uid: u}]}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: app}]}}}\n---\n";
    let cron_job = |metadata: &str| format!("{job}apiVersion: batch/v1\nkind: CronJob\nmetadata: {{{metadata}}}\n");
    for (metadata, expected) in [
        ("name: nightly", vec![]),
        ("name: nightly, namespace: default", vec![]),
        ("name: nightly, namespace: other", vec!["j-0"]),
        ("name: hourly", vec!["j-0"]),
    ] {
        assert_eq!(pod_names(&input(&cron_job(metadata)).unwrap()), expected, "{metadata}");
    }
}

#[test]
fn finished_pods_count_towards_completions() {
    let job = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {parallelism: 2, completions: 3, \
        template: {spec: {restartPolicy: Never, containers: [{name: app}]}}}\n";
    let done =
        |name: &str| owned(name, "apiVersion: batch/v1, kind: Job, name: j", "") + "status: {phase: Succeeded}\n";
    let names = |pods: &str| pod_names(&input(&format!("{job}{pods}")).unwrap());
    assert_eq!(names(&done("j-a")), ["j-a", "j-0", "j-1"]);
    assert_eq!(names(&(done("j-a") + &done("j-b"))), ["j-a", "j-b", "j-0"]);
    assert_eq!(names(&(done("j-a") + &done("j-b") + &done("j-c"))), ["j-a", "j-b", "j-c"]);
    let queue = |more: &str| input(&(job.replace("completions: 3, ", "") + more)).unwrap();
    assert_eq!(pod_names(&queue("")), ["j-0", "j-1"]);
    assert_eq!(pod_names(&queue(&done("j-a"))), ["j-a"], "no more pods once one has succeeded");
    let idle = queue("status: {succeeded: 1}\n").idle;
    assert_eq!(idle.values().collect::<Vec<_>>(), ["a pod has succeeded"]);
}

/// In Go, a null becomes an empty string, or a quantity of 0. Of custom resources, the API server removes it, but not
/// from the metadata.
#[test]
fn nulls_in_maps_are_what_an_api_server_makes_of_them() {
    let pool = "---\napiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: a, annotations: {x: null}}\n\
        spec: {limits: {cpu: null}, template: {metadata: {labels: {team: null}}, spec: {requirements: [],\n  \
        nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: x}}}}\n";
    let pod = pod(
        "a",
        ", annotations: {x: null}",
        "{nodeSelector: {disk: null}, containers: [{name: app, resources: {requests: {cpu: }}}]}",
    );
    let manifests = input(&(pod + pool)).unwrap();
    let empty = |key: &str| Some(BTreeMap::from([(key.to_owned(), String::new())]));
    let pod = &pods(&manifests)[0];
    assert_eq!(pod.metadata.annotations, empty("x"));
    let spec = pod.spec.as_ref().unwrap();
    assert_eq!(spec.node_selector, empty("disk"));
    let requests = spec.containers[0].resources.as_ref().unwrap().requests.as_ref().unwrap();
    assert_eq!(requests["cpu"].0, "0");
    let pool = &manifests.objects.node_pools[0];
    assert_eq!(pool.metadata.annotations, empty("x"));
    assert_eq!((pool.spec.limits.len(), pool.spec.template.labels().count()), (0, 0));
}

#[test]
fn errors_name_document_object_and_field() {
    let spec = |spec: &str| format!("# first\n---\n{}", pod("a", "", spec));
    let class = "nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: x}";
    let pool = |requirements: &str| {
        format!(
            "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: a}}\nspec: {{template: {{spec: {{{class}, requirements: [{requirements}]}}}}}}\n"
        )
    };
    let table = [
        (
            spec("{containers: [{name: x, imagine: y}]}"),
            "-: document 2: Pod default/a: spec.containers[0].imagine: no such field",
        ),
        (spec("{containers: 3}"), "-: document 2: Pod default/a: spec.containers: "),
        (spec("{}"), "-: document 2: Pod default/a: spec.containers: must have at least one"),
        (
            spec("{containers: [{name: x, resources: {requests: {cpu: 2}, limits: {cpu: 1500m}}}]}"),
            "spec.containers[0].resources.requests.cpu: 2 is more than the limit, 1500m",
        ),
        (spec("{containers: [{name: x}], nodeSelector: {a b: c}}"), "spec.nodeSelector: \"a b\": \"c\" is not a label"),
        (DEPLOYMENT.replace("replicas: 2", "replicas: two"), "-: document 1: Deployment default/web: spec.replicas: "),
        (
            DEPLOYMENT.replace("{name: app}", "{name: app, cpu: 1}"),
            "Deployment default/web: spec.template.spec.containers[0].cpu: no such field",
        ),
        (pool("{key: a, operator: Foo}"), "-: document 1: NodePool a: spec.template.spec.requirements[0].operator: "),
        ("apiVersion: karpenter.sh/v1beta1\nkind: NodePool\n".to_owned(), "-: document 1: NodePool: apiVersion: "),
        (
            pool("").replace("v1\nkind", "v1beta1\nkind"),
            "-: document 1: NodePool a: apiVersion: \"karpenter.sh/v1beta1\"",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: A_b}\n".to_owned(),
            "-: document 1: Pod: metadata.name: \"A_b\" ",
        ),
        ("apiVersion: v1\nkind: Pod\n".to_owned(), "-: document 1: Pod: metadata: is required"),
        ("kind: Pod\n".to_owned(), "-: document 1: Pod: apiVersion: is required"),
        ("[1]\n".to_owned(), "-: document 1: not an object"),
        (
            "apiVersion: v1\nkind: List\nitems: [{}, 3]\n".to_owned(),
            "-: document 1: items[0]: kind: is required\n-: document 1: items[1]: not an object",
        ),
        (
            "apiVersion: v1\nkind: List\nitems: [{kind: List}, {kind: List, items: [3]}]\n".to_owned(),
            "-: document 1: items[1]: not an object",
        ),
    ];
    for (text, expected) in table {
        let error = error(&text);
        assert!(error.contains(expected), "{error}\n{expected}");
    }
}

#[test]
fn every_wrong_object_is_told() {
    let told = error(&(pod("a", "", "{containers: 3}") + &pod("b", "", "{containers: [{name: x, y: z, w: v}]}")));
    assert_eq!(told.lines().count(), 3, "{told}");
    let many: String = (0..30).map(|number| pod(&format!("p{number}"), "", "{}")).collect();
    assert!(error(&many).ends_with("and 10 more"));
}

#[test]
fn what_is_not_yaml_is_told_with_the_line_of_the_file() {
    let told =
        error("# one\n---\nkind: Namespace\napiVersion: v1\nmetadata: {name: a}\n---\nkind: Pod\n  apiVersion: v1\n");
    assert!(told.starts_with("-: document 2: not YAML: line 8, column "), "{told}");
    assert!(error("a: 1\na: 2\n").contains("line 2, column 1"));
    assert!(error("{\"kind\": \"Pod\"").contains("not JSON: "));
}

#[test]
fn a_problem_found_later_is_told_with_the_place_of_its_object() {
    let manifests = input(&format!(
        "{}{}",
        pod("lone", "", "{containers: [{name: x}]}"),
        DEPLOYMENT.replacen("api", "---\napi", 1)
    ))
    .unwrap();
    let problem = |name: &str| Problem {
        kind: "Pod".to_owned(),
        name: format!("default/{name}"),
        field: "spec.containers[0].resources.requests.cpu".to_owned(),
        message: "no".to_owned(),
        left_out: true,
    };
    let field = "spec.containers[0].resources.requests.cpu: no";
    assert_eq!(manifests.locate(&problem("lone")).to_string(), format!("-: document 1: Pod default/lone: {field}"));
    let expected = format!("-: document 2: Deployment default/web: spec.template.{field}");
    assert_eq!(manifests.locate(&problem("web-1")).to_string(), expected);
    for other in ["web-2", "web-01", "web-", "other-1"] {
        assert_eq!(manifests.locate(&problem(other)).to_string(), format!("input: Pod default/{other}: {field}"));
    }
}

#[test]
fn a_pod_between_the_numbers_of_a_workload_is_the_first_that_is_told() {
    let taken = pod("web-3", "", "{containers: [{name: x}]}");
    let told = error(&format!("{taken}---\n{}", DEPLOYMENT.replace("replicas: 2", "replicas: 9")));
    assert_eq!(
        told,
        "-: document 2: Deployment default/web: metadata.name: its pod default/web-3 is also Pod default/web-3 in -: document 1"
    );
    // Names that only look like it are free.
    let free = pod("web-03", "", "{containers: [{name: x}]}") + &pod("web-9", "", "{containers: [{name: x}]}");
    let manifests = input(&format!("{free}---\n{}", DEPLOYMENT.replace("replicas: 2", "replicas: 9"))).unwrap();
    assert_eq!(pod_names(&manifests).len(), 11);
}

#[test]
fn two_objects_of_one_name_are_an_error_that_names_both() {
    let twice = error(&format!("{DEPLOYMENT}---\n{DEPLOYMENT}"));
    assert_eq!(twice, "-: document 2: Deployment default/web is also in -: document 1");
    let pods = error(&format!("{}---\n{DEPLOYMENT}", pod("web-1", "", "{containers: [{name: x}]}")));
    assert_eq!(
        pods,
        "-: document 2: Deployment default/web: metadata.name: its pod default/web-1 is also Pod default/web-1 in -: document 1"
    );
    let workloads = error(&format!("{DEPLOYMENT}---\n{}", DEPLOYMENT.replace("Deployment", "StatefulSet")));
    assert!(
        workloads.contains("StatefulSet default/web") && workloads.contains("Deployment default/web"),
        "{workloads}"
    );
}

#[test]
fn lists_are_unpacked_and_other_kinds_counted() {
    let text = r#"{"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}]}
        {"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "stock"}},
            {"apiVersion": "v1", "kind": "PodList", "items": [
                {"metadata": {"name": "c"}, "spec": {"containers": [{"name": "b"}]}}]}]}]}
        {"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "a"}, "spec": {"containers": [{"name": "b"}]}}]}
        {"apiVersion": "example.com/v1", "kind": "AllowList", "metadata": {"name": "not-a-list"}}"#;
    let manifests = input(text).unwrap();
    assert_eq!(manifests.objects.namespaces.len(), 2);
    assert_eq!(pod_names(&manifests), ["c", "a"]);
    let ignored = [("example.com/v1 AllowList".to_owned(), 1), ("v1 Service".to_owned(), 1)];
    assert_eq!(manifests.ignored, BTreeMap::from(ignored));
}

#[test]
fn what_kubectl_takes_is_taken() {
    let documents = [
        format!("\u{feff}{DEPLOYMENT}"),
        format!("%YAML 1.2\n---\n{DEPLOYMENT}"),
        format!("# a comment\n---\n---\n{DEPLOYMENT}---\n# the end\n"),
        DEPLOYMENT.replace('\n', "\r\n"),
        format!("--- # a comment\n{DEPLOYMENT}..."),
        DEPLOYMENT.replace("{name: app}", "{name: app, resources: {requests: {cpu: 0.5, memory: 1e6}}}"),
        DEPLOYMENT.replace("spec: {c", "spec: {volumes: [{name: v, configMap: {name: m, defaultMode: 0440}}], c"),
        DEPLOYMENT.replace(
            "metadata: {name: web}",
            "metadata: {name: web, namespace: , creationTimestamp: null}\nstatus: {ofTomorrow: 1}",
        ),
        DEPLOYMENT
            .replace("labels: {app: web}", "labels: &labels {app: web}")
            .replace("spec: {c", "spec: {nodeSelector: *labels, c"),
        DEPLOYMENT.replace("{name: app}", &format!("{{name: app, args: [&a x{}]}}", ", *a".repeat(1000))),
    ];
    for text in documents {
        let read = input(&text).map(|manifests| pod_names(&manifests));
        assert_eq!(read.as_deref(), Ok(&["web-0".to_owned(), "web-1".to_owned()][..]), "{text}");
    }
    assert!(pod_names(&input("").unwrap()).is_empty());
}

/// Pieces of manifests, whole and broken, so that random text gets past the first look.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(DEPLOYMENT.to_owned()),
        Just("---\n".to_owned()),
        Just("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: ".to_owned()),
        Just("{containers: [{name: x, resources: {requests: {cpu: ".to_owned()),
        Just("apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: p}\nspec:\n  template: ".to_owned()),
        Just("{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": [".to_owned()),
        Just(
            "kind: Job\napiVersion: batch/v1\nspec: {parallelism: 2147483647, template: {spec: {containers: [{}]}}}\n"
                .to_owned()
        ),
        Just("&a *a !!binary <<: ? | > %".to_owned()),
        "[-{}\\[\\]:,&*#?|<>%@`\"' a-z0-9\n\t]{0,24}",
        ".{0,12}",
    ]
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(pieces in proptest::collection::vec(piece(), 0..8)) {
        let text = pieces.concat();
        match input(&text) {
            Ok(Manifests { objects, .. }) => {
                let replicas: usize = objects.replicas.iter().map(plimsoll_snapshot::Replicas::len).sum();
                prop_assert!(objects.pods.len() + replicas <= MAX_PODS);
            }
            Err(errors) => prop_assert!(!errors.0.is_empty() && !errors.to_string().is_empty()),
        }
    }

    #[test]
    fn json_and_yaml_mean_the_same(replicas in 0..40_i32, name in "[a-z]([a-z0-9-]{0,8}[a-z0-9])?") {
        let value = serde_json::json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "app"}]}}},
        });
        let names = |text: &str| input(text).map(|it| pod_names(&it));
        let yaml = serde_saphyr::to_string(&value).unwrap();
        prop_assert_eq!(names(&value.to_string()), names(&yaml));
        prop_assert_eq!(names(&yaml).unwrap().len(), usize::try_from(replicas).unwrap());
    }
}
