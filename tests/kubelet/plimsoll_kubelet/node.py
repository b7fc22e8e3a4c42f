"""The Node that a kubelet on the instance would register, and checks of its user data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from plimsoll_kubelet import capacity
from plimsoll_kubelet.userdata import BadUserData, NodeConfig

KUBELET_VERSION = "v1.36.3"
# kwok keeps a node with this annotation alive, and runs its pods.
KWOK = {"kwok.x-k8s.io/node": "fake"}
ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64"}


@dataclass
class Expected:
    """Settings that every node of this cluster must get."""

    cluster_name: str
    endpoint: str
    certificate_authority: bytes
    service_cidr: str
    # As key:effect. The node must register with these taints, or pods run there too early.
    taints: tuple[str, ...]


def check(config: NodeConfig, expected: Expected) -> None:
    """A node with other settings would join another cluster, or none."""
    for field, got, want in (
        ("spec.cluster.name", config.cluster_name, expected.cluster_name),
        ("spec.cluster.apiServerEndpoint", config.endpoint, expected.endpoint),
        ("spec.cluster.cidr", config.cidr, expected.service_cidr),
    ):
        if got != want:
            raise BadUserData(f"{field}: {got!r}, but the cluster's is {want!r}")
    if config.certificate_authority.strip() != expected.certificate_authority.strip():
        raise BadUserData("spec.cluster.certificateAuthority: not the cluster's")
    have = {f"{t['key']}:{t['effect']}" for t in config.taints}
    for taint in expected.taints:
        if taint not in have:
            raise BadUserData(f"spec.kubelet.config.registerWithTaints: {taint} is missing")


def build(instance: dict[str, Any], facts: dict[str, Any], zone_id: str, config: NodeConfig) -> dict[str, Any]:
    """`instance` is one item of GET /_instances with its user data, `facts` one of DescribeInstanceTypes."""
    if instance["architecture"] not in facts["ProcessorInfo"]["SupportedArchitectures"]:
        raise BadUserData(f"image {instance['imageId']} is for {instance['architecture']}, which {instance['instanceType']} cannot boot")
    name, zone, region = instance["privateDnsName"], instance["zone"], instance["region"]
    arch = ARCHITECTURES[instance["architecture"]]
    found = capacity.resources(facts, config.max_pods, instance["rootGib"], config)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": dict(KWOK),
            "labels": {
                **config.labels,
                "beta.kubernetes.io/arch": arch,
                "beta.kubernetes.io/os": "linux",
                "kubernetes.io/arch": arch,
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": instance["instanceType"],
                "topology.k8s.aws/zone-id": zone_id,
                "topology.kubernetes.io/region": region,
                "topology.kubernetes.io/zone": zone,
            },
        },
        "spec": {"providerID": f"aws:///{zone}/{instance['instanceId']}", "taints": config.taints},
        "status": {
            "capacity": found.capacity,
            "allocatable": found.allocatable,
            "addresses": [
                {"type": "InternalIP", "address": instance["privateIp"]},
                {"type": "InternalDNS", "address": name},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": {
                "architecture": arch,
                "bootID": "",
                "containerRuntimeVersion": "containerd://2.2.1",
                "kernelVersion": "6.12.0",
                "kubeProxyVersion": "",
                "kubeletVersion": KUBELET_VERSION,
                "machineID": instance["instanceId"],
                "operatingSystem": "linux",
                "osImage": "Amazon Linux 2023",
                "systemUUID": instance["instanceId"],
            },
        },
    }


