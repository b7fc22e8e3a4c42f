"""Capacity reservations: set by POST /_reservations, described as EC2 does, drawn on by CreateFleet."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any
from xml.sax.saxutils import escape

ACCOUNT = "123456789012"
PAGE_MAX = 1000
UNKNOWN = "InvalidCapacityReservationId.NotFound"
# The filters that EC2 documents for DescribeCapacityReservations. `tag:KEY` is allowed too.
FILTERS = {
    "instance-type",
    "owner-id",
    "instance-platform",
    "availability-zone",
    "availability-zone-id",
    "tenancy",
    "outpost-arn",
    "state",
    "start-date",
    "end-date",
    "end-date-type",
    "instance-match-criteria",
    "placement-group-arn",
    "tag-key",
}
FIELDS = {"id", "instanceType", "zone", "total", "type", "interruptible", "matchCriteria", "ownerId", "endDate", "tags"}


class BadReservation(ValueError):
    """The body of POST /_reservations is not understood; the message names the field."""


class Refused(ValueError):
    """EC2's refusal of a call: code and message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class Reservation:
    """A reservation in state `active`."""

    id: str
    instance_type: str
    zone: str
    total: int
    kind: str = "default"
    interruptible: bool = False
    match_criteria: str = "targeted"
    owner_id: str = ACCOUNT
    end_date: str | None = None
    tags: dict[str, str] = field(default_factory=dict)


