"""Generates random valid EC2NodeClasses and NodePools that use each field of their schemas: test_generated.py checks
that. A class is valid if the schema allows it and EC2's documents do not exclude it. For example, a volume of type io1
has iops."""

from __future__ import annotations

import random
from typing import Any

LINUX = ["AL2", "AL2023", "Bottlerocket", "Custom"]
WINDOWS = ["Windows2019", "Windows2022", "Windows2025"]
OWN_TEXT = {
    "AL2": ["#!/bin/sh\ntrue\n", "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"B\"\n\n--B\n\nhello\n--B--\n"],
    "AL2023": ["#!/bin/sh\ntrue\n", "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\n", "{\"kind\": \"NodeConfig\"}"],
    "Bottlerocket": ["[settings.motd]\n", "[settings.kubernetes]\nmax-pods = 5\n"],
    "Custom": ["anything", "x" * 16_384],
}
# Minimum volume sizes of EC2 in GiB.
SIZES = {"gp3": ["1Gi", "100Gi", "59000Gi", "64T"], "gp2": ["1Gi", "500G"], "io1": ["4Gi", "1Ti"], "io2": ["4Gi", "58Ti"],
         "st1": ["125Gi", "1T"], "sc1": ["125Gi"], "standard": ["1Gi", "1000Gi"]}
ALIASES = {"AL2": "al2@v20240807", "AL2023": "al2023@latest", "Bottlerocket": "bottlerocket@v1.45.0"}


class Draw(random.Random):
    """A random generator with domain methods."""

    def maybe(self, make, share=0.5):
        return make() if self.random() < share else None

    def switch(self) -> bool:
        return self.random() < 0.5

    def enabled(self) -> str:
        return self.choice(["enabled", "disabled"])


def present(**members: Any) -> dict[str, Any]:
    return {key: value for key, value in members.items() if value is not None}


def volume(draw: Draw) -> dict[str, Any]:
    kind = draw.choice(list(SIZES))
    snapshot = draw.maybe(lambda: f"snap-{draw.randrange(10)}")
    key = draw.maybe(lambda: "alias/key")
    iops = {"gp3": draw.maybe(lambda: draw.randint(3_000, 16_000)), "io1": draw.randint(100, 64_000),
            "io2": draw.randint(100, 256_000)}.get(kind)
    return present(
        volumeSize=draw.choice(SIZES[kind]) if snapshot is None else draw.maybe(lambda: draw.choice(SIZES[kind])),
        volumeType=kind, snapshotID=snapshot, iops=iops, kmsKeyID=key,
        throughput=draw.maybe(lambda: draw.randint(125, 1_000)) if kind == "gp3" else None,
        encrypted=True if key else draw.maybe(draw.switch), deleteOnTermination=draw.maybe(draw.switch),
        volumeInitializationRate=draw.maybe(lambda: draw.randint(100, 300)) if snapshot else None,
    )


def volumes(draw: Draw) -> list[dict[str, Any]]:
    count = draw.randint(1, 3)
    root = draw.randrange(count)
    return [present(deviceName=f"/dev/xvd{letter}", ebs=volume(draw), rootVolume=draw.maybe(lambda: number == root))
            for number, letter in enumerate("abc"[:count])]


def interfaces(draw: Draw) -> list[dict[str, Any]]:
    first = {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}
    more = [{"networkCardIndex": 0, "deviceIndex": 1, "interfaceType": "efa-only"},
            {"networkCardIndex": 0, "deviceIndex": 2, "interfaceType": "interface"}]
    return [first, *more[:draw.randint(0, 2)]]


def image_terms(draw: Draw, family: str) -> tuple[list[dict[str, Any]], bool]:
    """The terms, and whether they contain the family."""
    if family in WINDOWS:
        return [{"alias": f"{family.lower()}@latest"}], True
    if family in ALIASES and draw.switch():
        return [{"alias": ALIASES[family]}], True
    terms = [{"id": "ami-0123456789abcdef0"}, {"name": "own-*", "owner": "self"}, {"tags": {"team": "*"}},
             {"tags": {"a": "b"}, "name": "own", "owner": "123456789012"}, {"ssmParameter": "/own/image"}]
    return draw.sample(terms, draw.randint(1, 3)), False


