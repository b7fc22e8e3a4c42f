"""Decodes an instance's user data like AL2023's nodeadm and the kubelet, and rejects what they would reject."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from typing import Any

import yaml

# EC2's limit for the decoded user data.
USER_DATA_BYTES_MAX = 16_384
NODE_CONFIG_TYPE = "application/node.eks.aws"
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
# Labels of kubernetes.io and k8s.io that --node-labels may set; the kubelet does not start with others.
KUBELET_LABELS = {
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
}
KUBELET_LABEL_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


class BadUserData(ValueError):
    """The node would not start; the message names the part and the field."""


@dataclass
class NodeConfig:
    """Output of nodeadm for the kubelet."""

    cluster_name: str
    endpoint: str
    certificate_authority: bytes
    cidr: str
    max_pods: int
    labels: dict[str, str] = field(default_factory=dict)
    taints: list[dict[str, str]] = field(default_factory=list)
    kube_reserved: dict[str, str] | None = None
    system_reserved: dict[str, str] = field(default_factory=dict)
    eviction_hard: dict[str, str] = field(default_factory=dict)
    raid0: bool = False


def decode(encoded: str) -> NodeConfig:
    """Decodes the base64 user data of the launch template."""
    try:
        text = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadUserData(f"not base64: {error}") from error
    if not text:
        raise BadUserData("empty")
    if len(text) > USER_DATA_BYTES_MAX:
        raise BadUserData(f"{len(text)} bytes, EC2 takes {USER_DATA_BYTES_MAX}")
    merged: dict[str, Any] = {}
    for index, document in enumerate(_documents(text)):
        where = f"NodeConfig {index}"
        if not isinstance(document, dict):
            raise BadUserData(f"{where}: not a YAML mapping")
        kind = (document.get("apiVersion"), document.get("kind"))
        if kind != ("node.eks.aws/v1alpha1", "NodeConfig"):
            raise BadUserData(f"{where}: apiVersion and kind are {kind}")
        merged = _merge(merged, document.get("spec") or {})
    if not merged:
        raise BadUserData(f"no part of type {NODE_CONFIG_TYPE}")
    return _node_config(merged)


def _documents(text: bytes) -> list[Any]:
    """The NodeConfigs in order: parts of a MIME message, or the whole user data."""
    if b"mime-version:" not in text[:1024].lower() and b"content-type:" not in text[:1024].lower():
        return [_yaml("user data", text)]
    message = message_from_bytes(text, policy=policy.default)
    if not message.is_multipart():
        raise BadUserData("a MIME message, but not multipart")
    if message.defects:
        raise BadUserData(f"broken MIME: {message.defects[0]}")
    found = []
    for part in message.iter_parts():
        if part.get_content_type() == NODE_CONFIG_TYPE:
            found.append(_yaml("NodeConfig part", part.get_payload(decode=True)))
    return found


def _yaml(where: str, text: bytes) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadUserData(f"{where}: not YAML: {error}") from error


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Later documents take precedence; maps are merged, lists replaced."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        result[key] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result


def _text(where: dict[str, Any], path: str, key: str) -> str:
    value = where.get(key)
    if not isinstance(value, str) or not value:
        raise BadUserData(f"{path}.{key}: must be a string, not {value!r}")
    return value


def _map(value: Any, path: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
        raise BadUserData(f"{path}: must be a map of strings, not {value!r}")
    return value


def _node_config(spec: dict[str, Any]) -> NodeConfig:
    cluster = spec.get("cluster") or {}
    authority = _text(cluster, "spec.cluster", "certificateAuthority")
    try:
        pem = base64.b64decode(authority, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadUserData(f"spec.cluster.certificateAuthority: not base64: {error}") from error
    cidr = _text(cluster, "spec.cluster", "cidr")
    try:
        ipaddress.ip_network(cidr)
    except ValueError as error:
        raise BadUserData(f"spec.cluster.cidr: {error}") from error
    kubelet = spec.get("kubelet") or {}
    config = kubelet.get("config") or {}
    max_pods = config.get("maxPods")
    if not isinstance(max_pods, int) or isinstance(max_pods, bool) or max_pods < 1:
        raise BadUserData(f"spec.kubelet.config.maxPods: a positive number is needed, not {max_pods!r}")
    storage = ((spec.get("instance") or {}).get("localStorage") or {}).get("strategy")
    reserved = config.get("kubeReserved")
    result = NodeConfig(
        cluster_name=_text(cluster, "spec.cluster", "name"),
        endpoint=_text(cluster, "spec.cluster", "apiServerEndpoint"),
        certificate_authority=pem,
        cidr=cidr,
        max_pods=max_pods,
        kube_reserved=None if reserved is None else _map(reserved, "spec.kubelet.config.kubeReserved"),
        system_reserved=_map(config.get("systemReserved") or {}, "spec.kubelet.config.systemReserved"),
        eviction_hard=_map(config.get("evictionHard") or {}, "spec.kubelet.config.evictionHard"),
        raid0=storage == "RAID0",
        taints=_taints(config.get("registerWithTaints") or []),
    )
    for address in config.get("clusterDNS") or []:
        try:
            ipaddress.ip_address(address)
        except ValueError as error:
            raise BadUserData(f"spec.kubelet.config.clusterDNS: {error}") from error
    for flag in kubelet.get("flags") or []:
        _flag(result, flag)
    return result


def _taints(values: Any) -> list[dict[str, str]]:
    path = "spec.kubelet.config.registerWithTaints"
    if not isinstance(values, list):
        raise BadUserData(f"{path}: a list is needed, not {values!r}")
    seen = set()
    for index, taint in enumerate(values):
        if not isinstance(taint, dict) or not taint.get("key") or taint.get("effect") not in EFFECTS:
            raise BadUserData(f"{path}[{index}]: key and effect are needed, not {taint!r}")
        if set(taint) - {"key", "value", "effect"}:
            raise BadUserData(f"{path}[{index}]: unknown field in {taint!r}")
        identity = (taint["key"], taint["effect"])
        if identity in seen:
            # The API server rejects such a Node.
            raise BadUserData(f"{path}[{index}]: {identity} is there twice")
        seen.add(identity)
    return values


def _flag(result: NodeConfig, flag: Any) -> None:
    path = "spec.kubelet.flags"
    if not isinstance(flag, str) or not flag.startswith("--"):
        raise BadUserData(f"{path}: {flag!r} is not a flag")
    name, _, value = flag[2:].partition("=")
    if name != "node-labels":
        return
    for pair in value.strip('"').split(","):
        key, separator, text = pair.partition("=")
        if not separator:
            raise BadUserData(f"{path}: --node-labels: {pair!r} is not key=value")
        _check_label(key, text)
        result.labels[key] = text


def _check_label(key: str, value: str) -> None:
    where = f"spec.kubelet.flags: --node-labels: {key}"
    domain, separator, name = key.rpartition("/")
    if not _NAME.fullmatch(name) or (separator and (len(domain) > 253 or not _DOMAIN.fullmatch(domain))):
        raise BadUserData(f"{where}: not a label")
    if value and not _NAME.fullmatch(value):
        raise BadUserData(f"{where}: {value!r} is not the value of a label")
    reserved = any(domain == d or domain.endswith("." + d) for d in ("kubernetes.io", "k8s.io"))
    allowed = key in KUBELET_LABELS or any(domain == d or domain.endswith("." + d) for d in KUBELET_LABEL_DOMAINS)
    if reserved and not allowed:
        raise BadUserData(f"{where}: the kubelet may not set it")
