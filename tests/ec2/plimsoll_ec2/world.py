"""State of a running server: faults, calls, tokens, prices, launches."""

from __future__ import annotations

import threading
from typing import Any

from plimsoll_ec2.calls import Calls
from plimsoll_ec2.faults import Faults
from plimsoll_ec2.placement import PlacementGroups
from plimsoll_ec2.prices import Prices
from plimsoll_ec2.quotas import Quotas
from plimsoll_ec2.reservations import Reservations
from plimsoll_ec2.seeded import Seeded
from plimsoll_ec2.tokens import Tokens


class World:
    """moto creates its handlers itself, so they share state with the gateway through `WORLD`."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.seeded = Seeded()
        self.calls = Calls()
        self.tokens = Tokens()
        self.prices = Prices()
        self.reservations = Reservations()
        self.placement = PlacementGroups()
        self.quotas = Quotas()
        # moto's back-ends do not support concurrent launches.
        self.launching = threading.RLock()
        # Every instance that CreateFleet has launched: (moto's instance, properties of the launch).
        self.launches: list[tuple[Any, dict[str, Any]]] = []

    def reset(self) -> None:
        """Resets everything except the prices, which come from the command line."""
        self.faults.clear()
        self.seeded.set(None)
        self.calls.clear()
        self.tokens.forget()
        self.reservations.clear()
        self.placement.clear()
        self.quotas.clear()
        with self.launching:
            self.launches.clear()


WORLD = World()
