"""Runs `plimsoll requests` on objects."""

from __future__ import annotations

import base64
import copy
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
PLIMSOLL = os.environ.get("PLIMSOLL", str(ROOT / "target/debug/plimsoll"))

FACTS = {
    "cluster": {
        "name": "shop", "endpoint": "https://shop.example", "certificateAuthority": "Y2E=", "version": "1.36",
        "serviceCIDR": "10.100.0.0/16", "dnsAddress": "10.100.0.10",
    },
    "nodeClasses": {
        "default": {
            "subnets": [{"id": "subnet-0a1", "zone": "us-east-1a"}, {"id": "subnet-0b1", "zone": "us-east-1b"}],
            "securityGroups": [{"id": "sg-2"}, {"id": "sg-1"}],
            "amis": [{"id": "ami-0a1", "name": "image"}],
            "instanceProfile": "shop-nodes",
            "placementGroup": {"id": "pg-0a", "name": "own", "strategy": "cluster"},
        },
    },
}


def deployment(replicas: int = 1, spec: dict[str, Any] | None = None) -> dict[str, Any]:
    container = {"name": "app", "image": "example", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container], **(spec or {})}},
        },
    }


def pool(instance_type: str = "m5.xlarge", **template: Any) -> dict[str, Any]:
    requirement = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [instance_type]}
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    spec = {"nodeClassRef": reference, "requirements": [requirement, *template.pop("requirements", [])]}
    spec.update(template.pop("spec", {}))
    return {
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
        "spec": {"template": {"spec": spec, **template}},
    }


def node_class(**spec: Any) -> dict[str, Any]:
    base = {
        "amiFamily": "AL2023", "amiSelectorTerms": [{"alias": "al2023@latest"}], "role": "node",
        "subnetSelectorTerms": [{"tags": {"a": "b"}}], "securityGroupSelectorTerms": [{"tags": {"a": "b"}}],
    }
    spec = {key: value for key, value in {**base, **spec}.items() if value is not None}
    return {"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"}, "spec": spec}


def run(objects: list[dict[str, Any]], facts: dict[str, Any] | None = None, *arguments: str):
    """Status, stdout and stderr for these objects as manifests."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "facts.yaml")
        path.write_text(json.dumps(FACTS if facts is None else facts))
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        command = [PLIMSOLL, "requests", "-f", "-", "--cluster", str(path), *arguments]
        # Bytes, because text mode would convert CR LF to LF.
        done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=60)
        return done.returncode, done.stdout.decode(), done.stderr.decode()


def printed(objects: list[dict[str, Any]], facts: dict[str, Any] | None, *arguments: str) -> str:
    status, stdout, stderr = run(objects, facts, *arguments)
    if status != 0:
        raise AssertionError(stderr)
    return stdout


def requests(objects: list[dict[str, Any]], facts: dict[str, Any] | None = None, *arguments: str) -> dict[str, Any]:
    return json.loads(printed(objects, facts, *arguments))


def of_classes(cases: dict[str, list[dict[str, Any]]], facts: dict[str, Any] | None = None) -> dict[str, dict[str, Any]]:
    """Launches by case, with class, pool and other objects. The cases have separate names and pods, and share a single
    run."""
    objects, known = [], copy.deepcopy(FACTS if facts is None else facts)
    for name, (cls, its_pool, *others) in cases.items():
        cls, its_pool = copy.deepcopy(cls), copy.deepcopy(its_pool)
        cls["metadata"]["name"] = its_pool["metadata"]["name"] = name
        its_pool["spec"]["template"]["spec"]["nodeClassRef"]["name"] = name
        chosen = deployment(spec={"nodeSelector": {"karpenter.sh/nodepool": name}, "tolerations": [{"operator": "Exists"}]})
        chosen["metadata"]["name"] = name
        objects += [cls, its_pool, *(others or [chosen])]
        known["nodeClasses"][name] = FACTS["nodeClasses"]["default"]
    del known["nodeClasses"]["default"]
    launches = {launch["nodePool"]: launch for launch in requests(objects, known)["launches"]}
    if set(launches) != set(cases):
        raise AssertionError(f"no launch: {set(cases) - set(launches)}")
    return launches


def texts_of_classes(cases: dict[str, list[dict[str, Any]]], facts: dict[str, Any] | None = None) -> dict[str, str]:
    """User data of each case, which has a single launch template."""
    def text(launch):
        (template,) = launch["createLaunchTemplate"]
        return base64.b64decode(template["LaunchTemplateData"]["UserData"]).decode()

    return {name: text(launch) for name, launch in of_classes(cases, facts).items()}


def user_data(objects: list[dict[str, Any]], facts: dict[str, Any] | None = None) -> str:
    return printed(objects, facts, "--user-data")