def kubelet(draw: Draw, family: str) -> dict[str, Any]:
    soft = draw.maybe(lambda: {"memory.available": "10%"})
    low = draw.maybe(lambda: draw.randint(1, 50))
    return present(
        maxPods=draw.maybe(lambda: draw.randint(10, 200)), clusterDNS=draw.maybe(lambda: ["10.0.0.9"]),
        podsPerCore=draw.maybe(lambda: draw.randint(5, 30)) if family != "Bottlerocket" else None,
        systemReserved=draw.maybe(lambda: {"cpu": "100m", "memory": "100Mi", "ephemeral-storage": "1Gi", "pid": "100"}),
        kubeReserved=draw.maybe(lambda: {"cpu": "200m", "memory": "200Mi"}),
        evictionHard=draw.maybe(lambda: {"memory.available": draw.choice(["5%", "200Mi"]), "nodefs.inodesFree": "5%"}),
        evictionSoft=soft, evictionSoftGracePeriod=soft and {"memory.available": "1m30s"},
        evictionMaxPodGracePeriod=draw.maybe(lambda: draw.randint(0, 600)), imageGCLowThresholdPercent=low,
        imageGCHighThresholdPercent=low and draw.randint(low + 1, 100), cpuCFSQuota=draw.maybe(draw.switch),
        topologyManagerPolicy=draw.maybe(lambda: "best-effort") if family == "AL2023" else None,
    )


def tags(draw: Draw) -> dict[str, str]:
    most = draw.choice([3, 40])
    return {f"k{number}" + "é" * draw.randint(0, 100): "v" * draw.randint(0, 256) for number in range(draw.randint(1, most))}


def node_class(draw: Draw, name: str, family: str) -> dict[str, Any]:
    terms, named = image_terms(draw, family)
    own_interfaces = draw.maybe(lambda: interfaces(draw), 0.3)
    text = OWN_TEXT.get(family, ["Write-Host 'own'\n"])
    identity = draw.choice([{"role": "node"}, {"instanceProfile": "own"}])
    spec = present(
        **identity, amiFamily=family if not named else draw.maybe(lambda: draw.choice([family, "Custom"])), amiSelectorTerms=terms,
        subnetSelectorTerms=draw.sample([{"id": "subnet-0a"}, {"tags": {"a": "b", "c": "*"}}], draw.randint(1, 2)),
        securityGroupSelectorTerms=draw.sample([{"id": "sg-0a"}, {"tags": {"a": "b"}}, {"name": "own"}], draw.randint(1, 3)),
        capacityReservationSelectorTerms=draw.maybe(lambda: draw.sample(
            [{"id": "cr-0a"}, {"tags": {"a": "*"}, "ownerID": "123456789012"}, {"instanceMatchCriteria": draw.choice(["open", "targeted"])}],
            draw.randint(1, 2)), 0.2),
        placementGroupSelector=draw.maybe(lambda: draw.choice([{"name": "own"}, {"id": "pg-0a"}]), 0.2),
        userData=draw.maybe(lambda: draw.choice(text)), tags=draw.maybe(lambda: tags(draw)),
        associatePublicIPAddress=draw.maybe(lambda: draw.switch() and len(own_interfaces or []) < 2),
        ipPrefixCount=draw.maybe(lambda: draw.randint(0, 9)), networkInterfaces=own_interfaces,
        blockDeviceMappings=draw.maybe(lambda: volumes(draw)), instanceStorePolicy=draw.maybe(lambda: "RAID0"),
        detailedMonitoring=draw.maybe(draw.switch), context=draw.maybe(lambda: "context"),
        kubelet=draw.maybe(lambda: kubelet(draw, family)) if family != "Custom" else None,
        connectionTracking=draw.maybe(lambda: {
            **present(udpStreamTimeout=draw.maybe(lambda: draw.randint(60, 180)), udpTimeout=draw.maybe(lambda: draw.randint(30, 60))),
            "tcpEstablishedTimeout": draw.randint(60, 432_000)}),
        cpuOptions=draw.maybe(lambda: {"nestedVirtualization": draw.enabled()}, 0.2),
        metadataOptions=draw.maybe(lambda: present(
            httpEndpoint=draw.maybe(draw.enabled), httpProtocolIPv6=draw.maybe(draw.enabled),
            httpTokens=draw.maybe(lambda: draw.choice(["required", "optional"])),
            httpPutResponseHopLimit=draw.maybe(lambda: draw.randint(1, 64)))),
    )
    return {"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": name}, "spec": spec}


