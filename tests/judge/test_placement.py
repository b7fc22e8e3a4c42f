"""Launches in placement groups: what is in their requests, and that these are valid by AWS' model of EC2."""

from __future__ import annotations

import copy
import unittest
from typing import Any

from .model import faults
from .support import FACTS, deployment, node_class, pool, requests, run

PARTITION = "karpenter.k8s.aws/placement-group-partition"
SELECTED = {"placementGroupSelector": {"name": "own"}}


def facts(**group: Any) -> dict[str, Any]:
    found = copy.deepcopy(FACTS)
    found["nodeClasses"]["default"]["placementGroup"] = {"id": "pg-0a", "name": "own", **group}
    return found


def requirement(*values: str) -> dict[str, Any]:
    return {"key": PARTITION, "operator": "In", "values": list(values)}


class PlacementGroups(unittest.TestCase):
    def placements(self, known: dict[str, Any], wanted: list[dict[str, Any]] = [], selector: dict[str, str] | None = None) -> list[dict[str, Any]]:
        objects = [node_class(**SELECTED), pool(requirements=wanted), deployment(spec={"nodeSelector": selector or {}})]
        found = []
        for launch in requests(objects, known)["launches"]:
            self.assertEqual(faults("CreateFleet", launch["createFleet"]), [])
            for template in launch["createLaunchTemplate"]:
                self.assertEqual(faults("CreateLaunchTemplate", template), [])
                found.append(template["LaunchTemplateData"]["Placement"])
        return found

    def test_the_group_is_named_by_its_id(self) -> None:
        for strategy in ("cluster", "spread", "partition"):
            with self.subTest(strategy):
                known = facts(strategy=strategy, **({"partitionCount": 3} if strategy == "partition" else {}))
                self.assertEqual(self.placements(known), [{"Tenancy": "default", "GroupId": "pg-0a"}])

    def test_a_partition_is_requested_if_some_are_excluded(self) -> None:
        known = facts(strategy="partition", partitionCount=3)
        for wanted, selector, expected in [
            ([requirement("1", "2", "3")], {}, None),
            ([requirement("3", "2")], {}, 2),
            ([requirement("1", "2", "3")], {PARTITION: "3"}, 3),
        ]:
            with self.subTest(wanted=wanted, selector=selector):
                [placement] = self.placements(known, wanted, selector)
                self.assertEqual(placement.get("PartitionNumber"), expected)

    def test_what_ec2_would_refuse_is_told_with_its_field(self) -> None:
        dedicated = {"key": "karpenter.k8s.aws/instance-tenancy", "operator": "In", "values": ["dedicated"]}
        for known, wanted, told in [
            (facts(strategy="spread"), [dedicated], "takes no instances of dedicated tenancy"),
            (facts(strategy="partition", partitionCount=3), [dedicated], "may have at most 2"),
            (facts(strategy="partition", partitionCount=3), [requirement("4")], "has 3 partitions, and none is allowed"),
            (facts(strategy="cluster"), [requirement("1")], "no partition placement group is selected"),
        ]:
            with self.subTest(told):
                status, stdout, stderr = run([node_class(**SELECTED), pool(requirements=wanted), deployment()], known)
                self.assertEqual((status, stdout), (2, ""))
                self.assertIn("EC2NodeClass default: spec.placementGroupSelector: ", stderr)
                self.assertIn(told, stderr)

    def test_a_group_that_is_not_known_is_a_sample(self) -> None:
        known = copy.deepcopy(FACTS)
        del known["nodeClasses"]["default"]["placementGroup"]
        for selector, expected in [({"name": "own"}, "pg-00000000000000001"), ({"id": "pg-0b"}, "pg-0b")]:
            with self.subTest(selector=selector):
                answer = requests([node_class(placementGroupSelector=selector), pool(), deployment()], known)
                [template] = answer["launches"][0]["createLaunchTemplate"]
                self.assertEqual(template["LaunchTemplateData"]["Placement"]["GroupId"], expected)
                self.assertEqual(answer["samples"], ["nodeClasses.default.placementGroup"])


if __name__ == "__main__":
    unittest.main()
