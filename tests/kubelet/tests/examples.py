"""User data as in a launch template, which tests modify."""

from __future__ import annotations

import base64
import copy
from typing import Any

import yaml

AUTHORITY = b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
SPEC: dict[str, Any] = {
    "cluster": {
        "name": "demo",
        "apiServerEndpoint": "https://127.0.0.1:6443",
        "certificateAuthority": base64.b64encode(AUTHORITY).decode(),
        "cidr": "10.96.0.0/16",
    },
    "instance": {"localStorage": {}},
    "kubelet": {
        "config": {
            "maxPods": 29,
            "clusterDNS": ["10.96.0.10"],
            "registerWithTaints": [
                {"key": "karpenter.sh/unregistered", "effect": "NoExecute"},
                {"key": "team", "value": "a", "effect": "NoSchedule"},
            ],
        },
        "flags": ['--node-labels="eks-team=my-team,karpenter.sh/capacity-type=on-demand,karpenter.sh/nodepool=default"'],
    },
}
FACTS: dict[str, Any] = {
    "InstanceType": "m5.large",
    "VCpuInfo": {"DefaultVCpus": 2},
    "MemoryInfo": {"SizeInMiB": 8192},
    "NetworkInfo": {"MaximumNetworkInterfaces": 3, "Ipv4AddressesPerInterface": 10},
    "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
}
INSTANCE: dict[str, Any] = {
    "instanceId": "i-1",
    "instanceType": "m5.large",
    "region": "us-east-1",
    "zone": "us-east-1a",
    "state": "running",
    "imageId": "ami-1",
    "architecture": "x86_64",
    "privateIp": "10.0.0.4",
    "privateDnsName": "ip-10-0-0-4.ec2.internal",
    "rootGib": 20,
}


def spec(**changes: Any) -> dict[str, Any]:
    """SPEC with some fields set, named by path with `__` for the dots; None removes a field."""
    result = copy.deepcopy(SPEC)
    for path, value in changes.items():
        *above, last = path.split("__")
        place = result
        for key in above:
            place = place[key]
        if value is None:
            del place[last]
        else:
            place[last] = value
    return result


def mime(*parts: tuple[str, str]) -> str:
    """(content type, text) parts, as base64."""
    lines = ["MIME-Version: 1.0", 'Content-Type: multipart/mixed; boundary="//"', ""]
    for kind, text in parts:
        lines += ["--//", f"Content-Type: {kind}", "", text]
    lines.append("--//--")
    return base64.b64encode("\n".join(lines).encode()).decode()


def user_data(**changes: Any) -> str:
    """A user's shell part and a NodeConfig, as base64."""
    document = {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec(**changes)}
    return mime(("text/x-shellscript", "#!/bin/sh\necho hello"), ("application/node.eks.aws", yaml.safe_dump(document)))
