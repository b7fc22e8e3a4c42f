"""Launches in capacity reservations: what is in their requests, and that these are valid by AWS' model of EC2."""

from __future__ import annotations

import json
import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import Any

from .model import faults
from .support import PLIMSOLL, deployment, node_class, pool, requests

SPECIFICATION = "CapacityReservationSpecification"


def catalog() -> dict[str, Any]:
    command = [PLIMSOLL, "catalog", "m5.xlarge", "c5.xlarge", "-o", "json", "--region", "us-east-1"]
    return json.loads(subprocess.run(command, capture_output=True, timeout=60, check=True).stdout)


class Reservations(unittest.TestCase):
    def launches(self, *reservations: dict[str, Any], replicas: int = 1) -> list[dict[str, Any]]:
        """The launches of pods that each fill a node, with these reservations of m5.xlarge; all of them judged."""
        known = catalog()
        [kind] = [one for one in known["instanceTypes"] if one["name"] == "m5.xlarge"]
        for reservation in reservations:
            zone = reservation.pop("zone", "us-east-1a")
            offering = {"zone": zone, "capacityType": "reserved", "price": 0.000001, "reservation": reservation}
            kind["offerings"].append(offering)
        allowed = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["reserved", "on-demand"]}
        types = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.xlarge", "c5.xlarge"]}
        its_pool = pool(spec={"requirements": [allowed, types]})
        web = deployment(replicas)
        container = web["spec"]["template"]["spec"]["containers"][0]
        container["resources"] = {"requests": {"cpu": "3", "memory": "1Gi"}}
        terms = [{"id": "cr-1"}, {"tags": {"team": "shop"}}]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "catalog.json")
            path.write_text(json.dumps(known))
            found = requests([node_class(capacityReservationSelectorTerms=terms), its_pool, web], None, "--catalog", str(path))
        for launch in found["launches"]:
            for template in launch["createLaunchTemplate"]:
                self.assertEqual(faults("CreateLaunchTemplate", template), [])
            self.assertEqual(faults("CreateFleet", launch["createFleet"]), [])
        return found["launches"]

    def test_each_reservation_has_a_template_of_its_own(self) -> None:
        one = {"id": "cr-1", "count": 1}
        other = {"id": "cr-2", "count": 1, "zone": "us-east-1b"}
        launches = self.launches(one, other, replicas=3)
        found = []
        for launch in launches:
            for template, config in zip(launch["createLaunchTemplate"], launch["createFleet"]["LaunchTemplateConfigs"], strict=True):
                told = template["LaunchTemplateData"][SPECIFICATION]
                target = told.get("CapacityReservationTarget", {}).get("CapacityReservationId")
                zones = {way["AvailabilityZone"] for way in config["Overrides"]}
                found.append((told["CapacityReservationPreference"], target, sorted(zones)))
        expected = [
            ("capacity-reservations-only", "cr-1", ["us-east-1a"]),
            ("capacity-reservations-only", "cr-2", ["us-east-1b"]),
        ]
        self.assertEqual(sorted(it for it in found if it[1]), expected)
        # The third node stays out of reservations, also out of open ones.
        self.assertEqual({it[0] for it in found if not it[1]}, {"none"})
        self.assertEqual(sum(launch["nodes"] for launch in launches), 3)
        self.assertEqual({launch["createFleet"]["TargetCapacitySpecification"]["DefaultTargetCapacityType"] for launch in launches}, {"on-demand"})

    def test_capacity_blocks_and_interruptible_reservations_are_markets(self) -> None:
        for reservation, market, target, options in [
            ({"id": "cr-1", "type": "capacity-block", "count": 1}, "capacity-block", "capacity-block", None),
            (
                {"id": "cr-1", "interruptible": True, "count": 1},
                "interruptible-capacity-reservation",
                "reserved-capacity",
                {"ReservationTypes": ["interruptible-capacity-reservation"]},
            ),
        ]:
            with self.subTest(market):
                [launch] = self.launches(reservation)
                [template] = launch["createLaunchTemplate"]
                self.assertEqual(template["LaunchTemplateData"]["InstanceMarketOptions"], {"MarketType": market})
                fleet = launch["createFleet"]
                self.assertEqual(fleet["TargetCapacitySpecification"]["DefaultTargetCapacityType"], target)
                self.assertEqual(fleet.get("ReservedCapacityOptions"), options)
                self.assertNotIn("OnDemandOptions", fleet)


if __name__ == "__main__":
    unittest.main()
