"""Capacity and allocatable of a node from EC2's description of its type, independent of Plimsoll's catalog, which is
under test."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

# Memory of firmware, hypervisor and kernel, which the kubelet does not see: 4 to 6 % on real nodes.
MEMORY_LOST = 0.06
# Defaults of the kubelet.
EVICTION_MEMORY = "100Mi"
EVICTION_NODEFS_SHARE = 0.10
_UNITS = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


@dataclass
class Node:
    """Kubernetes resource lists."""

    capacity: dict[str, str]
    allocatable: dict[str, str]


def resources(facts: dict[str, Any], max_pods: int, root_gib: int, config: Any) -> Node:
    """`facts` is one item of DescribeInstanceTypes, `config` a NodeConfig."""
    millis = facts["VCpuInfo"]["DefaultVCpus"] * 1000
    memory = int(facts["MemoryInfo"]["SizeInMiB"] * 2**20 * (1 - MEMORY_LOST))
    disk = root_gib * 2**30
    if config.raid0 and "InstanceStorageInfo" in facts:
        disk = facts["InstanceStorageInfo"]["TotalSizeInGB"] * 10**9
    kube = config.kube_reserved
    if kube is None:
        kube = {"cpu": f"{_reserved_millis(millis)}m", "memory": f"{11 * _eni_pods(facts) + 255}Mi", "ephemeral-storage": "1Gi"}
    system = config.system_reserved
    eviction = eviction_memory(config.eviction_hard.get("memory.available", EVICTION_MEMORY), memory)
    free_millis = millis - _millis(kube.get("cpu", "0")) - _millis(system.get("cpu", "0"))
    free_memory = memory - quantity(kube.get("memory", "0")) - quantity(system.get("memory", "0")) - eviction
    free_disk = int(disk * (1 - EVICTION_NODEFS_SHARE)) - quantity(kube.get("ephemeral-storage", "0"))
    more = {"pods": str(max_pods), **_devices(facts)}
    return Node(
        capacity={"cpu": str(millis // 1000), "memory": f"{memory // 1024}Ki", "ephemeral-storage": f"{disk // 1024}Ki", **more},
        allocatable={
            "cpu": f"{free_millis}m",
            "memory": f"{free_memory // 1024}Ki",
            "ephemeral-storage": str(max(0, free_disk)),
            **more,
        },
    )


def quantity(text: str) -> int:
    """Bytes of a Kubernetes quantity."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|T|)", text)
    if not found:
        raise ValueError(f"{text!r} is not a quantity")
    return int(float(found[1]) * _UNITS[found[2]])


def eviction_memory(threshold: str, memory: int) -> int:
    """An amount, or a percentage of the memory."""
    if threshold.endswith("%"):
        return int(memory * float(threshold[:-1]) / 100)
    return quantity(threshold)


def _millis(text: str) -> int:
    return int(text[:-1]) if text.endswith("m") else int(float(text) * 1000)


def _reserved_millis(millis: int) -> int:
    """AL2023's rule: 6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of the rest."""
    total, steps = 0.0, ((1000, 0.06), (1000, 0.01), (2000, 0.005), (millis, 0.0025))
    left = millis
    for width, share in steps:
        part = min(left, width)
        total += part * share
        left -= part
    return int(total)


def _eni_pods(facts: dict[str, Any]) -> int:
    """The primary address of each interface is reserved; two pods use the host's network."""
    network = facts["NetworkInfo"]
    return network["MaximumNetworkInterfaces"] * (network["Ipv4AddressesPerInterface"] - 1) + 2


def _devices(facts: dict[str, Any]) -> dict[str, str]:
    """Resources that device plugins would add."""
    found: dict[str, str] = {}
    for gpu in facts.get("GpuInfo", {}).get("Gpus", []):
        name = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu", "Habana": "habana.ai/gaudi"}.get(gpu["Manufacturer"])
        if name:
            found[name] = str(int(found.get(name, "0")) + gpu["Count"])
    neurons = facts.get("NeuronInfo", {}).get("NeuronDevices", [])
    if neurons:
        found["aws.amazon.com/neuron"] = str(sum(d["Count"] for d in neurons))
        found["aws.amazon.com/neuroncore"] = str(sum(d["Count"] * d["CoreInfo"]["Count"] for d in neurons))
    return found
