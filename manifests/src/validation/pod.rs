//! Pods and what is within them: names, ports and policies.

use super::{DNS_LABEL_RULE, Faults, Path, is_dns_label, placement, resources};
use crate::{Manifest, ManifestError};
use k8s_openapi::api::core::v1::{Container, ContainerPort, PodSpec};
use std::collections::BTreeSet;

const MAX_PORT: i32 = 65_535;
pub(super) const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];

/// Checks a Pod.
pub(crate) fn pod(manifest: &Manifest, spec: Option<&PodSpec>) -> Result<(), Vec<ManifestError>> {
    let mut faults = Faults::new(manifest);
    pod_spec(&mut faults, &Path::root("spec"), spec);
    faults.into_result()
}

pub(super) fn pod_spec(faults: &mut Faults<'_>, at: &Path<'_>, spec: Option<&PodSpec>) {
    let Some(spec) = spec.filter(|spec| !spec.containers.is_empty()) else {
        return faults.add(&at.field("containers"), "must have at least one container");
    };
    faults.unless_one_of(&at.field("restartPolicy"), restart_policy(spec), &RESTART_POLICIES);
    let selected = spec.node_selector.iter().flatten().map(|(key, value)| (key, value.as_str()));
    faults.labels(&at.field("nodeSelector"), selected);
    containers(faults, at, spec);
    let volumes = spec.volumes.iter().flatten().map(|volume| volume.name.as_str());
    names(faults, at, "volumes", volumes, &mut BTreeSet::new());
    claims(faults, at, spec);
    resources::of_pod(faults, at, spec);
    placement::check(faults, at, spec);
}

/// The policy of the pod. An empty one is the default.
pub(super) fn restart_policy(spec: &PodSpec) -> Option<&str> {
    spec.restart_policy.as_deref().filter(|policy| !policy.is_empty())
}

fn containers(faults: &mut Faults<'_>, at: &Path<'_>, spec: &PodSpec) {
    let (mut known_names, mut known_ports) = (BTreeSet::new(), BTreeSet::new());
    let init_containers = spec.init_containers.as_deref().unwrap_or_default();
    for (list, containers) in [("containers", spec.containers.as_slice()), ("initContainers", init_containers)] {
        names(faults, at, list, containers.iter().map(|container| container.name.as_str()), &mut known_names);
        for (index, container) in containers.iter().enumerate() {
            let at = at.item(list, index);
            faults.unless_one_of(&at.field("restartPolicy"), container.restart_policy.as_deref(), &RESTART_POLICIES);
            resources::of_container(faults, &at, container);
            if list == "containers" {
                host_ports(faults, &at, container, &mut known_ports);
            } else {
                // Init containers run one after the other and may use the same port.
                host_ports(faults, &at, container, &mut BTreeSet::new());
            }
        }
    }
}

/// Checks that volumes which come from claims say which, or how to make one.
fn claims(faults: &mut Faults<'_>, at: &Path<'_>, spec: &PodSpec) {
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        let at = at.item("volumes", index);
        if volume.persistent_volume_claim.as_ref().is_some_and(|source| source.claim_name.is_empty()) {
            faults.add(&at.field("persistentVolumeClaim.claimName"), "is required");
        }
        if volume.ephemeral.as_ref().is_some_and(|source| source.volume_claim_template.is_none()) {
            faults.add(&at.field("ephemeral.volumeClaimTemplate"), "is required");
        }
    }
}

/// Checks the names of a list whose items must have different ones. `known` are names that are taken.
fn names<'name>(
    faults: &mut Faults<'_>,
    at: &Path<'_>,
    list: &str,
    names: impl Iterator<Item = &'name str>,
    known: &mut BTreeSet<&'name str>,
) {
    for (index, name) in names.enumerate() {
        let at = at.item(list, index);
        let at = at.field("name");
        if name.is_empty() {
            faults.add(&at, "is required");
        } else if !is_dns_label(name) {
            faults.add(&at, format_args!("{name:?} must consist of {DNS_LABEL_RULE}"));
        } else if !known.insert(name) {
            faults.add(&at, format_args!("{name:?} is the name of another one as well"));
        }
    }
}

/// Checks that ports and protocols exist, and that no port of the host is asked for twice. `known` are ports that are
/// taken.
fn host_ports<'container>(
    faults: &mut Faults<'_>,
    at: &Path<'_>,
    container: &'container Container,
    known: &mut BTreeSet<(i32, &'container str, &'container str)>,
) {
    for (index, port) in container.ports.iter().flatten().enumerate() {
        let at = at.item("ports", index);
        faults.unless_one_of(&at.field("protocol"), Some(protocol(port)), &["TCP", "UDP", "SCTP"]);
        let Some(number) = port.host_port.filter(|number| *number != 0) else { continue };
        if !(1..=MAX_PORT).contains(&number) {
            faults.add(&at.field("hostPort"), format_args!("{number} is not between 1 and {MAX_PORT}"));
        } else if !known.insert((number, protocol(port), port.host_ip.as_deref().unwrap_or_default())) {
            faults.add(&at.field("hostPort"), format_args!("{number} is the port of another container port as well"));
        }
    }
}

fn protocol(port: &ContainerPort) -> &str {
    port.protocol.as_deref().filter(|protocol| !protocol.is_empty()).unwrap_or("TCP")
}
