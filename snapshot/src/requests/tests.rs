#![expect(clippy::needless_pass_by_value, reason = "json! makes values, and helpers read better with them")]

use super::*;
use serde_json::{Value, json};

fn requests(spec: Value) -> Result<Resources, Fault> {
    effective_requests(&serde_json::from_value(spec).unwrap())
}

fn container(requests: Value) -> Value {
    json!({"name": "app", "resources": {"requests": requests}})
}

fn sidecar(requests: Value) -> Value {
    json!({"name": "side", "restartPolicy": "Always", "resources": {"requests": requests}})
}

#[test]
fn requests_are_computed_as_in_kube_scheduler() {
    let cpu = |amount| Resources::from([("cpu", amount), ("pods", 1)]);
    let one = || container(json!({"cpu": "1"}));
    let table = [
        ("nothing asked for", json!({"containers": [{"name": "app"}]}), Resources::from([("pods", 1)])),
        ("containers add up", json!({"containers": [one(), container(json!({"cpu": "250m"}))]}), cpu(1250)),
        (
            "a limit stands in for a missing request, of that resource alone",
            json!({"containers": [{"name": "app", "resources": {"limits": {"cpu": "2", "memory": "1Gi"},
                "requests": {"cpu": "1"}}}]}),
            Resources::from([("cpu", 1000), ("memory", 1 << 30), ("pods", 1)]),
        ),
        (
            "the largest init container counts where it exceeds the sum",
            json!({"initContainers": [container(json!({"cpu": "3"})), container(json!({"cpu": "2"}))],
                "containers": [one(), one()]}),
            cpu(3000),
        ),
        (
            "smaller init containers count nothing",
            json!({"initContainers": [container(json!({"cpu": "500m"}))], "containers": [one()]}),
            cpu(1000),
        ),
        (
            "a sidecar runs beside the containers",
            json!({"initContainers": [sidecar(json!({"cpu": "1"}))], "containers": [one()]}),
            cpu(2000),
        ),
        (
            "an init container after a sidecar runs beside it",
            json!({"initContainers": [sidecar(json!({"cpu": "1"})), container(json!({"cpu": "4"}))],
                "containers": [one()]}),
            cpu(5000),
        ),
        (
            "one before the sidecar does not",
            json!({"initContainers": [container(json!({"cpu": "4"})), sidecar(json!({"cpu": "1"}))],
                "containers": [one()]}),
            cpu(4000),
        ),
        ("overhead comes on top", json!({"overhead": {"cpu": "100m"}, "containers": [one()]}), cpu(1100)),
        (
            "a request of the whole pod stands in place of the sum, also below it",
            json!({"resources": {"requests": {"cpu": "500m"}}, "overhead": {"cpu": "100m"}, "containers": [one()]}),
            cpu(600),
        ),
        (
            "a limit of the whole pod counts only where no container asks",
            json!({"resources": {"limits": {"cpu": "4", "memory": "1Gi"}}, "containers": [one()]}),
            Resources::from([("cpu", 1000), ("memory", 1 << 30), ("pods", 1)]),
        ),
        (
            "a limit of the whole pod counts for huge pages in any case",
            json!({"resources": {"limits": {"hugepages-2Mi": "8Mi"}},
                "containers": [container(json!({"hugepages-2Mi": "4Mi"}))]}),
            Resources::from([("hugepages-2Mi", 8 << 20), ("pods", 1)]),
        ),
        (
            "what pods cannot ask for as a whole is left to containers",
            json!({"resources": {"requests": {"nvidia.com/gpu": "8"}},
                "containers": [container(json!({"nvidia.com/gpu": "1"}))]}),
            Resources::from([("nvidia.com/gpu", 1), ("pods", 1)]),
        ),
        ("fractions of a millicore round up", json!({"containers": [container(json!({"cpu": "0.0001"}))]}), cpu(1)),
    ];
    for (name, spec, expected) in table {
        assert_eq!(requests(spec), Ok(expected), "{name}");
    }
}

