"""Decisions of a seed, without a server."""

from __future__ import annotations

import unittest
from collections import Counter

from plimsoll_ec2.seeded import CALL_SECONDS, ERRORS, LOST_ANSWERS, LOST_REQUESTS, Decision, Seeded, seed_of

CALLS = 4000


def decisions(seed: int | None, action: str = "DescribeImages", count: int = CALLS) -> list[Decision | None]:
    seeded = Seeded()
    seeded.set(seed)
    return [seeded.decide("iam", action, {}) for _ in range(count)]


class DecisionTest(unittest.TestCase):
    def test_without_a_seed_nothing_happens(self) -> None:
        self.assertEqual(decisions(None, count=3), [None] * 3)
        self.assertEqual(Seeded().fleet_seconds(), 0.0)

    def test_a_seed_repeats_its_decisions_and_others_differ(self) -> None:
        self.assertEqual(decisions(1), decisions(1))
        self.assertNotEqual(decisions(1), decisions(2))
        self.assertNotEqual(decisions(1), decisions(1, action="DescribeSubnets"))

    def test_calls_of_other_actions_change_no_decision(self) -> None:
        seeded = Seeded()
        seeded.set(1)
        mixed = []
        for _ in range(50):
            mixed.append(seeded.decide("iam", "DescribeImages", {}))
            seeded.decide("iam", "DescribeSubnets", {})
        self.assertEqual(mixed, decisions(1, count=50))

    def test_the_shares_of_failures_and_the_seconds(self) -> None:
        made = [d for d in decisions(1) if d]
        fates = Counter(d.error or d.lost for d in made)
        errors = fates["InternalError"] + fates["Unavailable"]
        # Three standard deviations of a binomial distribution, rounded up.
        self.assertAlmostEqual(errors / CALLS, ERRORS, delta=0.005)
        self.assertAlmostEqual(fates["lose-answer"] / CALLS, LOST_ANSWERS, delta=0.004)
        self.assertAlmostEqual(fates["lose-request"] / CALLS, LOST_REQUESTS, delta=0.004)
        self.assertTrue(all(n > 0 for n in (fates["InternalError"], fates["Unavailable"])), fates)
        self.assertTrue(all(CALL_SECONDS[0] <= d.seconds < CALL_SECONDS[1] for d in made))

    def test_fleets_take_seconds_and_rarely_more_than_ten(self) -> None:
        seeded = Seeded()
        seeded.set(1)
        seconds = sorted(seeded.fleet_seconds() for _ in range(1000))
        self.assertTrue(1.0 <= seconds[0] < seconds[-1] <= 25.0, (seconds[0], seconds[-1]))
        self.assertAlmostEqual(sum(s < 4.0 for s in seconds) / 1000, 0.85, delta=0.04)
        self.assertAlmostEqual(sum(s >= 10.0 for s in seconds) / 1000, 0.03, delta=0.02)

    def test_only_calls_of_ec2_are_throttled(self) -> None:
        for service, throttled in (("ec2", True), ("sqs", False)):
            seeded = Seeded()
            seeded.set(1)
            made = [seeded.decide(service, "RunInstances", {}) for _ in range(20)]
            self.assertEqual(any(d and d.error == "RequestLimitExceeded" for d in made), throttled, service)

    def test_seeds_are_whole_numbers(self) -> None:
        self.assertEqual([seed_of(s) for s in (None, 0, 7)], [None, 0, 7])
        for bad in ("7", 1.5, True, -1, 2**32):
            with self.assertRaisesRegex(ValueError, "seed"):
                seed_of(bad)
