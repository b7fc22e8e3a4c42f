"""Placement groups: set by POST /_placement_groups, described as EC2 does, with EC2's limits for CreateFleet."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any
from xml.sax.saxutils import escape

FIELDS = {"id", "name", "strategy", "state", "partitionCount"}
STRATEGIES = ("cluster", "partition", "spread")
STATES = ("pending", "available", "deleting", "deleted")
# EC2's limits: running instances of a spread group in a zone, partitions of a group in a zone, and with dedicated tenancy.
SPREAD_MAX = 7
PARTITIONS_MAX = 7
DEDICATED_PARTITIONS_MAX = 2
# EC2 documents neither the codes of these errors nor their texts.
UNKNOWN = "InvalidPlacementGroup.Unknown"
IN_USE = "InvalidPlacementGroup.InUse"
FULL = "InstanceLimitExceeded"


class BadPlacementGroup(ValueError):
    """The body of POST /_placement_groups is not understood; the message names the field."""


class Unknown(Exception):
    """A described group does not exist."""


@dataclass
class Group:
    """A placement group."""

    id: str
    name: str
    strategy: str
    state: str = "available"
    partitions: int = 0


@dataclass
class PlacementGroups:
    """All of them by id, with the instances that were launched in each."""

    by_id: dict[str, Group] = field(default_factory=dict)
    launched: dict[str, list[Any]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    def set(self, body: Any) -> None:
        """Replaces all groups; instances stay where they are."""
        if not isinstance(body, dict) or set(body) != {"placementGroups"} or not isinstance(body["placementGroups"], list):
            raise BadPlacementGroup("placementGroups: a list is needed")
        parsed = [_group(i, x) for i, x in enumerate(body["placementGroups"])]
        with self._lock:
            self.by_id = {one.id: one for one in parsed}

    def clear(self) -> None:
        with self._lock:
            self.by_id, self.launched = {}, {}

    def to_json(self) -> dict[str, Any]:
        with self._lock:
            groups = list(self.by_id.values())
        return {"placementGroups": [{"id": g.id, "instances": len(self._living(g.id))} for g in groups]}

    def _living(self, group: str) -> list[Any]:
        with self._lock:
            return [i for i in self.launched.get(group, []) if i.state not in ("shutting-down", "terminated")]

    def room(self, data: dict[str, Any], zone: str, drawn: dict[tuple[str, str], int]) -> tuple[float, tuple[str, str] | None]:
        """What a launch with this template can get in the zone, and EC2's error beyond that. `drawn` counts instances of
        the same call by group and zone."""
        placement = data.get("Placement") or {}
        target = placement.get("GroupId")
        if target is None:
            return float("inf"), None
        with self._lock:
            one = self.by_id.get(target)
        if one is None or one.state != "available":
            return 0, (UNKNOWN, f"The Placement Group '{target}' is unknown.")
        zones = [i.availability_zone for i in self._living(target)]
        zones += [z for (group, z), count in drawn.items() if group == f"group {target}" for _ in range(count)]
        dedicated = placement.get("Tenancy") == "dedicated"
        partition = placement.get("PartitionNumber")
        if one.strategy == "spread":
            if dedicated:
                return 0, ("InvalidParameterCombination", "A spread placement group takes no dedicated instances.")
            return SPREAD_MAX - zones.count(zone), (FULL, f"Spread placement group {target} has reached its limit in {zone}.")
        if one.strategy == "cluster":
            if any(other != zone for other in zones):
                return 0, (IN_USE, f"The placement group '{target}' is in use in another availability zone.")
            return float("inf"), None
        if dedicated and one.partitions > DEDICATED_PARTITIONS_MAX:
            return 0, ("InvalidParameterCombination", f"Dedicated instances may have {DEDICATED_PARTITIONS_MAX} partitions.")
        if partition is not None and not 1 <= int(partition) <= one.partitions:
            return 0, ("InvalidParameterValue", f"The placement group {target} has no partition {partition}.")
        return float("inf"), None

    def used(self, data: dict[str, Any], instances: list[Any]) -> None:
        """Instances were launched in the template's group: DescribeInstances tells so."""
        placement = data.get("Placement") or {}
        target = placement.get("GroupId")
        if target is None:
            return
        with self._lock:
            one = self.by_id[target]
            for instance in instances:
                told = instance.placement
                told.group_id, told.group_name = one.id, one.name
                if one.strategy == "partition":
                    told.partition_number = int(placement.get("PartitionNumber") or self._emptiest(one, instance))
                self.launched.setdefault(target, []).append(instance)

    def _emptiest(self, group: Group, instance: Any) -> int:
        """EC2 tries to fill all partitions of a zone alike."""
        beside = [i for i in self._living(group.id) if i.availability_zone == instance.availability_zone]
        filled = lambda number: sum(i.placement.partition_number == number for i in beside)  # noqa: E731
        return min(range(1, group.partitions + 1), key=filled)

    def describe(self, parameters: dict[str, Any]) -> str:
        """The items that the request selects as XML. EC2 fails the whole call for an unknown id or name."""
        with self._lock:
            groups = sorted(self.by_id.values(), key=lambda g: g.id)
        for prefix, of in (("GroupId.", lambda g: g.id), ("GroupName.", lambda g: g.name)):
            wanted = {v for k, v in parameters.items() if k.startswith(prefix)}
            if unknown := wanted - {of(g) for g in groups}:
                raise Unknown(f"The Placement Group '{min(unknown)}' is unknown.")
            groups = [g for g in groups if not wanted or of(g) in wanted]
        index = 1
        while name := parameters.get(f"Filter.{index}.Name"):
            values = {v for k, v in parameters.items() if k.startswith(f"Filter.{index}.Value.")}
            told = {"group-name": lambda g: g.name, "state": lambda g: g.state, "strategy": lambda g: g.strategy}
            groups = [g for g in groups if name in told and told[name](g) in values]
            index += 1
        return "".join(_item(g) for g in groups)


def _item(one: Group) -> str:
    told = {"groupName": one.name, "state": one.state, "strategy": one.strategy, "groupId": one.id}
    if one.partitions:
        told["partitionCount"] = str(one.partitions)
    inner = "".join(f"<{key}>{escape(value)}</{key}>" for key, value in told.items())
    return f"<item>{inner}</item>"


def _group(index: int, value: Any) -> Group:
    where = f"placementGroups[{index}]"
    if not isinstance(value, dict) or set(value) - FIELDS:
        raise BadPlacementGroup(f"{where}: an object with some of {', '.join(sorted(FIELDS))} is needed")
    for name in ("id", "name", "strategy"):
        if not isinstance(value.get(name), str):
            raise BadPlacementGroup(f"{where}.{name}: a text is needed")
    if value["strategy"] not in STRATEGIES:
        raise BadPlacementGroup(f"{where}.strategy: one of {', '.join(STRATEGIES)} is needed, not {value['strategy']!r}")
    state = value.get("state", "available")
    if state not in STATES:
        raise BadPlacementGroup(f"{where}.state: one of {', '.join(STATES)} is needed, not {state!r}")
    partitions = value.get("partitionCount", PARTITIONS_MAX if value["strategy"] == "partition" else 0)
    if isinstance(partitions, bool) or not isinstance(partitions, int) or not 0 <= partitions <= PARTITIONS_MAX:
        raise BadPlacementGroup(f"{where}.partitionCount: a number from 0 to {PARTITIONS_MAX} is needed, not {partitions!r}")
    return Group(value["id"], value["name"], value["strategy"], state, partitions)
