"""Requests for generated valid classes and pools are valid. Seed and name of a case are in the failure's text."""

from __future__ import annotations

import json
import os
import unittest

import yaml

from . import generator
from .model import faults
from .support import ROOT, deployment, run

SEED = int(os.environ.get("JUDGE_SEED", "1"))
# Each takes about 0.1 s; the whole judge stays below a minute.
CASES = int(os.environ.get("JUDGE_CASES", "50"))
# Cases that share a run of the command.
BATCH = 25
IPV6 = {"cluster": {"serviceCIDR": "fd00::/108"}}


def leaves(schema, path=""):
    """Paths of the fields that have none below; [] stands for items, {} for entries."""
    inner = schema.get("items", schema)
    path += "[]" if "items" in schema else ""
    if inner.get("properties"):
        return set().union(*(leaves(it, f"{path}.{name}") for name, it in inner["properties"].items()))
    return {path + ("{}" if inner.get("additionalProperties") else "")}


def drawn(value, schema, path=""):
    """Of `leaves`, those that a value has."""
    if "items" in schema:
        return set().union(*(drawn(it, schema["items"], path + "[]") for it in value)) if value else set()
    if schema.get("properties"):
        return set().union(*(drawn(it, schema["properties"][name], f"{path}.{name}") for name, it in value.items()))
    return {path + ("{}" if schema.get("additionalProperties") else "")}


class Generated(unittest.TestCase):
    def judge(self, names):
        cases = {name: generator.case(f"{SEED}-{name}", name) for name in names}
        objects = []
        for number, (name, pair) in enumerate(cases.items()):
            pods = {"nodeSelector": {"karpenter.sh/nodepool": name}, "tolerations": [{"operator": "Exists"}]}
            web = deployment(1 + number % 20, pods)
            web["metadata"]["name"] = name
            objects += [*pair, web]
        status, stdout, stderr = run(objects, IPV6 if int(names[0].removeprefix("case-")) // BATCH % 3 == 0 else {})
        self.assertEqual(status, 0, stderr)
        self.assertNotIn("EC2 refuses", stderr)
        launches = json.loads(stdout)["launches"]
        for launch in launches:
            with self.subTest(seed=SEED, case=launch["nodePool"], node_class=cases[launch["nodeClass"]][0]["spec"]):
                for template in launch["createLaunchTemplate"]:
                    self.assertEqual(faults("CreateLaunchTemplate", template), [])
                self.assertEqual(faults("CreateFleet", launch["createFleet"]), [])
        return {launch["nodePool"] for launch in launches}

    def test_requests_are_valid(self):
        launched = set()
        names = [f"case-{number}" for number in range(CASES)]
        for start in range(0, CASES, BATCH):
            batch = names[start:start + BATCH]
            with self.subTest(seed=SEED, cases=batch):
                launched |= self.judge(batch)
        # Some fit no instance type: nested virtualization with Windows, for example.
        self.assertGreater(len(launched), CASES * 0.7)

    def test_each_field_of_the_schemas_is_drawn(self):
        pairs = [generator.case(f"coverage-{number}", "a") for number in range(300)]
        for index, crd in enumerate(["karpenter.k8s.aws_ec2nodeclasses", "karpenter.sh_nodepools"]):
            version = yaml.safe_load((ROOT / f"deploy/crds/{crd}.yaml").read_text())["spec"]["versions"][0]
            schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
            found = set().union(*(drawn(pair[index]["spec"], schema) for pair in pairs))
            self.assertEqual(sorted(leaves(schema) - found), [], crd)


if __name__ == "__main__":
    unittest.main()
