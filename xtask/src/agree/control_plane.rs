//! The shared control plane of the cases: without kubelets, with only the controllers that volumes need, and without
//! components that change objects of a case.

use crate::harness::controlplane::{self, ControlPlane};
use crate::harness::process::Guard;
use crate::workspace;
use anyhow::Result;
use kube::Client;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

/// Query limit of scheduler and controllers, high enough that it never delays them.
const QPS: u32 = 5000;

/// Starts the control plane in a folder with a short path.
pub(super) async fn start(guard: &Arc<Guard>, dir: &Path) -> Result<(ControlPlane, Client)> {
    let (root, _) = workspace::folders()?;
    let binary = controlplane::binary(&root, guard)?;
    let scheduler = dir.join("scheduler.yaml");
    std::fs::write(&scheduler, scheduler_configuration(dir))?;
    let flags: Vec<OsString> = [
        format!("-client-qps={QPS}"),
        // Nodes are created ready. Cases have no service accounts, runtime classes or volume finalizers.
        "-apiserver-arg=--disable-admission-plugins=TaintNodesByCondition,ServiceAccount,StorageObjectInUseProtection,RuntimeClass,DefaultStorageClass,DefaultTolerationSeconds".to_owned(),
        "-apiserver-arg=--event-ttl=1m".to_owned(),
        // serviceaccount-controller: the control plane waits for it before it becomes ready.
        "-kcm-arg=--controllers=persistentvolume-binder-controller,ephemeral-volume-controller,serviceaccount-controller".to_owned(),
        format!("-scheduler-arg=--config={}", scheduler.display()),
    ]
    .into_iter()
    .map(OsString::from)
    .collect();
    let control_plane = ControlPlane::start(&binary, &flags, guard, dir)?;
    let client = controlplane::client(&control_plane.kubeconfig).await?;
    Ok((control_plane, client))
}

/// Defaults of kube-scheduler with three changes: no preemption, because a plan adds capacity only by nodes; rejected
/// pods are retried after one second; no query limit.
fn scheduler_configuration(dir: &Path) -> String {
    let kubeconfig = controlplane::data(dir).join("conf/kube-scheduler");
    format!(
        "apiVersion: kubescheduler.config.k8s.io/v1\n\
         kind: KubeSchedulerConfiguration\n\
         leaderElection: {{leaderElect: false}}\n\
         clientConnection: {{kubeconfig: {kubeconfig:?}, qps: {QPS}, burst: {QPS}}}\n\
         podInitialBackoffSeconds: 1\n\
         podMaxBackoffSeconds: 1\n\
         profiles:\n\
         - schedulerName: default-scheduler\n  plugins:\n    postFilter:\n      disabled: [{{name: DefaultPreemption}}]\n"
    )
}