@dataclass
class Reservations:
    """All of them by id, with the instances that were launched in each."""

    by_id: dict[str, Reservation] = field(default_factory=dict)
    launched: dict[str, list[Any]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    def set(self, body: Any) -> None:
        """Replaces all reservations; instances stay where they are."""
        if not isinstance(body, dict) or set(body) != {"reservations"} or not isinstance(body["reservations"], list):
            raise BadReservation("reservations: a list is needed")
        parsed = [_reservation(i, x) for i, x in enumerate(body["reservations"])]
        with self._lock:
            self.by_id = {one.id: one for one in parsed}

    def clear(self) -> None:
        with self._lock:
            self.by_id, self.launched = {}, {}

    def free(self, reservation: Reservation) -> int:
        """Instances that it can still give; those that are gone give theirs back."""
        with self._lock:
            used = sum(i.state not in ("shutting-down", "terminated") for i in self.launched.get(reservation.id, []))
        return max(0, reservation.total - used)

    def room(self, target: str | None, instance_type: str, zone: str) -> tuple[float, tuple[str, str] | None]:
        """What a launch with this target can get, and EC2's error beyond that. Without a target there is no bound."""
        if target is None:
            return float("inf"), None
        with self._lock:
            one = self.by_id.get(target)
        if one is None:
            return 0, (UNKNOWN, f"The capacity reservation '{target}' does not exist")
        if (one.instance_type, one.zone) != (instance_type, zone):
            return 0, ("InvalidParameterValue", f"The capacity reservation {target} is not for {instance_type} in {zone}.")
        return self.free(one), ("ReservationCapacityExceeded", f"The capacity reservation {target} has not enough free instances.")

    def used(self, target: str | None, instances: list[Any]) -> None:
        """Instances were launched in it: DescribeInstances tells so."""
        for instance in instances:
            preference = "capacity-reservations-only" if target else "none"
            instance.capacity_reservation_specification = {"CapacityReservationPreference": preference}
            if target:
                instance.capacity_reservation_id = target
        if target:
            with self._lock:
                self.launched.setdefault(target, []).extend(instances)

    def to_json(self) -> dict[str, Any]:
        with self._lock:
            return {"reservations": [{"id": r.id, "total": r.total, "free": self.free(r)} for r in self.by_id.values()]}

    def describe(self, parameters: dict[str, Any]) -> tuple[str, str]:
        """The items that ids and filters select as XML, one page of them, and the token of the next page. EC2 fails the
        whole call for an unknown id."""
        filters = _filters(parameters)
        wanted = {v for k, v in parameters.items() if k.startswith("CapacityReservationId.")}
        if wanted and parameters.get("MaxResults"):
            raise Refused("InvalidParameterCombination", "MaxResults and CapacityReservationId exclude each other.")
        with self._lock:
            known = sorted(self.by_id.values(), key=lambda r: r.id)
        if unknown := wanted - {r.id for r in known}:
            raise Refused(UNKNOWN, f"The capacity reservation '{min(unknown)}' does not exist")
        found = [r for r in known if (not wanted or r.id in wanted) and _matches(r, filters)]
        start = int(parameters.get("NextToken") or 0)
        end = start + min(int(parameters.get("MaxResults") or PAGE_MAX), PAGE_MAX)
        return "".join(self._item(r) for r in found[start:end]), str(end) if end < len(found) else ""

    def _item(self, one: Reservation) -> str:
        tags = "".join(f"<item><key>{escape(k)}</key><value>{escape(v)}</value></item>" for k, v in one.tags.items())
        end = f"<endDate>{escape(one.end_date)}</endDate><endDateType>limited</endDateType>" if one.end_date else ""
        told = {
            "capacityReservationId": one.id,
            "ownerId": one.owner_id,
            "instanceType": one.instance_type,
            "instancePlatform": "Linux/UNIX",
            "availabilityZone": one.zone,
            "tenancy": "default",
            "totalInstanceCount": one.total,
            "availableInstanceCount": self.free(one),
            "state": "active",
            "instanceMatchCriteria": one.match_criteria,
            "reservationType": one.kind,
            "interruptible": str(one.interruptible).lower(),
        }
        inner = "".join(f"<{key}>{escape(str(value))}</{key}>" for key, value in told.items())
        return f"<item>{inner}{end}<tagSet>{tags}</tagSet></item>"


def target_of(data: dict[str, Any]) -> str | None:
    """The capacity reservation that a launch template names."""
    asked = data.get("CapacityReservationSpecification") or {}
    return (asked.get("CapacityReservationTarget") or {}).get("CapacityReservationId")


def _reservation(index: int, value: Any) -> Reservation:
    where = f"reservations[{index}]"
    if not isinstance(value, dict) or set(value) - FIELDS:
        raise BadReservation(f"{where}: an object with some of {', '.join(sorted(FIELDS))} is needed")
    for name in ("id", "instanceType", "zone", "total"):
        if name not in value:
            raise BadReservation(f"{where}.{name}: is missing")
    if isinstance(value["total"], bool) or not isinstance(value["total"], int) or value["total"] < 0:
        raise BadReservation(f"{where}.total: a whole number is needed, not {value['total']!r}")
    kind = value.get("type", "default")
    if kind not in ("default", "capacity-block"):
        raise BadReservation(f"{where}.type: default or capacity-block is needed, not {kind!r}")
    return Reservation(
        id=value["id"],
        instance_type=value["instanceType"],
        zone=value["zone"],
        total=value["total"],
        kind=kind,
        interruptible=bool(value.get("interruptible", False)),
        match_criteria=value.get("matchCriteria", "targeted"),
        owner_id=value.get("ownerId", ACCOUNT),
        end_date=value.get("endDate"),
        tags=dict(value.get("tags", {})),
    )


def _filters(parameters: dict[str, Any]) -> list[tuple[str, set[str]]]:
    filters = []
    index = 1
    while name := parameters.get(f"Filter.{index}.Name"):
        if name not in FILTERS and not name.startswith("tag:"):
            raise Refused("InvalidParameterValue", f"The filter '{name}' is invalid")
        prefix = f"Filter.{index}.Value."
        filters.append((name, {v for k, v in parameters.items() if k.startswith(prefix)}))
        index += 1
    return filters


def _matches(one: Reservation, filters: list[tuple[str, set[str]]]) -> bool:
    told = {
        "owner-id": one.owner_id,
        "instance-platform": "Linux/UNIX",
        "tenancy": "default",
        "state": "active",
        "instance-match-criteria": one.match_criteria,
        "instance-type": one.instance_type,
        "availability-zone": one.zone,
    }
    for name, values in filters:
        if name == "tag-key":
            if not values & set(one.tags):
                return False
        elif name.startswith("tag:"):
            if one.tags.get(name[4:]) not in values:
                return False
        elif told.get(name) not in values:
            return False
    return True
