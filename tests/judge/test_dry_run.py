"""RunInstances, which Plimsoll sends only as a dry run. A test of the actuator compares its request with this file."""

from __future__ import annotations

import json
import unittest
from pathlib import Path

from .model import faults

FILE = Path(__file__).parent / "examples/run-instances.json"


class DryRun(unittest.TestCase):
    def test_the_request_is_valid(self) -> None:
        request = json.loads(FILE.read_text())
        self.assertTrue(request["DryRun"])
        self.assertEqual(faults("RunInstances", request), [])
        self.assertNotEqual(faults("RunInstances", {**request, "MinCount": "1"}), [])
        self.assertNotEqual(faults("RunInstances", {**request, "Version": 4}), [])


if __name__ == "__main__":
    unittest.main()
