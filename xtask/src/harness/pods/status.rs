//! Pod status as the kubelet writes it.

use k8s_openapi::api::core::v1::Container;
use serde_json::{Value, json};
use std::net::Ipv4Addr;

/// A pod's address in the API. Endpoints must not be loopback addresses, on which the processes listen.
pub(super) fn api_address(address: Ipv4Addr) -> Ipv4Addr {
    let [_, b, c, d] = address.octets();
    Ipv4Addr::new(10, b, c, d)
}

/// The loopback address for an address in the API.
pub(super) fn loopback_address(api_address: Ipv4Addr) -> Ipv4Addr {
    let [_, b, c, d] = api_address.octets();
    Ipv4Addr::new(127, b, c, d)
}

/// Status of a running container. `address` is None for a pod to which kwok has assigned one.
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
        status["status"]["podIP"] = json!(api_address(address));
        status["status"]["podIPs"] = json!([{ "ip": api_address(address) }]);
    }
    status
}

/// Status of a container that completed successfully.
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
    use super::{api_address, loopback_address};
    use std::net::Ipv4Addr;

    #[test]
    fn an_address_comes_back() {
        let address = Ipv4Addr::new(127, 70, 3, 9);
        assert_eq!(api_address(address), Ipv4Addr::new(10, 70, 3, 9));
        assert_eq!(loopback_address(api_address(address)), address);
    }
}
