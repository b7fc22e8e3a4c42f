//! Interprets the only container of a Pod, like the kubelet.

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{Container, EnvVar, Pod};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

/// Address on which a service listens on all addresses of its pod.
const ANY: &str = "0.0.0.0:";

/// The only container of a pod.
///
/// # Errors
/// If there is not exactly one.
pub(crate) fn container(pod: &Pod) -> Result<&Container> {
    let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
    match containers {
        [container] => Ok(container),
        _ => bail!("{} containers, not one", containers.len()),
    }
}

/// Name of the image without registry, tag and digest, which is also the name of the program.
pub(super) fn program(container: &Container) -> Result<&str> {
    let image = container.image.as_deref().context("the container has no image")?;
    let name = image.rsplit('/').next().unwrap_or(image);
    Ok(name.split([':', '@']).next().unwrap_or(name))
}

/// Environment variables of the container.
///
/// # Errors
/// If a variable has a source that is not simulated.
pub(super) fn environment(pod: &Pod, container: &Container, address: Ipv4Addr) -> Result<BTreeMap<String, String>> {
    if container.env_from.as_ref().is_some_and(|sources| !sources.is_empty()) {
        bail!("envFrom is not supported");
    }
    let variables = container.env.iter().flatten();
    variables.map(|variable| Ok((variable.name.clone(), value(pod, variable, address)?))).collect()
}

fn value(pod: &Pod, variable: &EnvVar, address: Ipv4Addr) -> Result<String> {
    let Some(source) = &variable.value_from else { return Ok(variable.value.clone().unwrap_or_default()) };
    let path = source.field_ref.as_ref().map(|field| field.field_path.as_str());
    match path {
        Some("metadata.name") => pod.metadata.name.clone().context("the pod has no name"),
        Some("metadata.namespace") => pod.metadata.namespace.clone().context("the pod has no namespace"),
        Some("status.podIP") => Ok(address.to_string()),
        _ => bail!("the source of the variable {} is not supported", variable.name),
    }
}

/// Arguments of the container. Pods share one network here, so a service listens on its pod's address instead of all
/// addresses.
pub(crate) fn arguments(container: &Container, env: &BTreeMap<String, String>, address: Ipv4Addr) -> Vec<String> {
    let own = format!("{address}:");
    container.args.iter().flatten().map(|argument| expand(argument, env).replace(ANY, &own)).collect()
}

/// Replaces `$(NAME)` in an argument, like the kubelet.
fn expand(argument: &str, env: &BTreeMap<String, String>) -> String {
    env.iter().fold(argument.to_owned(), |text, (name, value)| text.replace(&format!("$({name})"), value))
}

/// Address and path of the readiness probe, if there is one.
///
/// # Errors
/// If the probe names no port of the container.
pub(super) fn readiness(container: &Container, address: Ipv4Addr) -> Result<Option<(SocketAddr, String)>> {
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
    let Some(get) = container.readiness_probe.as_ref().and_then(|probe| probe.http_get.as_ref()) else {
        return Ok(None);
    };
    let port = match &get.port {
        IntOrString::Int(port) => Some(*port),
        IntOrString::String(name) => {
            let named = container.ports.iter().flatten().find(|port| port.name.as_deref() == Some(name));
            named.map(|port| port.container_port)
        }
    };
    let port = port.and_then(|port| u16::try_from(port).ok()).context("the readiness probe names no port")?;
    Ok(Some((SocketAddr::from((address, port)), get.path.clone().unwrap_or_else(|| "/".to_owned()))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod() -> Result<Pod> {
        Ok(serde_json::from_value(json!({
            "metadata": {"name": "watcher-1", "namespace": "ns"},
            "spec": {"containers": [{
                "name": "watcher", "image": "registry.example.com:5000/team/plimsoll-watcher:1.2@sha256:0",
                "args": ["--listen=0.0.0.0:9441", "--lease=$(POD_NAMESPACE)/x", "--left=$(OTHER)"],
                "env": [
                    {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
                    {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                    {"name": "PLAIN", "value": "yes"},
                ],
                "ports": [{"name": "health", "containerPort": 8081}],
                "readinessProbe": {"httpGet": {"path": "/readyz", "port": "health"}},
            }]},
        }))?)
    }

    #[test]
    fn a_container_is_read_as_the_kubelet_does() -> Result<()> {
        let address = Ipv4Addr::new(127, 80, 0, 1);
        let pod = pod()?;
        let container = container(&pod)?;
        assert_eq!(program(container)?, "plimsoll-watcher");
        let env = environment(&pod, container, address)?;
        assert_eq!((env["POD_IP"].as_str(), env["PLAIN"].as_str()), ("127.80.0.1", "yes"));
        let args = arguments(container, &env, address);
        assert_eq!(args, ["--listen=127.80.0.1:9441", "--lease=ns/x", "--left=$(OTHER)"]);
        let probe = Some((SocketAddr::from((address, 8081)), "/readyz".to_owned()));
        assert_eq!(readiness(container, address)?, probe);
        Ok(())
    }

    #[test]
    fn what_is_not_played_is_refused() -> Result<()> {
        let mut pod = pod()?;
        let address = Ipv4Addr::LOCALHOST;
        let spec = pod.spec.as_mut().context("no spec")?;
        let unknown = json!({"name": "X", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}});
        spec.containers[0].env = Some(vec![serde_json::from_value(unknown)?]);
        let result = environment(&pod, container(&pod)?, address).map_err(|error| error.to_string());
        assert_eq!(result, Err("the source of the variable X is not supported".to_owned()));
        pod.spec.as_mut().context("no spec")?.containers.clear();
        assert!(container(&pod).is_err());
        Ok(())
    }
}
