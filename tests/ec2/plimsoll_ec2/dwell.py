"""Delayed state changes: pending after a launch, shutting-down after a termination."""

from __future__ import annotations

import threading
from typing import Any

from plimsoll_ec2.world import WORLD

PENDING, RUNNING, SHUTTING_DOWN, TERMINATED = ("pending", 0), ("running", 16), ("shutting-down", 32), ("terminated", 48)


def begin_pending(instance: Any) -> None:
    """Returns pending for the configured time, then running unless the state has changed otherwise."""
    _dwell(instance, PENDING, RUNNING, WORLD.faults.pending_seconds)


def begin_shutting_down(instance: Any) -> None:
    """Returns shutting-down for the configured time, then terminated."""
    _dwell(instance, SHUTTING_DOWN, TERMINATED, WORLD.faults.shutting_down_seconds)


def _dwell(instance: Any, now: tuple[str, int], then: tuple[str, int], seconds: float) -> None:
    if seconds <= 0:
        return
    state = instance._state
    state.name, state.code = now

    def move() -> None:
        if (state.name, state.code) == now:
            state.name, state.code = then

    timer = threading.Timer(seconds, move)
    timer.daemon = True
    timer.start()
