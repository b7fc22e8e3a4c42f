//! One row for each rule: a fragment of a valid object, and what the error must say.

mod placement;

use crate::{MAX_PODS, Text, read};

fn error(text: &str) -> String {
    let text = Text { name: "-".to_owned(), content: text.to_owned() };
    read(&[text], MAX_PODS).err().map(|errors| errors.to_string()).unwrap_or_default()
}

/// A pod with a field in addition to its container.
fn pod(field: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: a, labels: {{app: a}}}}\n\
         spec: {{containers: [{{name: c}}], {field}}}\n"
    )
}

/// A pod whose container has a field in addition.
fn container(field: &str) -> String {
    format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: {{containers: [{{name: c, {field}}}]}}\n")
}

fn resources(requests: &str, limits: &str) -> String {
    container(&format!("resources: {{requests: {{{requests}}}, limits: {{{limits}}}}}"))
}

/// A workload with these labels and fields of the spec, and a policy of the pod.
fn workload(kind: &str, labels: &str, spec: &str, pod: &str) -> String {
    let version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
    format!(
        "apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\nspec: {{{spec}\
         template: {{metadata: {{labels: {labels}}}, spec: {{{pod}containers: [{{name: c}}]}}}}}}\n"
    )
}

fn object(version: &str, kind: &str, fields: &str) -> String {
    format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\n{fields}\n")
}

fn budget(spec: &str) -> String {
    object("policy/v1", "PodDisruptionBudget", &format!("spec: {{{spec}}}"))
}

fn check(table: &[(String, &str)]) {
    for (text, expected) in table {
        let error = error(text);
        if expected.is_empty() {
            assert_eq!(error, "", "{text}");
        } else {
            assert!(error.contains(expected) && error.lines().count() == 1, "{text}{error}\n{expected}");
        }
    }
}

#[test]
fn names_ports_and_policies_of_pods() {
    let two = |first: &str, second: &str| format!("initContainers: [{{{first}}}, {{{second}}}]");
    let port = |more: &str| format!("{{containerPort: 1, hostPort: 80{more}}}");
    let ports = |list: &str| container(&format!("ports: [{list}]"));
    let long = "a".repeat(64);
    check(&[
        (pod("restartPolicy: OnFailure"), ""),
        (pod("restartPolicy: \"\""), ""),
        (
            pod("restartPolicy: Sometimes"),
            "Pod default/a: spec.restartPolicy: \"Sometimes\" is not one of Always, OnFailure",
        ),
        (pod("initContainers: [{name: i, restartPolicy: Always}]"), ""),
        (
            pod("initContainers: [{name: i, restartPolicy: never}]"),
            "spec.initContainers[0].restartPolicy: \"never\" is not one",
        ),
        (pod(&two("name: i", "name: j")), ""),
        (pod(&two("name: i", "name: i")), "spec.initContainers[1].name: \"i\" is the name of another one"),
        (pod(&two("name: c", "name: j")), "spec.initContainers[0].name: \"c\" is the name of another one"),
        (pod(&two("image: i", "name: j")), "spec.initContainers[0].name: is required"),
        (pod(&two("name: A.b", "name: j")), "spec.initContainers[0].name: \"A.b\" must consist of"),
        (pod("volumes: [{name: v}, {name: w}]"), ""),
        (pod("volumes: [{name: v}, {name: v}]"), "spec.volumes[1].name: \"v\" is the name of another one"),
        (pod("volumes: [{emptyDir: {}}]"), "spec.volumes[0].name: is required"),
        (pod("volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]"), ""),
        (
            pod("volumes: [{name: v, persistentVolumeClaim: {}}]"),
            "spec.volumes[0].persistentVolumeClaim.claimName: is required",
        ),
        (pod("volumes: [{name: v, ephemeral: {}}]"), "spec.volumes[0].ephemeral.volumeClaimTemplate: is required"),
        (pod("nodeSelector: {a b: c}"), "spec.nodeSelector: \"a b\": \"c\" is not a label: a key has at most 63"),
        (pod("nodeSelector: {a: b c}"), "spec.nodeSelector: \"a\": \"b c\" is not a label: a value has at most 63"),
        (ports(&format!("{}, {}", port(", protocol: UDP"), port(", protocol: TCP"))), ""),
        (ports(&format!("{}, {}", port(", hostIP: 10.0.0.1"), port(""))), ""),
        (
            ports(&format!("{}, {}", port(""), port(", protocol: TCP"))),
            "spec.containers[0].ports[1].hostPort: 80 is the port of another",
        ),
        (ports("{containerPort: 1, hostPort: 65535}"), ""),
        (
            ports("{containerPort: 1, hostPort: 65536}"),
            "spec.containers[0].ports[0].hostPort: 65536 is not between 1 and 65535",
        ),
        (ports("{containerPort: 1, hostPort: -1}"), "spec.containers[0].ports[0].hostPort: -1 is not between"),
        (ports(&port(", protocol: tcp")), "spec.containers[0].ports[0].protocol: \"tcp\" is not one of TCP, UDP, SCTP"),
        (ports("{containerPort: 1, protocol: HTTP}"), "spec.containers[0].ports[0].protocol: \"HTTP\" is not one of"),
        (pod("").replace("{app: a}", "{a b: c}"), "metadata.labels: \"a b\": \"c\" is not a label"),
        (pod("").replace("{app: a}", &format!("{{app: {long}}}")), "metadata.labels: \"app\": "),
        (object("v1", "Namespace", "").replace("name: a", "name: a, labels: {-: b}"), "Namespace a: metadata.labels: "),
    ]);
}

