"""A minimal client of the API server: the four calls of this program."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlparse

import yaml

# A call takes milliseconds; with a stalled server, the loop must continue.
TIMEOUT_SECONDS = 10.0


class ApiError(Exception):
    """The API server rejected the request; `status` is the HTTP status, the string its message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Cluster:
    """One connection with the client certificate of a kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        context = next(c["context"] for c in config["contexts"] if c["name"] == config["current-context"])
        cluster = next(c["cluster"] for c in config["clusters"] if c["name"] == context["cluster"])
        user = next(u["user"] for u in config["users"] if u["name"] == context["user"])
        self.server: str = cluster["server"]
        self.certificate_authority = base64.b64decode(cluster["certificate-authority-data"])
        self._tls = ssl.create_default_context(cadata=self.certificate_authority.decode())
        # ssl loads client certificates only from files.
        with tempfile.TemporaryDirectory() as folder:
            certificate, key = Path(folder, "crt"), Path(folder, "key")
            certificate.write_bytes(base64.b64decode(user["client-certificate-data"]))
            key.touch(0o600)
            key.write_bytes(base64.b64decode(user["client-key-data"]))
            self._tls.load_cert_chain(certificate, key)
        self._connection: http.client.HTTPSConnection | None = None

    def service_cidr(self) -> str:
        """The first CIDR of the ServiceCIDR `kubernetes`."""
        return self._call("GET", "/apis/networking.k8s.io/v1/servicecidrs/kubernetes")["spec"]["cidrs"][0]

    def create_node(self, node: dict[str, Any]) -> None:
        """Creates the Node. An existing Node with the same provider id comes from an earlier call without a response.
        """
        try:
            self._call("POST", "/api/v1/nodes", node)
        except ApiError as error:
            if error.status != 409:
                raise
            there = self._call("GET", _node_path(node["metadata"]["name"]))
            if there["spec"].get("providerID") != node["spec"]["providerID"]:
                raise

    def leave(self, name: str) -> bool:
        """Removes the kubelet: kwok releases the node, which is no longer Ready. False if the node does not exist."""
        path = _node_path(name)
        gone = {"metadata": {"annotations": {"kwok.x-k8s.io/node": None}}}
        ready = {"type": "Ready", "status": "False", "reason": "InstanceGone", "message": "The instance is gone, and the kubelet with it."}
        try:
            self._call("PATCH", path, gone, "application/merge-patch+json")
            self._call("PATCH", path + "/status", {"status": {"conditions": [ready]}}, "application/strategic-merge-patch+json")
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    def _call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        try:
            return self._once(method, path, body, kind)
        except (http.client.HTTPException, OSError):
            # The server closes idle connections. Each of these calls is safe to send twice.
            self._connection = None
            return self._once(method, path, body, kind)

    def _once(self, method: str, path: str, body: Any, kind: str) -> Any:
        if self._connection is None:
            url = urlparse(self.server)
            self._connection = http.client.HTTPSConnection(url.hostname or "", url.port, timeout=TIMEOUT_SECONDS, context=self._tls)
        data = None if body is None else json.dumps(body)
        self._connection.request(method, path, data, {"Content-Type": kind, "Accept": "application/json"})
        answer = self._connection.getresponse()
        text = answer.read()
        result = json.loads(text) if text else {}
        if answer.status >= 400:
            raise ApiError(answer.status, result.get("message", answer.reason))
        return result


def _node_path(name: str) -> str:
    return "/api/v1/nodes/" + quote(name, safe="")
