//! What the kubelet writes into the status of a pod.

use k8s_openapi::api::core::v1::Container;
use serde_json::{Value, json};
use std::net::Ipv4Addr;

/// A pod's address as the API knows it. Endpoints may not be loopback addresses, on which the processes listen.
pub(super) fn told(address: Ipv4Addr) -> Ipv4Addr {
    let [_, b, c, d] = address.octets();
    Ipv4Addr::new(10, b, c, d)
}

/// The loopback address behind one that the API knows.
pub(super) fn real(told: Ipv4Addr) -> Ipv4Addr {
    let [_, b, c, d] = told.octets();
    Ipv4Addr::new(127, b, c, d)
}

/// The container runs. `address` is None for a pod that kwok has given one.
pub(super) fn running(container: &Container, address: Option<Ipv4Addr>, ready: bool) -> Value {
    let now = jiff::Timestamp::now().to_string();
    let readiness = if ready { "True" } else { "False" };
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "lastTransitionTime": now});
    let mut status = json!({"status": {
        "phase": "Running",
        "conditions": [
            condition("PodReadyToStartContainers", "True"), condition("Initialized", "True"),
            condition("ContainersReady", readiness), condition("Ready", readiness),
        ],
        "containerStatuses": [{
            "name": container.name, "image": container.image, "imageID": "", "ready": ready, "started": true, "restartCount": 0,
            "state": {"running": {"startedAt": now}},
        }],
    }});
    if let Some(address) = address {
        status["status"]["podIP"] = json!(told(address));
        status["status"]["podIPs"] = json!([{ "ip": told(address) }]);
    }
    status
}

/// The container of a pod that runs once has ended well.
pub(super) fn succeeded(container: &Container) -> Value {
    let now = jiff::Timestamp::now().to_string();
    let condition =
        |kind: &str| json!({"type": kind, "status": "False", "reason": "PodCompleted", "lastTransitionTime": now});
    json!({"status": {
        "phase": "Succeeded",
        "conditions": [condition("ContainersReady"), condition("Ready")],
        "containerStatuses": [{
            "name": container.name, "image": container.image, "imageID": "", "ready": false, "started": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}},
        }],
    }})
}

#[cfg(test)]
mod tests {
    use super::{real, told};
    use std::net::Ipv4Addr;

    #[test]
    fn an_address_comes_back() {
        let address = Ipv4Addr::new(127, 70, 3, 9);
        assert_eq!(told(address), Ipv4Addr::new(10, 70, 3, 9));
        assert_eq!(real(told(address)), address);
    }
}
