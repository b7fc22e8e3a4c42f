"""EC2's token buckets, one per action, with the sizes and refill rates of an account and Region without increases:
https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

# (maximum capacity, tokens per second) of the categories.
NON_MUTATING = (100.0, 20.0)
UNFILTERED = (50.0, 10.0)
MUTATING = (50.0, 5.0)
NON_MUTATING_PREFIXES = ("Describe", "List", "Search", "Get")
# Without filter and pagination, these take tokens from a smaller bucket.
UNFILTERED_ACTIONS = {
    "DescribeInstances",
    "DescribeInstanceStatus",
    "DescribeNetworkInterfaces",
    "DescribeSecurityGroups",
    "DescribeSnapshots",
    "DescribeSpotInstanceRequests",
    "DescribeVolumes",
}
# Actions of the table "Uncategorized actions" that an autoscaler calls.
OWN = {
    "AssociateIamInstanceProfile": (100.0, 5.0),
    "CreateLaunchTemplateVersion": (100.0, 5.0),
    "CreateTags": (100.0, 10.0),
    "DeleteTags": (100.0, 10.0),
    "DescribeInstanceTopology": (1.0, 1.0),
    "DisassociateIamInstanceProfile": (100.0, 5.0),
    "ModifyInstanceMetadataOptions": (100.0, 5.0),
    "ModifyLaunchTemplate": (100.0, 5.0),
    "RunInstances": (5.0, 2.0),
    "TerminateInstances": (100.0, 5.0),
}
# "Resource token bucket sizes": one token per instance. The page names no such bucket for CreateFleet.
RESOURCES = {"RunInstances": (1000.0, 2.0), "TerminateInstances": (1000.0, 20.0)}
DRY_RUN = "DryRun"


class Throttle:
    """All buckets. A bucket is full at its first use."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # (tokens, time) of each bucket.
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, action: str, parameters: dict[str, Any]) -> bool:
        """Takes the tokens of a call. False if a bucket has too few: then none is taken."""
        asked = _buckets(action, parameters)
        with self._lock:
            now = self._clock()
            tokens = {}
            for name, ((size, rate), count) in asked.items():
                before, at = self._buckets.get(name, (size, now))
                tokens[name] = min(size, before + rate * (now - at)) - count
            enough = all(left >= 0 for left in tokens.values())
            if enough:
                self._buckets.update({name: (left, now) for name, left in tokens.items()})
        return enough


def _buckets(action: str, parameters: dict[str, Any]) -> dict[str, tuple[tuple[float, float], int]]:
    """The buckets of a call with the number of tokens. A dry run is a request of its action without resources."""
    name = action.removeprefix(DRY_RUN)
    buckets = {name: (OWN.get(name, MUTATING), 1)}
    if name.startswith(NON_MUTATING_PREFIXES) and name not in OWN:
        narrowed = any(key.startswith("Filter.") or key in ("MaxResults", "NextToken") for key in parameters)
        buckets = {name: (NON_MUTATING, 1)}
        if name in UNFILTERED_ACTIONS and not narrowed:
            buckets = {f"{name} without filter and pages": (UNFILTERED, 1)}
    if action in RESOURCES:
        buckets[f"resources of {action}"] = (RESOURCES[action], _resources(action, parameters))
    return buckets


def _resources(action: str, parameters: dict[str, Any]) -> int:
    if action == "TerminateInstances":
        return sum(key.startswith("InstanceId.") for key in parameters)
    return int(parameters.get("MaxCount") or 1)
