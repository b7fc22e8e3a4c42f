"""Behaviour of a real EC2 that depends on a seed: slow calls, rare failures, throttling, delayed reads.

Each decision is a hash of the seed, the action and the number of the call of this action, so a seed repeats its
decisions as far as the callers repeat the order of their calls. Without a seed, nothing here has an effect.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from dataclasses import dataclass
from typing import Any

from plimsoll_ec2.throttle import Throttle

# Duration of a call, from and to. Receiving messages has its own wait.
CALL_SECONDS = (0.02, 0.3)
# Duration of CreateFleet: (share of the calls, from, to).
FLEET_SECONDS = ((0.85, 1.0, 4.0), (0.12, 4.0, 7.0), (0.03, 10.0, 25.0))
# Shares of the calls that fail or lose a message. EC2's list of server errors:
# https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html#api-error-codes-table-server
ERRORS = 0.01
LOST_ANSWERS = 0.005
LOST_REQUESTS = 0.005
# The largest seed: it is printed and typed.
SEED_MAX = 2**32 - 1


@dataclass
class Decision:
    """What happens to one call."""

    number: int
    seconds: float = 0.0
    error: str | None = None
    lost: str | None = None


class Seeded:
    """The current seed with its counters."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seed: int | None = None
        self._counts: Counter[str] = Counter()
        self.throttle = Throttle()

    @property
    def seed(self) -> int | None:
        return self._seed

    def set(self, seed: int | None) -> None:
        """Starts a seed anew, or with None ends all effects."""
        with self._lock:
            self._seed = seed
            self._counts.clear()
            self.throttle = Throttle()

    def draw(self, *what: object) -> float:
        """A number from 0 to less than 1 that depends on the seed and on `what` alone."""
        text = "/".join(str(part) for part in (self._seed, *what))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") / 2**48

    def count(self, what: str) -> int:
        """The number of calls of an action, or of objects of a kind, this one included."""
        with self._lock:
            self._counts[what] += 1
            return self._counts[what]

    def decide(self, service: str, action: str, parameters: dict[str, object]) -> Decision | None:
        """What happens to this call; None without a seed."""
        if self._seed is None:
            return None
        number = self.count(action)
        decision = Decision(number, seconds=_between(CALL_SECONDS, self.draw("seconds", action, number)))
        if service == "ec2" and not self.throttle.take(action, parameters):
            decision.error = "RequestLimitExceeded"
            return decision
        fate = self.draw("fate", action, number)
        if fate < ERRORS:
            decision.error = "InternalError" if self.draw("error", action, number) < 0.5 else "Unavailable"
        elif fate < ERRORS + LOST_ANSWERS:
            decision.lost = "lose-answer"
        elif fate < ERRORS + LOST_ANSWERS + LOST_REQUESTS:
            decision.lost = "lose-request"
        return decision

    def fleet_seconds(self) -> float:
        """How long the next launch of CreateFleet takes."""
        if self._seed is None:
            return 0.0
        number = self.count("launch")
        share = self.draw("fleet", number)
        for part, *bounds in FLEET_SECONDS:
            if share < part:
                return _between(bounds, self.draw("fleet-seconds", number))
            share -= part
        return FLEET_SECONDS[0][1]


def seed_of(value: Any) -> int | None:
    """Checks a seed of a request."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= SEED_MAX):
        raise ValueError(f"seed: a whole number from 0 to {SEED_MAX}, or null, is needed, not {value!r}")
    return value


def _between(bounds: tuple[float, ...] | list[float], share: float) -> float:
    return bounds[0] + (bounds[1] - bounds[0]) * share
