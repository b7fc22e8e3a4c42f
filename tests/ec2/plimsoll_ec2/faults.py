"""Injected faults: set by POST /_faults, read by the gateway and by CreateFleet."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from typing import Any

# Effects of a call fault. "request": before the call executes; "answer": after.
DEEDS = ("error", "lose-request", "lose-answer", "hold-request", "hold-answer")
# A held call is released after this time in any case, so that it cannot block a run.
HOLD_SECONDS_MAX = 300.0
# EC2 throttles by 503; every other code that a test names is most likely the caller's fault, except InternalError.
STATUS = {"RequestLimitExceeded": 503, "InternalError": 500, "Unavailable": 503}


class BadFault(ValueError):
    """The body of POST /_faults is invalid; the message names the field."""


@dataclass
class CapacityRule:
    """A set of pools (`*` matches all) with `left` available instances."""

    capacity_type: str = "*"
    instance_type: str = "*"
    zone: str = "*"
    left: int = 0
    code: str = "InsufficientInstanceCapacity"

    def matches(self, capacity_type: str, instance_type: str, zone: str) -> bool:
        pairs = ((self.capacity_type, capacity_type), (self.instance_type, instance_type), (self.zone, zone))
        return all(mine in ("*", theirs) for mine, theirs in pairs)


@dataclass
class CallFault:
    """A fault of the next `times` calls of one action."""

    action: str
    do: str
    times: int = 1
    code: str = "InternalError"
    message: str = "A fault that was asked for."
    status: int = 500
    seconds: float = HOLD_SECONDS_MAX


class _Hold:
    """State that held calls wait for."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.drop = False


@dataclass
class Faults:
    """All faults. Reading and counting down happen under one lock."""

    capacity: list[CapacityRule] = field(default_factory=list)
    calls: list[CallFault] = field(default_factory=list)
    pending_seconds: float = 0.0
    shutting_down_seconds: float = 0.0
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)
    _hold: _Hold = field(default_factory=_Hold, repr=False)

    def update(self, body: Any) -> None:
        """Replaces each part in the body, all or nothing."""
        if not isinstance(body, dict):
            raise BadFault("the body must be an object")
        unknown = set(body) - {"capacity", "calls", "pendingSeconds", "shuttingDownSeconds"}
        if unknown:
            raise BadFault(f"unknown field {sorted(unknown)[0]!r}")
        capacity = [_capacity_rule(i, x) for i, x in enumerate(body.get("capacity", []))]
        calls = [_call_fault(i, x) for i, x in enumerate(body.get("calls", []))]
        seconds = {name: _seconds(name, body[name]) for name in ("pendingSeconds", "shuttingDownSeconds") if name in body}
        with self._lock:
            if "capacity" in body:
                self.capacity = capacity
            if "calls" in body:
                self.calls = calls
            self.pending_seconds = seconds.get("pendingSeconds", self.pending_seconds)
            self.shutting_down_seconds = seconds.get("shuttingDownSeconds", self.shutting_down_seconds)

    def clear(self) -> None:
        """Removes all faults and releases held calls."""
        with self._lock:
            self.capacity, self.calls = [], []
            self.pending_seconds = self.shutting_down_seconds = 0.0
        self.release()

    def take(self, action: str) -> CallFault | None:
        """The fault for this call, counted down by one."""
        with self._lock:
            for fault in self.calls:
                if fault.action in ("*", action) and fault.times > 0:
                    fault.times -= 1
                    return fault
        return None

    def hold(self, seconds: float) -> bool:
        """Waits until released, or for this time. False if the call must be dropped."""
        with self._lock:
            hold = self._hold
        hold.over.wait(min(seconds, HOLD_SECONDS_MAX))
        return not hold.drop

    def release(self, drop: bool = False) -> None:
        """Releases or drops all held calls; later calls wait again."""
        with self._lock:
            self._hold.drop = drop
            self._hold.over.set()
            self._hold = _Hold()

    def room(self, capacity_type: str, instance_type: str, zone: str) -> tuple[float, str]:
        """Number of available instances of the pool, and the error code beyond that."""
        with self._lock:
            rules = [r for r in self.capacity if r.matches(capacity_type, instance_type, zone)]
            tightest = min(rules, key=lambda r: r.left, default=None)
        return (tightest.left, tightest.code) if tightest else (math.inf, "")

    def use(self, capacity_type: str, instance_type: str, zone: str, count: int) -> None:
        """Removes this number of instances from the pool."""
        with self._lock:
            for rule in self.capacity:
                if rule.matches(capacity_type, instance_type, zone):
                    rule.left = max(0, rule.left - count)

    def to_json(self) -> dict[str, Any]:
        """The faults in the format of POST /_faults."""
        with self._lock:
            return {
                "capacity": [
                    {"capacityType": r.capacity_type, "instanceType": r.instance_type, "zone": r.zone, "left": r.left, "code": r.code}
                    for r in self.capacity
                ],
                "calls": [vars(c).copy() for c in self.calls if c.times > 0],
                "pendingSeconds": self.pending_seconds,
                "shuttingDownSeconds": self.shutting_down_seconds,
            }


def _seconds(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= HOLD_SECONDS_MAX:
        raise BadFault(f"{name}: a number of seconds from 0 to {HOLD_SECONDS_MAX:g} is needed, not {value!r}")
    return float(value)


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadFault(f"{name}: a whole number is needed, not {value!r}")
    return value


def _fields(where: str, value: Any, known: set[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadFault(f"{where}: an object is needed")
    unknown = set(value) - known
    if unknown:
        raise BadFault(f"{where}: unknown field {sorted(unknown)[0]!r}")
    return value


def _capacity_rule(index: int, value: Any) -> CapacityRule:
    where = f"capacity[{index}]"
    f = _fields(where, value, {"capacityType", "instanceType", "zone", "left", "code"})
    default = CapacityRule()
    capacity_type = f.get("capacityType", "*")
    if capacity_type not in ("*", "spot", "on-demand"):
        raise BadFault(f"{where}.capacityType: spot, on-demand or * is needed, not {capacity_type!r}")
    return CapacityRule(
        capacity_type,
        f.get("instanceType", "*"),
        f.get("zone", "*"),
        _count(f"{where}.left", f.get("left", 0)),
        f.get("code", default.code),
    )


def _call_fault(index: int, value: Any) -> CallFault:
    where = f"calls[{index}]"
    f = _fields(where, value, {"action", "do", "times", "code", "message", "status", "seconds"})
    if not isinstance(f.get("action"), str):
        raise BadFault(f"{where}.action: the name of an API action, or *, is needed")
    deed = f.get("do", "error")
    if deed not in DEEDS:
        raise BadFault(f"{where}.do: one of {', '.join(DEEDS)} is needed, not {deed!r}")
    fault = CallFault(f["action"], deed)
    fault.times = _count(f"{where}.times", f.get("times", 1))
    fault.code = f.get("code", fault.code)
    fault.message = f.get("message", fault.message)
    fault.status = _count(f"{where}.status", f.get("status", STATUS.get(fault.code, 400)))
    fault.seconds = _seconds(f"{where}.seconds", f.get("seconds", HOLD_SECONDS_MAX))
    return fault