#[test]
fn resources_of_containers() {
    check(&[
        (resources("cpu: 1500m", "cpu: 2, memory: 1Gi, ephemeral-storage: 1Gi"), ""),
        (
            resources("cpu: 2", "cpu: 1500m"),
            "spec.containers[0].resources.requests.cpu: 2 is more than the limit, 1500m",
        ),
        (resources("gpu: 1", ""), "spec.containers[0].resources.requests.gpu: is no resource of containers"),
        (resources("", "a b: 1"), "spec.containers[0].resources.limits.a b: is not the name of a resource"),
        (resources("nvidia.com/gpu: 1", ""), ""),
        (resources("nvidia.com/gpu: 1k", "nvidia.com/gpu: 1000"), ""),
        (resources("", "nvidia.com/gpu: 500m"), "resources.limits.nvidia.com/gpu: 500m is not a whole number"),
        (
            resources("nvidia.com/gpu: 1", "nvidia.com/gpu: 2"),
            "resources.requests.nvidia.com/gpu: 1 is less than the limit, 2",
        ),
        (
            resources("nvidia.com/gpu: 3", "nvidia.com/gpu: 2"),
            "resources.requests.nvidia.com/gpu: 3 is more than the limit, 2",
        ),
        (resources("hugepages-2Mi: 4Mi, cpu: 1", "hugepages-2Mi: 4Mi"), ""),
        (resources("", "hugepages-2Mi: 3Mi, cpu: 1"), "limits.hugepages-2Mi: 3Mi is not a multiple of the page size"),
        (
            resources("hugepages-2Mi: 2Mi, cpu: 1", "hugepages-2Mi: 4Mi"),
            "requests.hugepages-2Mi: 2Mi is less than the limit",
        ),
        (resources("example.kubernetes.io/odd: 500m", "example.kubernetes.io/odd: 1"), ""),
    ]);
}

#[test]
fn resources_of_whole_pods() {
    let both =
        |pod: &str, container: &str| resources(container, "").replace("}]}", &format!("}}], resources: {{{pod}}}}}"));
    check(&[
        (both("requests: {cpu: 1}", "cpu: 1"), ""),
        (both("requests: {memory: 1Gi}", "cpu: 1"), ""),
        (both("limits: {cpu: 1}", "cpu: 1"), ""),
        (
            both("requests: {cpu: 100m}", "cpu: 500m"),
            "a: spec.resources.requests.cpu: 100m is less than what the containers request, 500m",
        ),
        (
            both("limits: {cpu: 100m}", "cpu: 500m"),
            "a: spec.resources.limits.cpu: 100m is less than what the containers request, 500m",
        ),
        (
            both("limits: {hugepages-2Mi: 2Mi}", "hugepages-2Mi: 4Mi"),
            "a: spec.resources.limits.hugepages-2Mi: 2Mi is less than what the containers request, 4Mi",
        ),
        (
            both("requests: {cpu: 2}, limits: {cpu: 1}", "cpu: 1"),
            "a: spec.resources.requests.cpu: 2 is more than the limit, 1",
        ),
        (
            both("requests: {nvidia.com/gpu: 1}", ""),
            "a: spec.resources.requests.nvidia.com/gpu: is no resource of pods",
        ),
        (
            pod("resources: {limits: {cpu: 1}}")
                .replace("{name: c}", "{name: c, resources: {limits: {cpu: 2}, requests: {cpu: 1}}}"),
            "a: spec.containers[0].resources.limits.cpu: 2 is more than the limit of the pod, 1",
        ),
    ]);
}

