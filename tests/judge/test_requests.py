"""The requests of `plimsoll requests` are valid in AWS' model of EC2, and each field of EC2NodeClass has the right
position."""

from __future__ import annotations

import base64
import copy
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

import jmespath
import yaml

from . import fields
from .model import faults
from .fields import DATA
from .support import FACTS, PLIMSOLL, ROOT, deployment, node_class, pool, requests, run


class Judged(unittest.TestCase):
    def check(self, answer):
        self.assertTrue(answer["launches"])
        for launch in answer["launches"]:
            templates = launch["createLaunchTemplate"]
            for template in templates:
                self.assertEqual(faults("CreateLaunchTemplate", template), [])
            self.assertEqual(faults("CreateFleet", launch["createFleet"]), [])
            named = [
                config["LaunchTemplateSpecification"]["LaunchTemplateName"]
                for config in launch["createFleet"]["LaunchTemplateConfigs"]
            ]
            self.assertEqual(sorted(named), sorted(template["LaunchTemplateName"] for template in templates))
        return answer


class Manifests(Judged):
    def objects(self, path):
        found = [it for it in yaml.safe_load_all((ROOT / path).read_text()) if it]
        has_pods = any(it["kind"] in ("Pod", "Deployment") for it in found)
        return found if has_pods else [*found, deployment(3)]

    def test_of_the_repository(self):
        for path, region in [
            ("api/tests/fixtures/seed-000.yaml", "ap-northeast-2"),
            ("api/tests/fixtures/seed-001.yaml", "us-east-1"),
            ("docs/examples/plan/cluster.yaml", "us-east-1"),
        ]:
            with self.subTest(path):
                answer = self.check(requests(self.objects(path), {}, "--region", region))
                self.assertIn("cluster.name", answer["samples"])


    def test_examples(self):
        """Pools and classes with the fields of Karpenter's published examples (examples/v1 of its AWS provider)."""
        paths = sorted((ROOT / "tests/judge/examples").glob("*.yaml"))
        self.assertGreaterEqual(len(paths), 22)
        for path in paths:
            with self.subTest(path.name):
                objects = list(yaml.safe_load_all(path.read_text()))
                for its_pool in [it for it in objects if it["kind"] == "NodePool"]:
                    chosen = {"nodeSelector": {"karpenter.sh/nodepool": its_pool["metadata"]["name"]}}
                    answer = self.check(requests([*objects, deployment(3, chosen)], {}))
                    self.assertEqual({launch["nodePool"] for launch in answer["launches"]}, {its_pool["metadata"]["name"]})


