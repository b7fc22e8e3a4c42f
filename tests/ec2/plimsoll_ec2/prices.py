"""Prices from files (mostly the catalog's), or from a formula without a file."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

# Spot as a fraction of on-demand, in the range of real prices.
SPOT_SHARE_MIN, SPOT_SHARE_MAX = 0.25, 0.60


class BadPrices(ValueError):
    """A price file is invalid; the message names file and field."""


class Prices:
    """USD per hour by region, instance type and, for Spot, zone."""

    def __init__(self) -> None:
        self._on_demand: dict[str, dict[str, float]] = {}
        self._spot: dict[tuple[str, str, str], float] = {}

    def load(self, path: Path) -> None:
        """Reads `{region: {type: usd}}`, or a catalog in the format of `plimsoll catalog -o json`."""
        try:
            data = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise BadPrices(f"{path}: {error}") from error
        if not isinstance(data, dict):
            raise BadPrices(f"{path}: an object is needed")
        if "instanceTypes" in data:
            self._load_catalog(path, data)
            return
        for region, types in data.items():
            if not isinstance(types, dict) or not all(isinstance(p, (int, float)) for p in types.values()):
                raise BadPrices(f"{path}: {region}: an object of prices is needed")
            self._on_demand.setdefault(region, {}).update({t: float(p) for t, p in types.items()})

    def _load_catalog(self, path: Path, data: dict[str, Any]) -> None:
        region = data.get("region")
        if not isinstance(region, str):
            raise BadPrices(f"{path}: region: a name is needed")
        on_demand = self._on_demand.setdefault(region, {})
        for item in data["instanceTypes"]:
            for offering in item["offerings"]:
                if offering["capacityType"] == "on-demand":
                    on_demand[item["name"]] = float(offering["price"])
                elif offering["capacityType"] == "spot":
                    self._spot[region, item["name"], offering["zone"]] = float(offering["price"])

    def on_demand(self, region: str, instance_type: str) -> float | None:
        """None if a price file for the region was given and does not contain the type."""
        if region in self._on_demand:
            return self._on_demand[region].get(instance_type)
        return _formula(instance_type)

    def spot(self, region: str, instance_type: str, zone: str) -> float | None:
        """The price in the file, otherwise a fraction of on-demand that is fixed for type and zone."""
        if (region, instance_type, zone) in self._spot:
            return self._spot[region, instance_type, zone]
        full = self.on_demand(region, instance_type)
        if full is None:
            return None
        digest = hashlib.sha256(f"{instance_type}/{zone}".encode()).digest()
        share = SPOT_SHARE_MIN + (SPOT_SHARE_MAX - SPOT_SHARE_MIN) * digest[0] / 255
        return round(full * share, 6)


def _formula(instance_type: str) -> float | None:
    """A price that grows with the size, for runs in which only the order matters."""
    from moto.ec2.models.instance_types import INSTANCE_TYPES

    facts = INSTANCE_TYPES.get(instance_type)
    if facts is None:
        return None
    gib = facts["MemoryInfo"]["SizeInMiB"] / 1024
    return round(0.03 * facts["VCpuInfo"]["DefaultVCpus"] + 0.004 * gib, 6)