#[test]
fn workloads() {
    let labels = "{app: a}";
    let selector = "selector: {matchLabels: {app: a}}, ";
    let expression = |text: &str| format!("selector: {{matchExpressions: [{{key: app, {text}}}]}}, ");
    let mut table = vec![
        (workload("Job", "{}", "", "restartPolicy: OnFailure, "), ""),
        (
            workload("Job", "{}", "", ""),
            "Job default/a: spec.template.spec.restartPolicy: must be OnFailure or Never here",
        ),
        (
            workload("Job", "{}", "", "restartPolicy: Always, "),
            "spec.template.spec.restartPolicy: must be OnFailure or Never",
        ),
        (
            workload("Job", "{}", "", "restartPolicy: Maybe, "),
            "spec.template.spec.restartPolicy: \"Maybe\" is not one of",
        ),
        (
            workload("Job", "{a b: c}", "", "restartPolicy: Never, "),
            "spec.template.metadata.labels: \"a b\": \"c\" is not a label",
        ),
        (
            workload(
                "StatefulSet",
                labels,
                &format!("{selector}volumeClaimTemplates: [{{metadata: {{name: d}}}}], "),
                "",
            ),
            "spec.volumeClaimTemplates[0].spec.accessModes: must have at least one",
        ),
        (
            workload(
                "StatefulSet",
                labels,
                &format!("{selector}volumeClaimTemplates: [{{spec: {{accessModes: [ReadWriteOnce]}}}}], "),
                "",
            ),
            "spec.volumeClaimTemplates[0].metadata.name: \"\" is not the name of a volume",
        ),
        (
            "apiVersion: v1\nkind: PodTemplate\nmetadata: {name: a}\ntemplate: {spec: {containers: [{image: i}]}}\n"
                .to_owned(),
            "PodTemplate default/a: template.spec.containers[0].name: is required",
        ),
    ];
    for kind in ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"] {
        table.extend([
            (workload(kind, labels, selector, ""), ""),
            (
                workload(kind, labels, selector, "restartPolicy: Never, "),
                "spec.template.spec.restartPolicy: must be Always here",
            ),
            (workload(kind, labels, "", ""), "default/a: spec.selector: must select spec.template.metadata.labels"),
            (workload(kind, labels, "selector: {}, ", ""), "default/a: spec.selector: must select"),
            (workload(kind, "{app: b}", selector, ""), "spec.selector.matchLabels: app: a does not match"),
            (workload(kind, labels, &expression("operator: In, values: [a, b]"), ""), ""),
            (workload(kind, labels, &expression("operator: Exists"), ""), ""),
            (
                workload(kind, labels, &expression("operator: NotIn, values: [a]"), ""),
                "spec.selector.matchExpressions[0]: does not match",
            ),
            (
                workload(kind, labels, &expression("operator: DoesNotExist"), ""),
                "spec.selector.matchExpressions[0]: does not match",
            ),
            (
                workload(kind, labels, &expression("operator: Gt"), ""),
                "spec.selector.matchExpressions[0]: is not an operator",
            ),
            (
                workload(kind, labels, selector, "tolerations: [{value: b}], "),
                "spec.template.spec.tolerations[0].operator: must",
            ),
        ]);
    }
    check(&table);
}

