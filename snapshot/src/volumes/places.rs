//! Drivers of volumes, and the nodes to which a volume can be attached.

use crate::problems::Fault;
use crate::selectors;
use k8s_openapi::api::core::v1::PersistentVolume;
use plimsoll_model::names::label;
use plimsoll_model::requirements::{NodeSelectorRequirement, NodeSelectorTerm, Operator};

/// CSI driver of EBS; also used for volumes of the former in-tree driver.
const EBS_DRIVER: &str = "ebs.csi.aws.com";
const IN_TREE_EBS: &str = "kubernetes.io/aws-ebs";
/// Topology labels of old volumes; several values are joined by [`LABEL_SEPARATOR`].
const TOPOLOGY_LABELS: [&str; 4] =
    [label::ZONE, label::REGION, "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"];
const LABEL_SEPARATOR: &str = "__";

/// CSI driver of a volume; empty if unknown.
pub(super) fn driver_of(volume: &PersistentVolume) -> String {
    match volume.spec.as_ref().map(|spec| (&spec.csi, &spec.aws_elastic_block_store)) {
        Some((Some(csi), _)) => driver_name(&csi.driver),
        Some((None, Some(_))) => EBS_DRIVER.to_owned(),
        _ => String::new(),
    }
}

/// Node selector terms of a volume. The terms are alternatives; an empty list means any node.
pub(super) fn node_terms(claim: &str, volume: &PersistentVolume, runs: bool) -> Result<Vec<NodeSelectorTerm>, Fault> {
    let Some(spec) = &volume.spec else { return Ok(Vec::new()) };
    let by_label = by_label(volume);
    let affinity = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
    // A local volume disappears with its node and must not prevent the node's removal. A pod without a node, however,
    // can only run where its volume is.
    let ignored_key = (runs && (spec.local.is_some() || spec.host_path.is_some())).then_some(label::HOSTNAME);
    let mut terms = Vec::new();
    for term in affinity.into_iter().flat_map(|selector| &selector.node_selector_terms) {
        let path = format!("spec.volumes.{claim}.nodeAffinity");
        let mut term = selectors::volume_term(term, ignored_key).map_err(|fault| fault.below(&path))?;
        if let Some(term) = &mut term {
            term.expressions.extend(by_label.iter().cloned());
        }
        terms.push(term);
    }
    if terms.is_empty() || terms.contains(&None) {
        let only = NodeSelectorTerm { expressions: by_label, fields: Vec::new() };
        return Ok(if only.expressions.is_empty() { Vec::new() } else { vec![only] });
    }
    Ok(terms.into_iter().flatten().collect())
}

fn by_label(volume: &PersistentVolume) -> Vec<NodeSelectorRequirement> {
    let labels = volume.metadata.labels.iter().flatten().filter(|(key, _)| TOPOLOGY_LABELS.contains(&key.as_str()));
    labels.map(|(key, value)| NodeSelectorRequirement::new(key, Operator::In, value.split(LABEL_SEPARATOR))).collect()
}

/// CSI driver of a provisioner.
pub(super) fn driver_name(provisioner: &str) -> String {
    if provisioner == IN_TREE_EBS { EBS_DRIVER.to_owned() } else { provisioner.to_owned() }
}
