//! A stand-in for the provisioner of the EBS driver: kube-scheduler selects a node for a claim with
//! `WaitForFirstConsumer`, and the stand-in creates a volume in the zone of this node. kube-controller-manager binds
//! claim and volume.

use super::isolate::{CASE, Isolation};
use super::pod_watch::MAX_FAILURES;
use anyhow::{Context as _, Result};
use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::{Node, ObjectReference, PersistentVolume, PersistentVolumeClaim};
use kube::api::PostParams;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use plimsoll_model::names::label;
use serde_json::json;
use std::collections::BTreeSet;

/// Annotation in which kube-scheduler names the selected node.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// Provisions volumes until the connection is lost permanently, which ends the run.
pub(super) async fn provision(client: Client) -> Result<()> {
    let claims = Api::<PersistentVolumeClaim>::all(client.clone());
    let stream = watcher::watcher(claims, watcher::Config::default()).default_backoff();
    pin_mut!(stream);
    let mut done = BTreeSet::new();
    let mut failures = 0;
    while let Some(event) = stream.next().await {
        failures = if event.is_err() { failures + 1 } else { 0 };
        let claim = match event {
            Ok(Event::Apply(claim) | Event::InitApply(claim)) => claim,
            Err(error) if failures > MAX_FAILURES => return Err(error).context("watching claims"),
            _ => continue,
        };
        let Some(node) = claim.metadata.annotations.as_ref().and_then(|it| it.get(SELECTED_NODE)) else { continue };
        let is_bound =
            claim.spec.as_ref().is_some_and(|spec| spec.volume_name.as_ref().is_some_and(|it| !it.is_empty()));
        let Some(uid) = claim.metadata.uid.clone().filter(|uid| !is_bound && !done.contains(uid)) else { continue };
        let nodes = Api::<Node>::all(client.clone());
        let Some(node) = nodes.get_opt(node).await.context("looking for the node of a volume")? else { continue };
        let volume = volume(&claim, &uid, &node)?;
        match Api::<PersistentVolume>::all(client.clone()).create(&PostParams::default(), &volume).await {
            Ok(_) => drop(done.insert(uid)),
            Err(kube::Error::Api(status)) if status.code == 409 => drop(done.insert(uid)),
            Err(error) => return Err(error).context("making a volume"),
        }
    }
    anyhow::bail!("the watch over claims ended")
}

fn volume(claim: &PersistentVolumeClaim, uid: &str, node: &Node) -> Result<PersistentVolume> {
    let spec = claim.spec.clone().unwrap_or_default();
    let namespace = claim.metadata.namespace.clone().unwrap_or_default();
    let zone = node.metadata.labels.as_ref().and_then(|labels| labels.get(label::ZONE)).cloned().unwrap_or_default();
    let size = spec.resources.as_ref().and_then(|it| it.requests.as_ref()).and_then(|it| it.get("storage")).cloned();
    let seed = Isolation::seed_of(&namespace).map(|seed| seed.to_string()).unwrap_or_default();
    let claim_ref = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        namespace: Some(namespace),
        name: claim.metadata.name.clone(),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    };
    let value = json!({
        "metadata": {
            "name": format!("pvc-{uid}"),
            "labels": {CASE: seed},
            "annotations": {"pv.kubernetes.io/provisioned-by": "ebs.csi.aws.com"},
        },
        "spec": {
            "capacity": {"storage": size},
            "accessModes": spec.access_modes,
            "volumeMode": spec.volume_mode,
            "storageClassName": spec.storage_class_name,
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": claim_ref,
            "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": uid},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": label::ZONE, "operator": "In", "values": [zone]}]},
            ]}},
        },
    });
    serde_json::from_value(value).context("a volume")
}
