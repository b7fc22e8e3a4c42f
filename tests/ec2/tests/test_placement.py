"""Placement groups: described by id and name, and with EC2's limits for launches."""

from __future__ import annotations

import urllib.error
from typing import Any

from botocore.exceptions import ClientError

from tests.support import ServerTest, errors, ids

ZONES = ("us-east-1a", "us-east-1b")


class PlacementGroups(ServerTest):
    def groups(self, *groups: dict[str, Any]) -> None:
        self.server.control("POST", "/_placement_groups", {"placementGroups": [{"id": "pg-1", "name": "own", **one} for one in groups]})

    def launch(self, placement: dict[str, Any], zones: tuple[str, ...] = ZONES, count: int = 1) -> dict[str, Any]:
        """A fleet whose template has this placement."""
        data = {"ImageId": self.image, "Placement": placement, "NetworkInterfaces": [{"DeviceIndex": 0, "Groups": [self.made["securityGroup"]]}]}
        name = f"template-{len(self.ec2.describe_launch_templates()['LaunchTemplates'])}"
        self.ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)
        return self.ec2.create_fleet(
            Type="instant",
            LaunchTemplateConfigs=[
                {
                    "LaunchTemplateSpecification": {"LaunchTemplateName": name, "Version": "1"},
                    "Overrides": [self.override("m5.large", zone) for zone in zones],
                }
            ],
            TargetCapacitySpecification={"TotalTargetCapacity": count, "DefaultTargetCapacityType": "on-demand"},
        )

    def placements(self) -> list[tuple[Any, Any]]:
        found = [instance["Placement"] for instance in self.running()]
        return sorted((one.get("GroupId"), one.get("PartitionNumber")) for one in found)

    def test_groups_are_described_by_id_and_by_name(self) -> None:
        self.groups({"strategy": "partition", "partitionCount": 3}, {"id": "pg-2", "name": "other", "strategy": "spread", "state": "deleting"})
        [one] = self.ec2.describe_placement_groups(GroupIds=["pg-1"])["PlacementGroups"]
        told = {key: one[key] for key in ("GroupId", "GroupName", "State", "Strategy", "PartitionCount")}
        self.assertEqual(told, {"GroupId": "pg-1", "GroupName": "own", "State": "available", "Strategy": "partition", "PartitionCount": 3})
        by_name = lambda name: self.ec2.describe_placement_groups(Filters=[{"Name": "group-name", "Values": [name]}])["PlacementGroups"]  # noqa: E731
        self.assertEqual([(g["GroupId"], g["State"]) for g in by_name("other")], [("pg-2", "deleting")])
        self.assertEqual(by_name("no-such"), [])
        with self.assertRaises(ClientError) as caught:
            self.ec2.describe_placement_groups(GroupIds=["pg-9"])
        self.assertEqual(caught.exception.response["Error"]["Code"], "InvalidPlacementGroup.Unknown")

    def test_a_spread_group_has_seven_instances_in_each_zone(self) -> None:
        self.groups({"strategy": "spread"})
        answer = self.launch({"GroupId": "pg-1"}, count=15)
        self.assertEqual((len(ids(answer)), errors(answer)), (14, [("m5.large", "InstanceLimitExceeded")] * 2))
        self.ec2.terminate_instances(InstanceIds=ids(answer)[:1])
        self.assertEqual(len(ids(self.launch({"GroupId": "pg-1"}, count=2))), 1)

    def test_a_cluster_is_in_one_zone(self) -> None:
        self.groups({"strategy": "cluster"})
        self.assertEqual(len(ids(self.launch({"GroupId": "pg-1"}, ZONES[:1], count=9))), 9)
        self.assertEqual(errors(self.launch({"GroupId": "pg-1"}, ZONES[1:])), [("m5.large", "InvalidPlacementGroup.InUse")])

    def test_ec2_fills_partitions_alike_and_takes_the_requested_one(self) -> None:
        self.groups({"strategy": "partition", "partitionCount": 3})
        self.launch({"GroupId": "pg-1"}, ZONES[:1], count=3)
        self.assertEqual(self.placements(), [("pg-1", 1), ("pg-1", 2), ("pg-1", 3)])
        self.launch({"GroupId": "pg-1", "PartitionNumber": 2}, ZONES[:1])
        self.assertEqual(self.placements(), [("pg-1", 1), ("pg-1", 2), ("pg-1", 2), ("pg-1", 3)])
        refused = self.launch({"GroupId": "pg-1", "PartitionNumber": 4}, ZONES[:1])
        self.assertEqual(errors(refused), [("m5.large", "InvalidParameterValue")])

    def test_dedicated_tenancy_has_limits_of_its_own(self) -> None:
        for group, expected in (
            ({"strategy": "spread"}, 0),
            ({"strategy": "partition", "partitionCount": 3}, 0),
            ({"strategy": "partition", "partitionCount": 2}, 1),
            ({"strategy": "cluster"}, 1),
        ):
            with self.subTest(group=group):
                self.groups(group)
                answer = self.launch({"GroupId": "pg-1", "Tenancy": "dedicated"}, ZONES[:1])
                self.assertEqual(len(ids(answer)), expected)

    def test_a_group_that_is_not_available_takes_no_instances(self) -> None:
        self.groups({"strategy": "spread", "state": "deleting"})
        for group in ("pg-1", "pg-9"):
            self.assertEqual(errors(self.launch({"GroupId": group}, ZONES[:1])), [("m5.large", "InvalidPlacementGroup.Unknown")])

    def test_what_is_not_understood_is_refused_by_name(self) -> None:
        for group, told in (
            ({}, "placementGroups[0].strategy"),
            ({"strategy": "together"}, "placementGroups[0].strategy"),
            ({"strategy": "spread", "state": "gone"}, "placementGroups[0].state"),
            ({"strategy": "partition", "partitionCount": 8}, "placementGroups[0].partitionCount"),
        ):
            with self.subTest(told=told, group=group), self.assertRaises(urllib.error.HTTPError) as caught:
                self.groups(group)
            self.assertIn(told, caught.exception.detail)
