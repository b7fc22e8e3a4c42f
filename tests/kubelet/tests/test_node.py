"""Resources and Node, compared with real nodes."""

from __future__ import annotations

import unittest

from plimsoll_kubelet.capacity import quantity, resources
from plimsoll_kubelet.node import Expected, build, check
from plimsoll_kubelet.userdata import BadUserData, decode
from tests.examples import AUTHORITY, FACTS, INSTANCE, user_data

EXPECTED = Expected("demo", "https://127.0.0.1:6443", AUTHORITY, "10.96.0.0/16", ("karpenter.sh/unregistered:NoExecute",))


class Resources(unittest.TestCase):
    def test_an_m5_large_is_as_on_eks(self) -> None:
        found = resources(FACTS, 29, 20, decode(user_data()))
        self.assertEqual((found.capacity["cpu"], found.capacity["pods"]), ("2", "29"))
        # A real node has 1930m: 6 % of the first core and 1 % of the second are reserved.
        self.assertEqual(found.allocatable["cpu"], "1930m")
        # 11 Mi for each of 29 pods, 255 Mi, and 100 Mi before eviction.
        kept = quantity(found.capacity["memory"]) - quantity(found.allocatable["memory"])
        self.assertEqual(kept, (11 * 29 + 255 + 100) * 2**20)
# The memory that a guest does not see is subtracted before.
        self.assertAlmostEqual(quantity(found.capacity["memory"]), 8192 * 2**20 * 0.94, delta=1024)

    def test_what_the_configuration_reserves_replaces_the_rule(self) -> None:
        config = decode(
            user_data(
                kubelet__config__kubeReserved={"cpu": "200m", "memory": "1Gi"},
                kubelet__config__systemReserved={"cpu": "100m", "memory": "512Mi"},
                kubelet__config__evictionHard={"memory.available": "10%"},
            )
        )
        found = resources(FACTS, 29, 20, config)
        self.assertEqual(found.allocatable["cpu"], "1700m")
        memory = quantity(found.capacity["memory"])
        free = memory - 2**30 - 2**29 - memory // 10
        self.assertAlmostEqual(quantity(found.allocatable["memory"]), free, delta=2048)

    def test_devices_come_from_ec2(self) -> None:
        gpus = {**FACTS, "GpuInfo": {"Gpus": [{"Manufacturer": "NVIDIA", "Count": 4}]}}
        self.assertEqual(resources(gpus, 29, 20, decode(user_data())).allocatable["nvidia.com/gpu"], "4")
        chips = {**FACTS, "NeuronInfo": {"NeuronDevices": [{"Count": 16, "CoreInfo": {"Count": 2}}]}}
        self.assertEqual(resources(chips, 29, 20, decode(user_data())).capacity["aws.amazon.com/neuroncore"], "32")


class Nodes(unittest.TestCase):
    def test_the_node_says_where_and_what_it_is(self) -> None:
        node = build(INSTANCE, FACTS, "use1-az2", decode(user_data()))
        self.assertEqual(node["metadata"]["name"], "ip-10-0-0-4.ec2.internal")
        self.assertEqual(node["spec"]["providerID"], "aws:///us-east-1a/i-1")
        labels = node["metadata"]["labels"]
        for key, value in (
            ("kubernetes.io/arch", "amd64"),
            ("node.kubernetes.io/instance-type", "m5.large"),
            ("topology.kubernetes.io/zone", "us-east-1a"),
            ("topology.k8s.aws/zone-id", "use1-az2"),
            ("karpenter.sh/nodepool", "default"),
        ):
            self.assertEqual(labels[key], value)
        self.assertIn({"key": "karpenter.sh/unregistered", "effect": "NoExecute"}, node["spec"]["taints"])

    def test_the_kubelet_overrules_labels_about_itself(self) -> None:
        config = decode(user_data(kubelet__flags=["--node-labels=kubernetes.io/arch=arm64"]))
        self.assertEqual(build(INSTANCE, FACTS, "z", config)["metadata"]["labels"]["kubernetes.io/arch"], "amd64")

    def test_an_image_that_the_type_cannot_boot(self) -> None:
        with self.assertRaisesRegex(BadUserData, "cannot boot"):
            build({**INSTANCE, "architecture": "arm64"}, FACTS, "z", decode(user_data()))

    def test_what_belongs_to_another_cluster_is_named(self) -> None:
        check(decode(user_data()), EXPECTED)
        for path, value, told in (
            ("cluster__name", "other", "spec.cluster.name"),
            ("cluster__apiServerEndpoint", "https://127.0.0.1:1", "apiServerEndpoint"),
            ("cluster__cidr", "10.100.0.0/16", "cidr"),
            ("cluster__certificateAuthority", "AAAA", "certificateAuthority"),
            ("kubelet__config__registerWithTaints", [], "karpenter.sh/unregistered:NoExecute is missing"),
        ):
            with self.assertRaisesRegex(BadUserData, told):
                check(decode(user_data(**{path: value})), EXPECTED)


if __name__ == "__main__":
    unittest.main()