#[test]
fn budgets_and_priorities() {
    let class = |name: &str, value: &str| {
        object("scheduling.k8s.io/v1", "PriorityClass", value).replace("name: a", &format!("name: {name}"))
    };
    check(&[
        (budget("minAvailable: 1, unhealthyPodEvictionPolicy: AlwaysAllow"), ""),
        (budget("maxUnavailable: 100%"), ""),
        (budget("minAvailable: 1, maxUnavailable: 1"), "spec.maxUnavailable: minAvailable and maxUnavailable exclude"),
        (budget("minAvailable: -1"), "PodDisruptionBudget default/a: spec.minAvailable: must not be negative"),
        (budget("minAvailable: abc"), "spec.minAvailable: \"abc\" is neither a number nor a percentage such as 50%"),
        (budget("maxUnavailable: \"1\""), "\"1\" is neither a number nor a percentage such as 50%; remove the quotes"),
        (budget("maxUnavailable: \"%\""), "spec.maxUnavailable: \"%\" is neither"),
        (budget("minAvailable: 101%"), "spec.minAvailable: 101% is more than 100%"),
        (
            budget("maxUnavailable: 99999999999999999999%"),
            "spec.maxUnavailable: 99999999999999999999% is more than 100%",
        ),
        (budget("unhealthyPodEvictionPolicy: Never"), "spec.unhealthyPodEvictionPolicy: \"Never\" is not one of"),
        (class("high", ""), ""),
        (class("high", "value: 1000000000"), ""),
        (class("high", "value: 1000000001"), "PriorityClass high: value: must be at most 1000000000"),
        (class("system-node-critical", "value: 2000001000"), ""),
    ]);
}

#[test]
fn storage() {
    let claim = |spec: &str| object("v1", "PersistentVolumeClaim", &format!("spec: {{{spec}}}"));
    let class = |fields: &str| object("storage.k8s.io/v1", "StorageClass", fields);
    let topology = |fields: &str| {
        class(&format!("provisioner: p\nallowedTopologies: [{{matchLabelExpressions: [{{{fields}}}]}}]"))
    };
    let volume = |expression: &str| {
        let terms = format!("[{{matchExpressions: [{{{expression}}}]}}]");
        let spec = format!("spec: {{nodeAffinity: {{required: {{nodeSelectorTerms: {terms}}}}}}}");
        object("v1", "PersistentVolume", &spec)
    };
    let at = "PersistentVolume a: spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0]";
    check(&[
        (class("provisioner: ebs.csi.aws.com\nvolumeBindingMode: Immediate"), ""),
        (class("provisioner: ebs.csi.aws.com"), ""),
        (class(""), "StorageClass a: provisioner: is required"),
        (class("provisioner: p\nvolumeBindingMode: Later"), "volumeBindingMode: \"Later\" is not one of Immediate"),
        (claim("accessModes: [ReadWriteOnce]"), ""),
        (claim(""), "PersistentVolumeClaim default/a: spec.accessModes: must have at least one access mode"),
        (
            claim("accessModes: [ReadWriteOnce], resources: {requests: {storage: plenty}}"),
            "spec.resources.requests.storage: \"plenty\" is not a quantity",
        ),
        (
            claim("accessModes: [ReadWriteOnce], resources: {requests: {storage: 0}}"),
            "spec.resources.requests.storage: must be more than 0",
        ),
        (
            object("v1", "PersistentVolume", "spec: {capacity: {storage: -1Gi}}"),
            "PersistentVolume a: spec.capacity.storage: must be more than 0",
        ),
        (
            object("storage.k8s.io/v1", "CSINode", "spec: {drivers: [{name: d, nodeID: i, allocatable: {count: -1}}]}"),
            "CSINode a: spec.drivers[0].allocatable.count: must not be negative",
        ),
        (topology("key: a, values: [b]"), ""),
        (topology("values: [b]"), "allowedTopologies[0].matchLabelExpressions[0].key: is required"),
        (topology("key: a"), "allowedTopologies[0].matchLabelExpressions[0].values: must have at least one value"),
        (volume("key: a, operator: In, values: [b]"), ""),
        (volume("key: a, operator: Gt, values: [\"1\"]"), ""),
        (volume("operator: Exists"), format!("{at}.key: is required").as_str()),
        (volume("key: a, operator: in, values: [b]"), format!("{at}.operator: \"in\" is not one of").as_str()),
        (volume("key: a, operator: NotIn"), format!("{at}.values: must have at least one value").as_str()),
        (volume("key: a, operator: Exists, values: [b]"), format!("{at}.values: must be empty").as_str()),
        (volume("key: a, operator: Lt, values: [b]"), ""),
        (volume("key: a, operator: Lt, values: [b, c]"), format!("{at}.values: must be exactly one").as_str()),
        (claim("accessModes: [RWO]"), "spec.accessModes[0]: \"RWO\" is not one of ReadWriteOnce"),
        (
            object("v1", "PersistentVolume", "spec: {nodeAffinity: {required: {nodeSelectorTerms: []}}}"),
            "PersistentVolume a: spec.nodeAffinity.required.nodeSelectorTerms: must have at least one term",
        ),
    ]);
}
