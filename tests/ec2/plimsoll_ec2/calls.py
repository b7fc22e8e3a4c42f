"""The log of calls with their results. GET /_calls."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any

# A run makes some thousands of calls; beyond this limit the oldest are dropped.
CALLS_MAX = 50_000
# Long values (user data, encoded bodies) are truncated.
VALUE_LENGTH_MAX = 200


class Calls:
    """All calls in the order of their arrival. A call is a dict that only its own thread writes to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: deque[dict[str, Any]] = deque(maxlen=CALLS_MAX)
        self._next = 1
        self._local = threading.local()

    def arrived(self, service: str, action: str, region: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """Starts the record of a call, which becomes this thread's current one."""
        call: dict[str, Any] = {
            "seq": 0,
            "time": time.time(),
            "service": service,
            "region": region,
            "action": action,
            "token": parameters.get("ClientToken"),
            "state": "arrived",
            "status": None,
            "error": None,
            "seconds": None,
            "instances": [],
            "parameters": {
                k: v if not isinstance(v, str) or len(v) <= VALUE_LENGTH_MAX else v[:VALUE_LENGTH_MAX] + "..."
                for k, v in parameters.items()
                if k not in ("Action", "Version", "ClientToken") and not k.endswith("UserData")
            },
        }
        with self._lock:
            call["seq"] = self._next
            self._next += 1
            self._calls.append(call)
        self._local.call = call
        return call

    def current(self) -> dict[str, Any]:
        """The record of the call that this thread executes; an unlogged record outside of a call."""
        return getattr(self._local, "call", None) or {"instances": [], "token": None}

    def since(self, seq: int, action: str | None) -> list[dict[str, Any]]:
        """Calls later than `seq`, of one action or of all."""
        with self._lock:
            return [dict(c) for c in self._calls if c["seq"] > seq and action in (None, c["action"])]

    def clear(self) -> None:
        """Deletes the calls, but not the counter: sequence numbers continue."""
        with self._lock:
            self._calls.clear()