def requirements(draw: Draw, windows: bool) -> list[dict[str, Any]]:
    aws = "karpenter.k8s.aws/"
    capacity = [["spot"], ["on-demand"], ["spot", "on-demand"]]
    found = [
        {"key": aws + "instance-category", "operator": "In", "values": draw.sample(["c", "m", "r", "t"], 3)},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": draw.choice(capacity)},
    ]
    others = [
        {"key": aws + "instance-generation", "operator": "Gt", "values": ["2"]},
        {"key": aws + "instance-cpu", "operator": "Lt", "values": ["65"]},
        {"key": aws + "instance-memory", "operator": "Gte", "values": ["4096"]},
        {"key": aws + "instance-family", "operator": "Exists", "minValues": draw.randint(1, 5)},
        {"key": aws + "instance-size", "operator": "NotIn", "values": ["metal", "nano"]},
        {"key": aws + "instance-gpu-count", "operator": "DoesNotExist"},
        {"key": aws + "instance-tenancy", "operator": "In", "values": draw.choice([["default"], ["dedicated"]])},
        {"key": "example.com/team", "operator": "In", "values": ["a", "b"]},
    ]
    found += draw.sample(others, draw.randint(0, 4))
    if windows:
        found.append({"key": "kubernetes.io/os", "operator": "In", "values": ["windows"]})
    return found


def taints(draw: Draw, prefix: str) -> list[dict[str, Any]]:
    effects = ["NoSchedule", "NoExecute", "PreferNoSchedule"]
    return [present(key=f"{prefix}{number}", effect=draw.choice(effects), value=draw.maybe(lambda: draw.choice(["a", "true", "1e3"])),
                    timeAdded=draw.maybe(lambda: "2026-01-02T03:04:05Z", 0.1))
            for number in range(draw.randint(1, 3))]


def node_pool(draw: Draw, name: str, windows: bool) -> dict[str, Any]:
    replicas = draw.maybe(lambda: draw.randint(1, 3), 0.1)
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": name}
    budget = lambda: {"nodes": draw.choice(["10%", "1"]), "schedule": "0 9 * * 1-5", "duration": "8h", "reasons": ["Drifted", "Empty"]}
    template = {
        "metadata": present(labels=draw.maybe(lambda: {"example.com/own": f"t{draw.randint(0, 9)}"}),
                            annotations=draw.maybe(lambda: {"example.com/note": "own"})),
        "spec": present(
            nodeClassRef=reference, requirements=requirements(draw, windows), taints=draw.maybe(lambda: taints(draw, "t")),
            startupTaints=draw.maybe(lambda: taints(draw, "s")), expireAfter=draw.maybe(lambda: draw.choice(["720h", "Never"])),
            terminationGracePeriod=draw.maybe(lambda: "1h")),
    }
    spec = present(
        template=template, replicas=replicas, weight=draw.maybe(lambda: draw.randint(1, 100)) if replicas is None else None,
        limits=draw.maybe(lambda: {"nodes": "50"} if replicas else {"cpu": "1000", "memory": "4000Gi"}),
        disruption=draw.maybe(lambda: present(
            consolidateAfter="5m", consolidationPolicy=draw.choice(["WhenEmpty", "WhenEmptyOrUnderutilized"]),
            budgets=draw.maybe(lambda: [budget()]))),
    )
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec}


def pods(draw: Draw, cls: dict[str, Any]) -> dict[str, Any]:
    """Number of pods, and their requests."""
    requests = {"cpu": draw.choice(["100m", "1", "4"]), "memory": draw.choice(["256Mi", "4Gi"])}
    # EC2 assigns no public address to instances with several interfaces.
    if draw.random() < 0.1 and not cls["spec"].get("associatePublicIPAddress"):
        requests["vpc.amazonaws.com/efa"] = "1"
    return {"replicas": draw.randint(1, 20), "requests": requests, "limits": requests}


def case(seed: str, name: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """A class with this name, its pool, and pods."""
    draw = Draw(seed)
    family = draw.choice([*LINUX, *LINUX, *WINDOWS])
    cls = node_class(draw, name, family)
    return cls, node_pool(draw, name, family in WINDOWS), pods(draw, cls)
