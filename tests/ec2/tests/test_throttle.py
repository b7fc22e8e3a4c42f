"""Token buckets, with a clock of the test."""

from __future__ import annotations

import unittest
from typing import Any

from plimsoll_ec2.throttle import Throttle

FILTERED = {"Filter.1.Name": "tag:a", "Filter.1.Value.1": "b"}


class ThrottleTest(unittest.TestCase):
    def setUp(self) -> None:
        self.now = 0.0
        self.throttle = Throttle(lambda: self.now)

    def taken(self, action: str, parameters: dict[str, Any] | None = None) -> int:
        """Number of calls at this moment until one is throttled."""
        count = 0
        while self.throttle.take(action, parameters or {}):
            count += 1
        return count

    def test_sizes_and_rates_are_those_of_the_documentation(self) -> None:
        for action, parameters, size, rate in (
            ("DescribeSubnets", {}, 100, 20),
            ("DescribeInstances", FILTERED, 100, 20),
            ("DescribeInstances", {"MaxResults": "5"}, 100, 20),
            ("DescribeInstances", {"InstanceId.1": "i-1"}, 50, 10),
            ("CreateFleet", {}, 50, 5),
            ("CreateLaunchTemplate", {}, 50, 5),
            ("CreateTags", {}, 100, 10),
            ("TerminateInstances", {"InstanceId.1": "i-1"}, 100, 5),
            ("RunInstances", {}, 5, 2),
        ):
            throttle = self.throttle = Throttle(lambda: self.now)
            self.assertEqual(self.taken(action, parameters), size, action)
            self.now += 2
            self.assertEqual(self.taken(action, parameters), 2 * rate, action)
            self.now += 1000
            self.assertEqual(self.taken(action, parameters), size, f"{action}: a bucket holds no more than its size")
            self.assertIs(self.throttle, throttle)

    def test_each_action_has_its_own_bucket_and_a_dry_run_shares_it(self) -> None:
        self.assertEqual(self.taken("RunInstances"), 5)
        self.assertEqual(self.taken("DryRunRunInstances"), 0)
        self.assertEqual(self.taken("CreateFleet"), 50)

    def test_instances_are_counted_beside_calls(self) -> None:
        many = {f"InstanceId.{n}": f"i-{n}" for n in range(400)}
        self.assertEqual(self.taken("TerminateInstances", many), 2, "1,000 instances at once")
        self.assertTrue(self.throttle.take("TerminateInstances", {"InstanceId.1": "i-1"}), "a refused call takes nothing")
        self.now += 10
        self.assertEqual(self.taken("TerminateInstances", many), 0, "199 and 200 more are too few")
        self.now += 1
        self.assertEqual(self.taken("TerminateInstances", many), 1)
