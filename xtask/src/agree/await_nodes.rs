//! Waits until kube-scheduler knows the nodes of a case.
//!
//! kube-scheduler watches nodes and pods separately. In a user's cluster a node exists for a while before it accepts
//! pods. Here pods follow immediately, and a pod whose nominated node is not known yet would be bound elsewhere.

use super::case_client::CaseClient;
use super::case_objects::CaseObjects;
use super::play::{LIMIT, Shared, remove};
use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::{Node, NodeStatus, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plimsoll_snapshot::full_name;
use std::collections::BTreeMap;

const LABEL: &str = "plimsoll.test/witness";

/// A node that is created last: when kube-scheduler knows it, it knows all earlier nodes.
fn node(case_objects: &CaseObjects, seed: u64) -> Node {
    let room = BTreeMap::from([("pods".to_owned(), Quantity("1".to_owned()))]);
    Node {
        metadata: ObjectMeta {
            name: Some(case_objects.isolation.name("witness")),
            labels: Some(BTreeMap::from([(LABEL.to_owned(), seed.to_string())])),
            ..ObjectMeta::default()
        },
        status: Some(NodeStatus { allocatable: Some(room.clone()), capacity: Some(room), ..NodeStatus::default() }),
        ..Node::default()
    }
}

/// A pod that fits only on this node.
fn pod(case_objects: &CaseObjects, seed: u64) -> Pod {
    let mut pod = case_objects.nobodys();
    pod.metadata.name = Some("witness".to_owned());
    if let Some(spec) = pod.spec.as_mut() {
        spec.node_selector = Some(BTreeMap::from([(LABEL.to_owned(), seed.to_string())]));
    }
    pod
}

/// Returns after a pod was bound to a node that was created after the nodes of the case.
///
/// # Errors
/// If the pod is not bound in time.
pub(super) async fn nodes_are_known(
    shared: &Shared,
    case_client: &CaseClient,
    case_objects: &CaseObjects,
) -> Result<()> {
    let (node, pod) = (node(case_objects, case_client.seed()), pod(case_objects, case_client.seed()));
    case_client.node(&node).await?;
    case_client.pods(std::slice::from_ref(&pod)).await?;
    let name = full_name(&pod.metadata);
    let bound = |pods: &super::pod_watch::Pods| pods.get(&name).is_some_and(|seen| seen.node.is_some());
    if !shared.pod_watch.wait(case_client.seed(), (LIMIT, LIMIT), bound, |_| false).await {
        bail!("kube-scheduler has not heard of the nodes within {} s", LIMIT.as_secs());
    }
    remove(shared, case_client, &pod).await?;
    case_client.delete_node(node.metadata.name.as_deref().unwrap_or_default()).await
}
