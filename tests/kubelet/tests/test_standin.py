"""The loop, with an in-memory cloud and cluster."""

from __future__ import annotations

import json
import tempfile
import unittest
from pathlib import Path
from typing import Any

from plimsoll_kubelet.cluster import ApiError
from plimsoll_kubelet.standin import StandIn
from tests.examples import FACTS, INSTANCE, user_data
from tests.test_node import EXPECTED


class FakeCloud:
    def __init__(self, *instances: dict[str, Any]) -> None:
        self.all = {i["instanceId"]: i for i in instances}

    def instances(self) -> list[dict[str, Any]]:
        return list(self.all.values())

    def instance(self, instance_id: str) -> dict[str, Any]:
        return self.all[instance_id]

    def facts(self, region: str, instance_type: str) -> dict[str, Any]:
        return FACTS

    def zone_id(self, region: str, zone: str) -> str:
        return "use1-az2"


class FakeApi:
    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, Any]] = {}
        self.left: list[str] = []
        self.refusals: list[int] = []

    def create_node(self, node: dict[str, Any]) -> None:
        if self.refusals:
            raise ApiError(self.refusals.pop(), "refused")
        self.nodes[node["metadata"]["name"]] = node

    def leave(self, name: str) -> bool:
        self.left.append(name)
        return name in self.nodes


def instance(number: int, **changes: Any) -> dict[str, Any]:
    name = f"ip-10-0-0-{number}.ec2.internal"
    return {**INSTANCE, "instanceId": f"i-{number}", "privateDnsName": name, "userData": user_data(), **changes}


class Loop(unittest.TestCase):
    def setUp(self) -> None:
        self.now = 0.0
        self.api = FakeApi()

    def stand_in(self, *instances: dict[str, Any], boot: float = 0.0, report: Path | None = None) -> StandIn:
        return StandIn(FakeCloud(*instances), self.api, EXPECTED, boot, report, clock=lambda: self.now)

    def test_an_instance_joins_once_it_runs_and_has_booted(self) -> None:
        pending = instance(1, state="pending")
        it = self.stand_in(pending, boot=3.0)
        it.turn()
        pending["state"] = "running"
        self.now = 10.0
        it.turn()
        self.assertEqual(self.api.nodes, {})
        self.now = 13.0
        it.turn()
        self.assertEqual(list(self.api.nodes), ["ip-10-0-0-1.ec2.internal"])

    def test_a_node_that_was_deleted_does_not_come_back(self) -> None:
        it = self.stand_in(instance(1))
        it.turn()
        self.api.nodes.clear()
        it.turn()
        self.assertEqual(self.api.nodes, {})

    def test_an_instance_that_is_gone_leaves_its_node_once(self) -> None:
        one, never = instance(1), instance(2, state="terminated")
        it = self.stand_in(one, never)
        it.turn()
        one["state"] = "shutting-down"
        it.turn()
        one["state"] = "terminated"
        it.turn()
        self.assertEqual(self.api.left, ["ip-10-0-0-1.ec2.internal"])
        self.assertEqual(list(self.api.nodes), ["ip-10-0-0-1.ec2.internal"])

    def test_wrong_user_data_is_an_error_and_the_others_join(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder, "report.json")
            it = self.stand_in(instance(1, userData=user_data(cluster__name="other")), instance(2), report=report)
            it.turn()
            told = json.loads(report.read_text())
        self.assertEqual(list(told["nodes"]), ["i-2"])
        self.assertIn("spec.cluster.name", told["errors"]["i-1"])

    def test_a_busy_server_is_asked_again_and_a_refusal_is_an_error(self) -> None:
        it = self.stand_in(instance(1))
        self.api.refusals = [503]
        it.turn()
        it.turn()
        self.assertEqual(len(self.api.nodes), 1)
        other = self.stand_in(instance(2))
        self.api.refusals = [422]
        other.turn()
        self.assertIn("422", other.errors["i-2"])

    def test_an_address_that_is_given_again_waits_for_its_old_node(self) -> None:
        old = instance(1)
        it = self.stand_in(old)
        it.turn()
        old["state"] = "terminated"
        it.cloud.all["i-9"] = instance(1, instanceId="i-9")
        self.api.refusals = [409, 409]
        it.turn()
        it.turn()
        self.assertEqual((it.errors, "i-9" in it.nodes), ({}, False))
        it.turn()
        self.assertEqual(it.nodes["i-9"], "ip-10-0-0-1.ec2.internal")

    def test_a_node_that_belongs_to_a_living_instance_is_an_error(self) -> None:
        it = self.stand_in(instance(1), instance(1, instanceId="i-9"))
        self.api.refusals = [409]
        it.turn()
        self.assertIn("409", it.errors["i-1"])


if __name__ == "__main__":
    unittest.main()
