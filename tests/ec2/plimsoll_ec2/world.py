"""The one state of a running server: faults, calls, tokens, prices, launches."""

from __future__ import annotations

import threading
from typing import Any

from plimsoll_ec2.calls import Calls
from plimsoll_ec2.faults import Faults
from plimsoll_ec2.prices import Prices
from plimsoll_ec2.reservations import Reservations
from plimsoll_ec2.tokens import Tokens


class World:
    """moto's handlers are classes that it makes itself, so what they share with the gateway is reached through `WORLD`."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.calls = Calls()
        self.tokens = Tokens()
        self.prices = Prices()
        self.reservations = Reservations()
        # moto's back-ends are not made for concurrent launches.
        self.launching = threading.RLock()
        # Every instance ever launched by CreateFleet: (moto's instance, what the launch said).
        self.launches: list[tuple[Any, dict[str, Any]]] = []

    def reset(self) -> None:
        """All but the prices, which come from the command line."""
        self.faults.clear()
        self.calls.clear()
        self.tokens.forget()
        self.reservations.clear()
        with self.launching:
            self.launches.clear()


WORLD = World()