class Fields(Judged):
    def test_each_field_is_in_its_member(self):
        for field, spec, member, value in fields.FIELDS:
            with self.subTest(field):
                answer = self.check(requests([node_class(**spec), pool(fields.instance_type(field)), deployment()]))
                self.assertEqual(jmespath.search(member, answer), value)
                self.assertEqual(answer["samples"], [])

    def test_tags_are_on_every_resource(self):
        answer = requests([node_class(tags={"team": "a"}), pool(), deployment()])
        found = jmespath.search("[createLaunchTemplate[].TagSpecifications, createLaunchTemplate[].LaunchTemplateData"
                                ".TagSpecifications, [createFleet.TagSpecifications]][][]", answer["launches"][0])
        kinds = {it["ResourceType"] for it in found if {"Key": "team", "Value": "a"} in it["Tags"]}
        self.assertEqual(kinds, {"launch-template", "network-interface", "spot-instances-request", "fleet", "instance", "volume"})

    def test_ipv6(self):
        for dns in ["fd00::a", ""]:
            with self.subTest(dns):
                facts = copy.deepcopy(FACTS)
                facts["cluster"].update(serviceCIDR="fd00::/108", dnsAddress=dns)
                answer = self.check(requests([node_class(ipPrefixCount=1), pool(), deployment()], facts))
                found = jmespath.search(fields.INTERFACE, answer)
                self.assertEqual((found["Ipv6AddressCount"], found["PrimaryIpv6"], found["Ipv6PrefixCount"]), (1, True, 1))

    def test_tenancy(self):
        tenancy = DATA + ".Placement.Tenancy"
        key = "karpenter.k8s.aws/instance-tenancy"
        for values, selector, expected in [
            (None, {}, "default"), (["default"], {}, "default"), (["dedicated"], {}, "dedicated"),
            (["dedicated", "default"], {}, "default"), (["dedicated", "default"], {key: "dedicated"}, "dedicated"),
            (None, {key: "dedicated"}, "dedicated"), (None, {key: "default"}, "default"),
        ]:
            with self.subTest(values=values, selector=selector):
                wanted = [{"key": key, "operator": "In", "values": values}] if values else []
                answer = self.check(requests([node_class(), pool(requirements=wanted), deployment(spec={"nodeSelector": selector})]))
                self.assertEqual(jmespath.search(tenancy, answer), expected)

    def test_a_public_address_with_several_efa_interfaces_is_refused(self):
        web = deployment()
        limits = {"cpu": "1", "vpc.amazonaws.com/efa": "1"}
        web["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": limits, "limits": limits}
        self.check(requests([node_class(associatePublicIPAddress=True), pool("c5n.18xlarge"), web]))
        objects = [node_class(associatePublicIPAddress=True), pool("p4d.24xlarge"), web]
        self.assertEqual(requests(objects)["launches"], [])
        # A catalog file is the same for all classes, so the plan has the launch.
        command = [PLIMSOLL, "catalog", "p4d.24xlarge", "-o", "json", "--region", "us-east-1"]
        known = subprocess.run(command, capture_output=True, timeout=60, check=True).stdout
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "catalog.json")
            path.write_bytes(known)
            status, stdout, stderr = run(objects, None, "--catalog", str(path))
        self.assertEqual((status, stdout), (2, ""))
        self.assertIn("EC2NodeClass default: spec.associatePublicIPAddress: ", stderr)

    def test_what_ec2_refuses_is_told_with_its_field(self):
        status, _, stderr = run([node_class(blockDeviceMappings=[{"deviceName": "/dev/xvda"}]), pool(), deployment()])
        self.assertEqual(status, 0)
        self.assertIn("EC2NodeClass default is not ready in a cluster: EC2 refuses spec.blockDeviceMappings[0].ebs: ", stderr)

    def test_the_documentation_has_every_field_with_its_member_and_test(self):
        crd = yaml.safe_load((ROOT / "deploy/crds/karpenter.k8s.aws_ec2nodeclasses.yaml").read_text())
        spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]

        def leaves(schema, path):
            whole = path.endswith("Terms") or path in {"tags", "kubelet", "placementGroupSelector"}
            inner = schema.get("items", schema)
            if whole or not inner.get("properties"):
                return {path}
            prefix = (path + ("[]" if "items" in schema else "") + ".") if path else ""
            return set().union(*(leaves(it, prefix + name) for name, it in inner["properties"].items()))

        section = (ROOT / "docs/requests.md").read_text().split("## Fields of EC2NodeClass")[1]
        rows = {field: (member, test) for field, member, test in re.findall(r"^\| `(.+)` \| (.+) \| (.+) \|$", section, re.M)}
        self.assertEqual(set(rows), leaves(spec, ""))
        tested = {field: member for field, _, member, _ in fields.FIELDS}
        for field, (member, tests) in rows.items():
            with self.subTest(field):
                short = {**tested, **fields.IN_RESERVATIONS}.get(field, DATA + ".UserData").removeprefix("length(").removesuffix(")")
                short = short.removeprefix("launches[0].").split("[?")[0].replace("[0]", "[]")
                self.assertEqual(member, f"`{short}`")
                self.assertTrue(field in tested or field in fields.IN_USER_DATA or field in fields.IN_RESERVATIONS)
                for test in tests.split(", "):
                    found = unittest.defaultTestLoader.loadTestsFromName("judge." + test.strip("`"))
                    self.assertGreater(found.countTestCases(), 0)
                    self.assertNotIn("_FailedTest", str(found))


class Judge(unittest.TestCase):
    """Invalid requests are detected."""

    def test_faults_are_found(self):
        launch = requests([node_class(), pool(), deployment()])["launches"][0]
        template, fleet = launch["createLaunchTemplate"][0], launch["createFleet"]
        data = template["LaunchTemplateData"]

        def changed(request, path, value):
            request = copy.deepcopy(request)
            place = request
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = value
            return request

        override = ["LaunchTemplateConfigs", 0, "Overrides", 0]
        wrong = [
            ("CreateLaunchTemplate", changed(template, ["LaunchTemplateData", "Colour"], "red")),
            ("CreateLaunchTemplate", changed(template, ["LaunchTemplateData", "Placement", "Tenancy"], "shared")),
            ("CreateLaunchTemplate", changed(template, ["LaunchTemplateData", "Monitoring", "Enabled"], "yes")),
            ("CreateLaunchTemplate", changed(template, ["LaunchTemplateName"], "no blanks")),
            ("CreateLaunchTemplate", changed(template, ["TagSpecifications", 0, "ResourceType"], "planet")),
            ("CreateLaunchTemplate", changed(template, ["LaunchTemplateData", "UserData"],
                                             base64.b64encode(b"x" * 16_385).decode())),
            ("CreateLaunchTemplate", changed(template, ["LaunchTemplateData", "NetworkInterfaces"],
                                             data["NetworkInterfaces"] * 2)),
            ("CreateFleet", {key: value for key, value in fleet.items() if key != "TargetCapacitySpecification"}),
            ("CreateFleet", changed(fleet, ["Type"], "now")),
            ("CreateFleet", changed(fleet, ["ClientToken"], "t" * 65)),
            ("CreateFleet", changed(fleet, [*override, "Priority"], "first")),
            ("CreateFleet", changed(fleet, [*override, "InstanceType"], "m5.enormous")),
            ("CreateFleet", changed(fleet, ["TargetCapacitySpecification", "TotalTargetCapacity"], 2**31)),
        ]
        for operation, request in wrong:
            self.assertTrue(faults(operation, request), (operation, request))


if __name__ == "__main__":
    unittest.main()
