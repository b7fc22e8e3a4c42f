"""User data that nodeadm and the kubelet accept, and that they reject."""

from __future__ import annotations

import base64
import unittest

from plimsoll_kubelet.userdata import BadUserData, decode
from tests.examples import AUTHORITY, mime, user_data


class Good(unittest.TestCase):
    def test_everything_is_read(self) -> None:
        config = decode(user_data())
        self.assertEqual((config.cluster_name, config.endpoint, config.cidr), ("demo", "https://127.0.0.1:6443", "10.96.0.0/16"))
        self.assertEqual(config.certificate_authority, AUTHORITY)
        self.assertEqual(config.max_pods, 29)
        labels = {"eks-team": "my-team", "karpenter.sh/capacity-type": "on-demand", "karpenter.sh/nodepool": "default"}
        self.assertEqual(config.labels, labels)
        self.assertEqual([t["key"] for t in config.taints], ["karpenter.sh/unregistered", "team"])
        self.assertIsNone(config.kube_reserved)

    def test_a_later_part_wins_field_by_field(self) -> None:
        head = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\n"
        first = head + "spec: {kubelet: {config: {maxPods: 8, systemReserved: {cpu: 100m}}}}"
        whole = base64.b64decode(user_data()).decode().split("Content-Type: application/node.eks.aws\n\n")[1].split("--//--")[0]
        config = decode(mime(("application/node.eks.aws", first), ("application/node.eks.aws", whole)))
        self.assertEqual((config.max_pods, config.system_reserved), (29, {"cpu": "100m"}))

    def test_local_disks(self) -> None:
        self.assertTrue(decode(user_data(instance__localStorage={"strategy": "RAID0"})).raid0)


class Bad(unittest.TestCase):
    def refused(self, text: str, told: str) -> None:
        with self.assertRaises(BadUserData) as caught:
            decode(text)
        self.assertIn(told, str(caught.exception))

    def test_texts_that_are_none(self) -> None:
        self.refused("%%", "base64")
        self.refused("", "empty")
        self.refused(base64.b64encode(b"#" * 16_385).decode(), "16384")
        self.refused(base64.b64encode(b"#!/bin/sh\n").decode(), "not a YAML mapping")
        self.refused(mime(("text/x-shellscript", "#!/bin/sh")), "no part")
        self.refused(mime(("application/node.eks.aws", "kind: Other")), "apiVersion and kind")
        self.refused(mime(("application/node.eks.aws", "a: [")), "not YAML")

    def test_a_message_whose_end_is_missing(self) -> None:
        cut = base64.b64decode(user_data())[: -len("--//--")]
        self.refused(base64.b64encode(cut).decode(), "broken MIME")

    def test_fields(self) -> None:
        for path, value, told in (
            ("cluster__name", None, "spec.cluster.name"),
            ("cluster__apiServerEndpoint", "", "spec.cluster.apiServerEndpoint"),
            ("cluster__certificateAuthority", "!", "spec.cluster.certificateAuthority"),
            ("cluster__cidr", "10.96.0.1/16", "spec.cluster.cidr"),
            ("cluster__cidr", None, "spec.cluster.cidr"),
            ("kubelet__config__maxPods", None, "maxPods"),
            ("kubelet__config__maxPods", "29", "maxPods"),
            ("kubelet__config__clusterDNS", ["kube-dns"], "clusterDNS"),
            ("kubelet__config__registerWithTaints", [{"key": "a"}], "registerWithTaints[0]"),
            ("kubelet__config__registerWithTaints", [{"key": "a", "effect": "NoSchedule"}] * 2, "twice"),
            ("kubelet__config__kubeReserved", {"cpu": 1}, "kubeReserved"),
            ("kubelet__flags", ["node-labels=a=b"], "is not a flag"),
        ):
            self.refused(user_data(**{path: value}), told)

    def test_labels_that_the_kubelet_does_not_start_with(self) -> None:
        for label in ("kubernetes.io/role=a", "node-restriction.kubernetes.io/x=a", "kops.k8s.io/x=a", "a b=c", "a=b c", "a"):
            self.refused(user_data(kubelet__flags=[f"--node-labels={label}"]), "--node-labels")
        for label in ("node.kubernetes.io/x=a", "topology.kubernetes.io/zone=a", "karpenter.k8s.aws/x=a", "a="):
            decode(user_data(kubelet__flags=[f"--node-labels={label}"]))


if __name__ == "__main__":
    unittest.main()
