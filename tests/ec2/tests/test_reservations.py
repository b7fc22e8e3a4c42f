"""Capacity reservations: described with filters and pages, and never given more of than they have."""

from __future__ import annotations

import urllib.error
from typing import Any

from botocore.exceptions import ClientError

from tests.support import REGION, ServerTest, errors, ids

ZONE = "us-east-1a"


class Reservations(ServerTest):
    def reserve(self, *reservations: dict[str, Any]) -> None:
        default = {"instanceType": "m5.large", "zone": ZONE, "total": 1}
        self.server.control("POST", "/_reservations", {"reservations": [{**default, **one} for one in reservations]})

    def targeting(self, reservation: str, capacity_type: str = "on-demand", count: int = 1, **more: Any) -> dict[str, Any]:
        """A fleet whose template launches in that reservation only."""
        name = f"in-{reservation}"
        self.ec2.create_launch_template(
            LaunchTemplateName=name,
            LaunchTemplateData={
                "ImageId": self.image,
                "NetworkInterfaces": [{"DeviceIndex": 0, "Groups": [self.made["securityGroup"]]}],
                "CapacityReservationSpecification": {
                    "CapacityReservationPreference": "capacity-reservations-only",
                    "CapacityReservationTarget": {"CapacityReservationId": reservation},
                },
            },
        )
        return self.ec2.create_fleet(
            Type="instant",
            LaunchTemplateConfigs=[
                {
                    "LaunchTemplateSpecification": {"LaunchTemplateName": name, "Version": "1"},
                    "Overrides": [self.override("m5.large")],
                }
            ],
            TargetCapacitySpecification={"TotalTargetCapacity": count, "DefaultTargetCapacityType": capacity_type},
            **more,
        )

    def described(self, **more: Any) -> list[str]:
        pages = self.ec2.get_paginator("describe_capacity_reservations").paginate(**more)
        return [one["CapacityReservationId"] for page in pages for one in page["CapacityReservations"]]

    def test_filters_and_pages(self) -> None:
        self.reserve(
            {"id": "cr-1", "tags": {"team": "blue"}},
            {"id": "cr-2", "tags": {"team": "red"}, "ownerId": "210987654321"},
            {"id": "cr-3", "matchCriteria": "open", "type": "capacity-block", "endDate": "2030-01-01T00:00:00Z"},
        )
        self.assertEqual(self.described(PaginationConfig={"PageSize": 2}), ["cr-1", "cr-2", "cr-3"])

        def by(name: str, *values: str) -> list[str]:
            return self.described(Filters=[{"Name": name, "Values": list(values)}])

        self.assertEqual((by("tag-key", "team"), by("tag:team", "red")), (["cr-1", "cr-2"], ["cr-2"]))
        self.assertEqual((by("owner-id", "210987654321"), by("state", "expired")), (["cr-2"], []))
        [block] = self.ec2.describe_capacity_reservations(Filters=[{"Name": "instance-match-criteria", "Values": ["open"]}])["CapacityReservations"]
        self.assertEqual((block["ReservationType"], block["EndDate"].year, block["AvailableInstanceCount"]), ("capacity-block", 2030, 1))

    def test_ids_together_with_filters(self) -> None:
        self.reserve({"id": "cr-1"}, {"id": "cr-2", "matchCriteria": "open"})

        def with_ids(*wanted: str, **more: Any) -> list[str]:
            answer = self.ec2.describe_capacity_reservations(CapacityReservationIds=list(wanted), **more)
            return [one["CapacityReservationId"] for one in answer["CapacityReservations"]]

        self.assertEqual(with_ids("cr-2"), ["cr-2"])
        is_open = [{"Name": "instance-match-criteria", "Values": ["open"]}]
        self.assertEqual((with_ids("cr-1", "cr-2", Filters=is_open), with_ids("cr-1", Filters=is_open)), (["cr-2"], []))
        no_filter = [{"Name": "capacity-reservation-id", "Values": ["cr-1"]}]
        for refused, code in (
            (lambda: with_ids("cr-1", "cr-9"), "InvalidCapacityReservationId.NotFound"),
            (lambda: with_ids("cr-1", MaxResults=5), "InvalidParameterCombination"),
            (lambda: self.described(Filters=no_filter), "InvalidParameterValue"),
        ):
            with self.subTest(code=code), self.assertRaises(ClientError) as caught:
                refused()
            self.assertEqual(caught.exception.response["Error"]["Code"], code)

    def test_a_reservation_gives_what_it_has_and_gets_it_back(self) -> None:
        self.reserve({"id": "cr-1", "total": 2})
        answer = self.targeting("cr-1", count=3)
        self.assertEqual((len(ids(answer)), errors(answer)), (2, [("m5.large", "ReservationCapacityExceeded")]))
        for instance in self.running():
            self.assertEqual(instance["CapacityReservationId"], "cr-1")
            told = instance["CapacityReservationSpecification"]
            self.assertEqual(told["CapacityReservationPreference"], "capacity-reservations-only")
        free = lambda: self.ec2.describe_capacity_reservations()["CapacityReservations"][0]["AvailableInstanceCount"]  # noqa: E731
        self.assertEqual(free(), 0)
        self.ec2.terminate_instances(InstanceIds=ids(answer)[:1])
        self.assertEqual(free(), 1)

    def test_a_reservation_is_for_its_type_and_zone(self) -> None:
        self.reserve({"id": "cr-1", "zone": "us-east-1b"})
        self.assertEqual(errors(self.targeting("cr-1")), [("m5.large", "InvalidParameterValue")])
        self.assertEqual(errors(self.targeting("cr-9")), [("m5.large", "InvalidCapacityReservationId.NotFound")])

    def test_kinds_of_capacity_and_their_options(self) -> None:
        self.reserve({"id": "cr-1", "type": "capacity-block"}, {"id": "cr-2", "interruptible": True})
        self.assertEqual(len(ids(self.targeting("cr-1", "capacity-block"))), 1)
        options = {"ReservationTypes": ["interruptible-capacity-reservation"]}
        self.assertEqual(len(ids(self.targeting("cr-2", "reserved-capacity", ReservedCapacityOptions=options))), 1)

    def test_what_is_not_understood_is_refused_by_name(self) -> None:
        for body, told in (
            ({"reservations": [{"id": "cr-1"}]}, "reservations[0].instanceType"),
            ({"reservations": [{"id": "cr-1", "instanceType": "a", "zone": REGION, "total": -1}]}, "reservations[0].total"),
            ([], "reservations"),
        ):
            with self.subTest(told=told), self.assertRaises(urllib.error.HTTPError) as caught:
                self.server.control("POST", "/_reservations", body)
            self.assertIn(told, caught.exception.detail)
