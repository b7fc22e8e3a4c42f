"""The loop: registers running instances as Nodes, and stops the Nodes of terminated instances."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from plimsoll_kubelet.cluster import ApiError
from plimsoll_kubelet.node import Expected, build, check
from plimsoll_kubelet.userdata import BadUserData, decode


class Cloud(Protocol):
    """Source of instances."""

    def instances(self) -> list[dict[str, Any]]: ...

    def instance(self, instance_id: str) -> dict[str, Any]: ...

    def facts(self, region: str, instance_type: str) -> dict[str, Any]: ...

    def zone_id(self, region: str, zone: str) -> str: ...


class Api(Protocol):
    """Destination of Nodes."""

    def create_node(self, node: dict[str, Any]) -> None: ...

    def leave(self, name: str) -> bool: ...


@dataclass
class StandIn:
    """State of each instance by id. In memory only: the process lives as long as the cluster."""

    cloud: Cloud
    api: Api
    expected: Expected
    boot_seconds: float
    report: Path | None = None
    clock: Callable[[], float] = time.monotonic
    running_since: dict[str, float] = field(default_factory=dict)
    nodes: dict[str, str] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    errors: dict[str, str] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)

    def turn(self) -> None:
        """Runs once."""
        now = self.clock()
        before = (len(self.nodes), len(self.gone), len(self.errors))
        for instance in self.cloud.instances():
            found = instance["instanceId"]
            if instance["state"] == "running":
                since = self.running_since.setdefault(found, now)
                if found not in self.nodes and found not in self.errors and now - since >= self.boot_seconds:
                    self._join(found)
            elif instance["state"] in ("shutting-down", "stopping", "stopped", "terminated"):
                self._leave(found)
        if (len(self.nodes), len(self.gone), len(self.errors)) != before:
            self.write_report()

    def _join(self, instance_id: str) -> None:
        try:
            instance = self.cloud.instance(instance_id)
            if instance["state"] != "running":
                return
            config = decode(instance["userData"])
            check(config, self.expected)
            facts = self.cloud.facts(instance["region"], instance["instanceType"])
            node = build(instance, facts, self.cloud.zone_id(instance["region"], instance["zone"]), config)
            self.api.create_node(node)
        except BadUserData as error:
            # Such a node never registers. It fails the run at its end, and is not retried.
            self._fail(instance_id, f"user data: {error}")
        except ApiError as error:
            if error.status >= 500 or error.status == 429:
                say(f"{instance_id}: {error}; again in the next round")
                return
            name = node["metadata"]["name"]
            if error.status == 409 and any(self.nodes.get(i) == name for i in self.gone):
                # EC2 reuses addresses. A kubelet retries until the Node of the earlier instance is deleted.
                if instance_id not in self.waiting:
                    self.waiting.add(instance_id)
                    say(f"{instance_id}: waits until the node {name} of an instance that is gone is deleted")
                return
            self._fail(instance_id, f"the API server refused the Node: {error}")
        else:
            self.nodes[instance_id] = node["metadata"]["name"]
            say(f"{instance_id}: {instance['instanceType']} in {instance['zone']} is node {node['metadata']['name']}")

    def _leave(self, instance_id: str) -> None:
        if instance_id in self.gone:
            return
        name = self.nodes.get(instance_id)
        if name is not None:
            try:
                there = self.api.leave(name)
            except ApiError as error:
                say(f"{instance_id}: {error}; again in the next round")
                return
            say(f"{instance_id}: gone, node {name} {'has no kubelet any more' if there else 'was deleted before'}")
        self.gone.add(instance_id)

    def _fail(self, instance_id: str, message: str) -> None:
        self.errors[instance_id] = message
        say(f"{instance_id}: error: {message}")

    def write_report(self) -> None:
        """Atomic, because the harness may be reading."""
        if self.report is None:
            return
        text = json.dumps({"nodes": self.nodes, "gone": sorted(self.gone), "errors": self.errors})
        temporary = self.report.with_suffix(".tmp")
        temporary.write_text(text)
        temporary.replace(self.report)

    def run(self, stop: threading.Event, every: float) -> None:
        """Runs until stopped. Failed requests to cloud and cluster are retried."""
        while not stop.is_set():
            try:
                self.turn()
            except OSError as error:
                say(f"{error}; again in the next round")
            stop.wait(every)


def say(text: str) -> None:
    """Writes one log line."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
