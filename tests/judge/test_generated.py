"""Requests for generated valid classes and pools are valid. Failure messages contain seed and name of the case."""

from __future__ import annotations

import json
import os
import subprocess
import unittest
from concurrent.futures import ThreadPoolExecutor

import yaml

from . import generator
from .model import faults
from .support import ROOT, deployment, run

SEED = int(os.environ.get("JUDGE_SEED", "1"))
# Each takes about 0.15 s of CPU time; all tests in this folder take less than a minute.
CASES = int(os.environ.get("JUDGE_CASES", "50"))
# The number of the first case, to continue a long run.
FIRST = int(os.environ.get("JUDGE_FIRST", "0"))
# The built-in region with the fewest types, because the catalog of a class takes most of the time.
REGION = ["--region", "ap-northeast-2"]
IPV6 = {"cluster": {"serviceCIDR": "fd00::/108"}}


def leaves(schema, path=""):
    """Paths of the leaf fields; [] means items, {} means entries."""
    inner = schema.get("items", schema)
    path += "[]" if "items" in schema else ""
    if inner.get("properties"):
        return set().union(*(leaves(it, f"{path}.{name}") for name, it in inner["properties"].items()))
    return {path + ("{}" if inner.get("additionalProperties") else "")}


def drawn(value, schema, path=""):
    """Those of `leaves` that a value contains."""
    if "items" in schema:
        return set().union(*(drawn(it, schema["items"], path + "[]") for it in value)) if value else set()
    if schema.get("properties"):
        return set().union(*(drawn(it, schema["properties"][name], f"{path}.{name}") for name, it in value.items()))
    return {path + ("{}" if schema.get("additionalProperties") else "")}


def answer(number):
    """A case with the output of the command."""
    cls, its_pool, pods = generator.case(f"{SEED}-{number}", f"case-{number}")
    web = deployment(pods.pop("replicas"), {"tolerations": [{"operator": "Exists"}]})
    web["spec"]["template"]["spec"]["containers"][0]["resources"] = pods
    try:
        return number, cls, run([cls, its_pool, web], IPV6 if number % 3 == 0 else {}, *REGION)
    except subprocess.TimeoutExpired as slow:
        return number, cls, (None, "", str(slow))


class Generated(unittest.TestCase):
    def judge(self, status, stdout, stderr):
        self.assertEqual(status, 0, stderr)
        self.assertNotIn("EC2 refuses", stderr)
        launches = json.loads(stdout)["launches"]
        for launch in launches:
            for template in launch["createLaunchTemplate"]:
                self.assertEqual(faults("CreateLaunchTemplate", template), [])
            self.assertEqual(faults("CreateFleet", launch["createFleet"]), [])
        return len(launches)

    def test_requests_are_valid(self):
        launched = 0
        with ThreadPoolExecutor(os.cpu_count()) as workers:
            for number, cls, its_answer in workers.map(answer, range(FIRST, FIRST + CASES)):
                with self.subTest(seed=SEED, case=number, node_class=cls["spec"]):
                    launched += self.judge(*its_answer) > 0
        # Some fit no instance type, for example nested virtualization with Windows.
        self.assertGreater(launched, CASES * 0.7)

    def test_each_field_of_the_schemas_is_drawn(self):
        pairs = [generator.case(f"coverage-{number}", "a") for number in range(300)]
        for index, crd in enumerate(["karpenter.k8s.aws_ec2nodeclasses", "karpenter.sh_nodepools"]):
            version = yaml.safe_load((ROOT / f"deploy/crds/{crd}.yaml").read_text())["spec"]["versions"][0]
            schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
            found = set().union(*(drawn(pair[index]["spec"], schema) for pair in pairs))
            self.assertEqual(sorted(leaves(schema) - found), [], crd)


if __name__ == "__main__":
    unittest.main()
