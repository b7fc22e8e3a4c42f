//! The permissions of deploy/kubernetes, checked by the API server for each account.

use super::super::{Context, Figure};
use crate::harness::cluster::NAMESPACE;
use crate::harness::world::World;
use anyhow::{Result, ensure};
use std::process::Command;

/// Service, verb, resource, namespace ("" = cluster), and whether it is granted.
type Case = (&'static str, &'static str, &'static str, &'static str, bool);

const CASES: &[Case] = &[
    ("watcher", "watch", "pods", "", true),
    ("watcher", "list", "nodeclaims.karpenter.sh", "", true),
    ("watcher", "watch", "ec2nodeclasses.karpenter.k8s.aws", "", true),
    ("watcher", "watch", "capacitybuffers.autoscaling.x-k8s.io", "", true),
    ("watcher", "watch", "capacityquotas.autoscaling.x-k8s.io", "", true),
    ("actuator", "watch", "capacityquotas.autoscaling.x-k8s.io", "", true),
    ("actuator", "patch", "capacityquotas.autoscaling.x-k8s.io/x --subresource=status", "", true),
    ("actuator", "patch", "capacityquotas.autoscaling.x-k8s.io", "", false),
    ("actuator", "patch", "capacitybuffers.autoscaling.x-k8s.io/x --subresource=status", "default", true),
    ("actuator", "list", "capacitybuffers.autoscaling.x-k8s.io", "", false),
    ("actuator", "update", "nodepools.karpenter.sh/x --subresource=finalizers", "", true),
    ("actuator", "update", "nodeclaims.karpenter.sh/x --subresource=finalizers", "", true),
    ("actuator", "update", "nodeclaims.karpenter.sh", "", false),
    ("actuator", "list", "volumeattachments.storage.k8s.io", "", true),
    ("actuator", "get", "persistentvolumeclaims", "default", true),
    ("actuator", "list", "persistentvolumes", "", false),
    ("actuator", "list", "deployments.apps", "", false),
    ("actuator", "patch", "nodeoverlays.karpenter.sh/x --subresource=status", "", true),
    ("watcher", "patch", "capacitybuffers.autoscaling.x-k8s.io/x --subresource=status", "default", false),
    ("watcher", "watch", "podtemplates", "", true),
    ("watcher", "watch", "deployments.apps", "", true),
    ("watcher", "list", "jobs.batch", "", true),
    ("watcher", "watch", "csinodes.storage.k8s.io", "", true),
    ("watcher", "watch", "persistentvolumes", "", true),
    ("watcher", "patch", "persistentvolumeclaims", "", false),
    ("watcher", "get", "leases.coordination.k8s.io/plimsoll-watcher", NAMESPACE, true),
    ("watcher", "get", "leases.coordination.k8s.io/plimsoll-actuator", NAMESPACE, false),
    ("watcher", "list", "leases.coordination.k8s.io", NAMESPACE, false),
    ("watcher", "update", "leases.coordination.k8s.io/plimsoll-watcher", NAMESPACE, true),
    ("watcher", "update", "leases.coordination.k8s.io/plimsoll-actuator", NAMESPACE, false),
    ("watcher", "create", "leases.coordination.k8s.io", NAMESPACE, true),
    ("watcher", "create", "leases.coordination.k8s.io", "kube-system", false),
    ("watcher", "patch", "nodes", "", false),
    ("watcher", "create", "nodeclaims.karpenter.sh", "", false),
    ("watcher", "patch", "nodepools.karpenter.sh", "", false),
    ("watcher", "create", "events", "default", false),
    ("watcher", "get", "secrets", NAMESPACE, false),
    ("watcher", "get", "configmaps", NAMESPACE, false),
    ("scheduler", "get", "pods", "default", false),
    ("scheduler", "list", "nodes", "", false),
    ("scheduler", "list", "nodepools.karpenter.sh", "", false),
    ("scheduler", "get", "leases.coordination.k8s.io", NAMESPACE, false),
    ("actuator", "create", "nodeclaims.karpenter.sh", "", true),
    ("actuator", "patch", "nodeclaims.karpenter.sh/x --subresource=status", "", true),
    ("actuator", "patch", "nodepools.karpenter.sh/x --subresource=status", "", true),
    ("actuator", "create", "nodepools.karpenter.sh", "", false),
    ("actuator", "delete", "nodepools.karpenter.sh", "", false),
    ("actuator", "delete", "ec2nodeclasses.karpenter.k8s.aws", "", false),
    ("actuator", "create", "pods --subresource=eviction", "default", true),
    ("actuator", "delete", "pods", "default", true),
    ("actuator", "create", "pods", "default", false),
    ("actuator", "patch", "pods/x --subresource=status", "default", true),
    ("actuator", "create", "pods --subresource=binding", "default", false),
    ("actuator", "patch", "pods", "default", false),
    ("watcher", "patch", "pods/x --subresource=status", "default", false),
    ("actuator", "delete", "nodes", "", true),
    ("actuator", "create", "nodes", "", false),
    ("actuator", "create", "events", "default", true),
    ("actuator", "get", "servicecidrs.networking.k8s.io/kubernetes", "", true),
    ("actuator", "get", "services/kube-dns", "kube-system", true),
    ("actuator", "get", "services", "kube-system", false),
    ("actuator", "get", "leases.coordination.k8s.io/karpenter-leader-election", "kube-system", true),
    ("actuator", "update", "leases.coordination.k8s.io/karpenter-leader-election", "kube-system", false),
    ("actuator", "get", "leases.coordination.k8s.io/plimsoll-watcher", NAMESPACE, true),
    ("actuator", "update", "leases.coordination.k8s.io/plimsoll-watcher", NAMESPACE, false),
    ("actuator", "update", "leases.coordination.k8s.io/plimsoll-actuator", NAMESPACE, true),
    ("actuator", "create", "configmaps", NAMESPACE, true),
    ("actuator", "get", "configmaps/plimsoll-discovered-memory", NAMESPACE, true),
    ("actuator", "patch", "configmaps/plimsoll-discovered-memory", NAMESPACE, true),
    ("actuator", "get", "configmaps/other", NAMESPACE, false),
    ("actuator", "patch", "configmaps/other", NAMESPACE, false),
    ("actuator", "create", "configmaps", "kube-system", false),
    ("actuator", "get", "configmaps/plimsoll-discovered-memory", "kube-system", false),
    ("actuator", "get", "secrets", "kube-system", false),
    ("actuator", "delete", "deployments.apps", "default", false),
];

pub(super) fn play(_: &Context, world: &mut World) -> Result<Vec<Figure>> {
    let mut wrong = Vec::new();
    for case in CASES {
        if granted(world, case)? != case.4 {
            wrong.push(format!(
                "{} {} {} {} is {}granted",
                case.0,
                case.1,
                case.2,
                case.3,
                if case.4 { "not " } else { "" }
            ));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    Ok(vec![("questions answered as they must", CASES.len().to_string())])
}

/// `kubectl auth can-i` exits with 1 for no and for errors, which have another output than "no".
fn granted(world: &World, (service, verb, what, namespace, _): &Case) -> Result<bool> {
    let mut command = Command::new("kubectl");
    command.arg("--kubeconfig").arg(&world.cluster.kubeconfig).args(["auth", "can-i", verb]).args(what.split(' '));
    command.arg(format!("--as=system:serviceaccount:{NAMESPACE}:plimsoll-{service}"));
    command.arg(if namespace.is_empty() { "--all-namespaces".to_owned() } else { format!("--namespace={namespace}") });
    let output = command.output()?;
    let answer = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    ensure!(
        answer == "yes" || answer.starts_with("no"),
        "can-i {verb} {what}: {answer}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(answer == "yes")
}