#[test]
fn an_invalid_quantity_names_its_field() {
    let table = [
        (
            json!({"containers": [{"name": "a"}, container(json!({"cpu": "lots"}))]}),
            "spec.containers[1].resources.requests.cpu",
        ),
        (
            json!({"containers": [], "initContainers": [container(json!({"memory": "1X"}))]}),
            "spec.initContainers[0].resources.requests.memory",
        ),
        (json!({"containers": [container(json!({"cpu": "-1"}))]}), "spec.containers[0].resources.requests.cpu"),
        (json!({"containers": [container(json!({"": "1"}))]}), "spec.containers[0].resources.requests."),
        (json!({"containers": [], "overhead": {"cpu": ""}}), "spec.overhead.cpu"),
        (json!({"containers": [], "resources": {"limits": {"cpu": "x"}}}), "spec.resources.limits.cpu"),
    ];
    for (spec, field) in table {
        assert_eq!(requests(spec).unwrap_err().field, field);
    }
}

fn cpu_of(pod: &Pod) -> i64 {
    let spec = PodSpec::clone(pod.spec.as_ref().unwrap());
    effective_requests(&resized(pod, &spec).unwrap_or(spec)).unwrap().get("cpu")
}

#[test]
fn a_resizing_pod_counts_the_larger_amount_and_an_infeasible_resize_does_not_count() {
    let pod = |asked: &str, has: &str, reason: &str| -> Pod {
        serde_json::from_value(json!({"metadata": {},
            "spec": {"containers": [container(json!({"cpu": asked})), {"name": "other"}]},
            "status": {"containerStatuses": [
                {"name": "app", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                    "allocatedResources": {"cpu": has}, "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
                "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}]}}))
        .unwrap()
    };
    let counted = |asked: &str, has: &str, reason: &str| cpu_of(&pod(asked, has, reason));
    assert_eq!(counted("1", "3", "Deferred"), 3000);
    assert_eq!(counted("3", "1", "Deferred"), 3000);
    assert_eq!(counted("500m", "500m", "Deferred"), 1000);
    assert_eq!(counted("100", "500m", "Infeasible"), 1000, "the kubelet has not finished an earlier resize");
    assert_eq!(counted("100", "2", "Infeasible"), 2000);
}

#[test]
fn a_request_that_an_infeasible_resize_adds_does_not_count() {
    let counted = |reason: &str| {
        let has = json!({"memory": "1Gi"});
        let pod: Pod = serde_json::from_value(json!({"metadata": {},
            "spec": {"containers": [container(json!({"cpu": "8", "memory": "1Gi", "example.com/device": "1"})),
                {"name": "other", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"containerStatuses": [
                {"name": "app", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                    "allocatedResources": has, "resources": {"requests": has}}],
                "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}]}}))
        .unwrap();
        let spec = PodSpec::clone(pod.spec.as_ref().unwrap());
        let requests = effective_requests(&resized(&pod, &spec).unwrap_or(spec)).unwrap();
        ["cpu", "memory", "example.com/device"].map(|name| requests.get(name))
    };
    assert_eq!(counted("Infeasible"), [1000, 1 << 30, 1], "the status of the other container is not there yet");
    assert_eq!(counted("Deferred"), [9000, 1 << 30, 1]);
}

#[test]
fn the_resources_of_a_whole_pod_are_resized_too() {
    let pod = |asked: &str, allocated: &str| -> Pod {
        serde_json::from_value(json!({"metadata": {},
            "spec": {"resources": {"requests": {"cpu": asked}}, "containers": [{"name": "app"}]},
            "status": {"allocatedResources": {"cpu": allocated}, "resources": {"requests": {"cpu": "1"}}}}))
        .unwrap()
    };
    assert_eq!((cpu_of(&pod("1", "3")), cpu_of(&pod("3", "1")), cpu_of(&pod("500m", "500m"))), (3000, 3000, 1000));
}
