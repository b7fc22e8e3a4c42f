"""Delayed reads of a server with a seed."""

from __future__ import annotations

import unittest
from typing import Any
from unittest import mock

from botocore.exceptions import ClientError
from moto.ec2.exceptions import EC2ClientError, InvalidInstanceIdError
from moto.ec2.models import ec2_backends
from moto.iam.exceptions import NotFoundException
from moto.iam.models import iam_backends

from plimsoll_ec2 import patches, visibility
from plimsoll_ec2.world import WORLD
from tests.support import REGION, ServerTest, ids

ACCOUNT = "123456789012"
FILTER = [{"Name": "tag:app", "Values": ["web"]}]


class DelayTest(unittest.TestCase):
    """moto's back-ends in this process, at a time of the test."""

    @classmethod
    def setUpClass(cls) -> None:
        # Once per process, as in a server.
        if not hasattr(cls, "installed"):
            DelayTest.installed = True
            patches.install()

    def setUp(self) -> None:
        self.now = 1000.0
        for target, value in ((f"{visibility.__name__}.time.monotonic", lambda: self.now), (f"{visibility.__name__}.IMMEDIATE", 0.0)):
            patch = mock.patch(target, value)
            patch.start()
            self.addCleanup(patch.stop)
        self.addCleanup(WORLD.seeded.set, None)
        WORLD.seeded.set(1)
        self.ec2, self.iam = ec2_backends[ACCOUNT][REGION], iam_backends[ACCOUNT]["aws"]
        self.addCleanup(self.ec2.reset)
        self.addCleanup(self.iam.reset)

    def launched(self) -> Any:
        made = self.ec2.run_instances(
            "ami-1",
            1,
            None,
            [],
            security_group_ids=[],
            instance_type="m5.large",
            is_instance_type_default=False,
            placement=None,
            region_name=REGION,
            tags={"instance": {"app": "web"}},
        )
        [instance] = made.instances
        visibility.delay(instance, "instance")
        return instance

    def shares(self, see: Any, action: str) -> tuple[float, bool]:
        """Share of 200 calls that see something, and whether one sees it after the longest delay."""
        seen = 0
        for number in range(200):
            with visibility.calling(action, number):
                seen += see()
        self.now += max(visibility.SECONDS_MAX.values())
        with visibility.calling(action, 0):
            return seen / 200, see()

    def assert_delayed(self, see: Any, action: str = "DescribeInstances") -> None:
        share, later = self.shares(see, action)
        self.assertAlmostEqual(share, visibility.SEEN, delta=0.1)
        self.assertTrue(later)

    def test_an_instance_is_missing_in_lists(self) -> None:
        instance = self.launched()
        self.assert_delayed(lambda: [i.id for r in self.ec2.describe_instances({"tag:app": ["web"]}) for i in r.instances] == [instance.id])

    def test_an_instance_does_not_exist_by_id(self) -> None:
        instance = self.launched()

        def see(read: Any) -> bool:
            try:
                read()
            except InvalidInstanceIdError:
                return False
            return True

        self.assert_delayed(lambda: see(lambda: self.ec2.get_reservations_by_instance_ids([instance.id])))
        instance = self.launched()
        self.assert_delayed(lambda: see(lambda: self.ec2.create_tags([instance.id], {"a": "b"})), "CreateTags")

    def test_the_test_itself_sees_everything(self) -> None:
        instance = self.launched()
        self.assertEqual([i.id for i in self.ec2.all_instances()], [instance.id])

    def test_a_template_does_not_exist_by_id_or_name(self) -> None:
        template = self.ec2.create_launch_template("probe", "", {"ImageId": "ami-1"}, {})

        def code(read: Any) -> str:
            try:
                read()
            except EC2ClientError as error:
                return error.code
            return ""

        self.now -= 1  # Within every delay.
        codes = set()
        for number in range(50):
            with visibility.calling("CreateFleet", number):
                codes |= {code(lambda: self.ec2.get_launch_template(template.id))}
                codes |= {code(lambda: self.ec2.get_launch_template_by_name("probe"))}
        self.assertEqual(codes, {"", "InvalidLaunchTemplateId.NotFound", "InvalidLaunchTemplateName.NotFoundException"})
        self.now += 1
        self.assert_delayed(lambda: self.ec2.describe_launch_templates() == [template])

    def test_a_profile_does_not_exist(self) -> None:
        self.iam.create_instance_profile("probe", "/", [])

        def see() -> bool:
            try:
                self.iam.get_instance_profile("probe")
            except NotFoundException:
                return False
            return True

        self.assert_delayed(see)

    def test_a_terminated_instance_still_runs_for_reads(self) -> None:
        instance = self.launched()
        self.now += max(visibility.SECONDS_MAX.values())
        self.ec2.terminate_instances([instance.id])
        self.assertEqual(instance.state, "terminated", "for the test itself")
        with visibility.calling("TerminateInstances", 1):
            self.assertEqual(instance.state, "terminated", "for other calls than reads")
        self.assert_delayed(lambda: instance.state == "terminated")

    def test_without_a_seed_nothing_is_delayed(self) -> None:
        WORLD.seeded.set(None)
        instance = self.launched()
        self.ec2.terminate_instances([instance.id])
        self.assertEqual(self.shares(lambda: instance.state == "terminated", "DescribeInstances"), (1.0, True))


class SeededServerTest(ServerTest):
    def tearDown(self) -> None:
        self.server.control("DELETE", "/_faults")

    def test_a_seed_is_set_read_and_ended(self) -> None:
        self.assertIsNone(self.server.control("GET", "/_faults")["seed"])
        self.assertEqual(self.server.control("POST", "/_faults", {"seed": 7, "calls": [{"action": "A"}]})["seed"], 7)
        told = self.server.control("POST", "/_faults", {"calls": []})
        self.assertEqual((told["seed"], told["calls"]), (7, []), "other faults leave the seed")
        self.assertIsNone(self.server.control("POST", "/_faults", {"seed": None})["seed"])
        with self.assertRaises(Exception) as caught:
            self.server.control("POST", "/_faults", {"seed": -1})
        self.assertIn("seed", caught.exception.detail)

    def test_a_fleet_is_slow_and_its_instances_appear_within_the_longest_delay(self) -> None:
        self.server.control("POST", "/_faults", {"seed": 3})
        made = ids(self.fleet([self.override("m5.large")], count=4, ClientToken="g-1"))
        call = self.server.control("GET", "/_calls?action=CreateFleet")["calls"][-1]
        self.assertGreaterEqual(call["seconds"], 1.0)
        self.assertEqual(len(made), 4)
        self.assertEqual(len(self.server.control("GET", "/_instances")["instances"]), 4, "control paths see everything")

    def test_an_empty_bucket_refuses_calls(self) -> None:
        self.server.control("POST", "/_faults", {"seed": 5})
        codes = set()
        for _ in range(12):
            try:
                self.ec2.run_instances(ImageId=self.image, MinCount=1, MaxCount=1, DryRun=True)
            except ClientError as error:
                codes.add((error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]))
        self.assertIn(("RequestLimitExceeded", 503), codes)
