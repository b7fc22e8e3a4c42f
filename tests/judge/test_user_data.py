"""User data, parsed by the parsers of its formats: Python's email for MIME, PyYAML, tomllib, bash."""

from __future__ import annotations

import copy
import email
import json
import re
import shlex
import subprocess
import tomllib
import unittest

import yaml

from .support import FACTS, deployment, node_class, pool, user_data

SCRIPT = "#!/bin/bash\nset -e\necho \"it's $HOME\"\n"
NODE_CONFIG = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  kubelet:\n    config: {maxPods: 3}\n"
MIME = (
    "MIME-Version: 1.0\r\nContent-Type: multipart/mixed;\r\n boundary=\"BOUNDARY\"\r\n\r\n--BOUNDARY\r\n"
    "Content-Type: text/cloud-config; charset=\"us-ascii\"\r\nContent-Disposition: attachment; filename=\"a\"\r\n\r\n"
    "packages: [jq]\r\n--BOUNDARY\r\nContent-Type: text/x-shellscript\r\n\r\n#!/bin/sh\r\necho two\r\n--BOUNDARY--\r\n"
)
LABELS = {
    "karpenter.k8s.aws/ec2nodeclass": "default", "karpenter.sh/capacity-type": "spot",
    "karpenter.sh/do-not-sync-taints": "true", "karpenter.sh/nodepool": "default",
}
UNREGISTERED = {"key": "karpenter.sh/unregistered", "effect": "NoExecute"}
KUBELET = {
    "maxPods": 42, "podsPerCore": 9, "systemReserved": {"cpu": "100m", "memory": "1Gi"}, "kubeReserved": {"pid": "10"},
    "evictionHard": {"memory.available": "5%", "nodefs.available": "10%"}, "evictionSoft": {"memory.available": "10%"},
    "evictionSoftGracePeriod": {"memory.available": "1m"}, "evictionMaxPodGracePeriod": 30,
    "imageGCHighThresholdPercent": 80, "imageGCLowThresholdPercent": 50, "cpuCFSQuota": False, "clusterDNS": ["10.0.0.9"],
}
FLAGS = {
    "--max-pods": "42", "--pods-per-core": "9", "--system-reserved": "cpu=100m,memory=1Gi", "--kube-reserved": "pid=10",
    "--eviction-hard": "memory.available<5%,nodefs.available<10%", "--eviction-soft": "memory.available<10%",
    "--eviction-soft-grace-period": "memory.available=1m", "--eviction-max-pod-grace-period": "30",
    "--image-gc-high-threshold": "80", "--image-gc-low-threshold": "50", "--cpu-cfs-quota": "false",
}
IPV6 = copy.deepcopy(FACTS)
IPV6["cluster"].update(serviceCIDR="fd00::/108", dnsAddress="fd00::a")


def alias(family, **spec):
    return node_class(amiFamily=family, amiSelectorTerms=[{"alias": f"{family.lower()}@latest"}], **spec)


def render(cls, facts=None, **template):
    return user_data([cls, pool(**template), deployment(spec={"tolerations": [{"operator": "Exists"}]})], facts)


def parts(text):
    message = email.message_from_string(text)
    assert message.get_content_type() == "multipart/mixed" and not message.defects, message.defects
    for part in message.get_payload():
        assert not part.defects and part.get_content_type() != "multipart/mixed", part.defects
    return message.get_payload()


def kinds(text):
    return [part.get_content_type() for part in parts(text)]


def config(text):
    return yaml.safe_load(parts(text)[-1].get_payload())


def labels(text):
    return dict(item.split("=") for item in text.split(","))


class Test(unittest.TestCase):
    maxDiff = None

    def bootstrap(self, text):
        """Words of the bootstrap.sh call, split by bash."""
        script = parts(text)[-1].get_payload()
        self.assertEqual(parts(text)[-1].get_content_type(), "text/x-shellscript")
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
        self.assertTrue(script.startswith("#!/bin/bash -xe\n"))
        call = script[script.index("/etc/eks/bootstrap.sh"):]
        words = subprocess.run(["bash", "-c", "f() { printf '%s\\0' \"$@\"; }; f " + call], capture_output=True, text=True, check=True)
        return words.stdout.split("\0")[1:-1]

    def flags(self, text):
        return dict(flag.split("=", 1) for flag in shlex.split(text))


class AmazonLinux2023(Test):
    def test_own_text_of_every_form(self):
        forms = [
            (None, []), ("", []), (SCRIPT, ["text/x-shellscript"]), (NODE_CONFIG, ["application/node.eks.aws"]),
            ("---\n" + NODE_CONFIG + "---\n" + NODE_CONFIG, ["application/node.eks.aws"]),
            (json.dumps(yaml.safe_load(NODE_CONFIG)), ["application/node.eks.aws"]),
            (MIME, ["text/cloud-config", "text/x-shellscript"]),
        ]
        for own, expected in forms:
            with self.subTest(own):
                self.assertEqual(kinds(render(alias("AL2023", userData=own))), [*expected, "application/node.eks.aws"])

    def test_own_parts_keep_headers_and_bodies(self):
        text = render(alias("AL2023", userData=MIME))
        self.assertNotIn("\r", text)
        first, second, _ = parts(text)
        self.assertEqual((first["Content-Disposition"], first.get_payload().strip()),
                         ('attachment; filename="a"', "packages: [jq]"))
        self.assertEqual(second.get_payload().strip(), "#!/bin/sh\necho two")
        self.assertEqual(parts(render(alias("AL2023", userData=SCRIPT)))[0].get_payload().strip(), SCRIPT.strip())

    def test_a_part_without_header_keeps_its_first_line(self):
        own = "Content-Type: multipart/mixed; boundary=B\n\n--B\n\n#!/bin/sh\necho\n--B--\n"
        self.assertTrue(parts(render(alias("AL2023", userData=own)))[0].get_payload().startswith("#!/bin/sh"))

    def test_leading_blanks_do_not_hide_what_a_script_is_run_by(self):
        self.assertTrue(parts(render(alias("AL2023", userData="\n\n" + SCRIPT)))[0].get_payload().startswith("#!/bin/bash"))

    def test_node_config(self):
        found = config(render(alias("AL2023", instanceStorePolicy="RAID0")))
        flags = found["spec"]["kubelet"].pop("flags")
        self.assertEqual([labels(it.removeprefix('--node-labels="').removesuffix('"')) for it in flags], [LABELS])
        self.assertEqual(found, {
            "apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig",
            "spec": {
                "cluster": {"name": "shop", "apiServerEndpoint": "https://shop.example", "certificateAuthority": "Y2E=",
                            "cidr": "10.100.0.0/16"},
                "instance": {"localStorage": {"strategy": "RAID0"}},
                "kubelet": {"config": {"maxPods": 58, "clusterDNS": ["10.100.0.10"], "registerWithTaints": [UNREGISTERED]}},
            },
        })

    def test_kubelet_settings_are_kept_as_written(self):
        own = {**KUBELET, "topologyManagerPolicy": "best-effort", "shutdownGracePeriod": "30s"}
        found = config(render(alias("AL2023", kubelet=own)))["spec"]["kubelet"]["config"]
        self.assertEqual(found, {**own, "registerWithTaints": [UNREGISTERED]})

    def test_taints_of_every_value_stay_texts(self):
        values = [None, "true", "yes", "on", "null", "0x1F", "010", "1e3", "1_000", "2024-01-01", "12.5", "NaN", "y"]
        taints = [{"key": f"k{i}", "effect": "NoSchedule"} | ({"value": value} if value else {}) for i, value in enumerate(values)]
        startup = [{"key": "starts", "value": "a", "effect": "NoExecute"}]
        text = render(alias("AL2023"), spec={"taints": taints, "startupTaints": startup})
        found = config(text)["spec"]["kubelet"]["config"]["registerWithTaints"]
        self.assertEqual(found, [*taints, *startup, UNREGISTERED])

    def test_ipv6(self):
        spec = config(render(alias("AL2023"), IPV6))["spec"]
        self.assertEqual((spec["cluster"]["cidr"], spec["kubelet"]["config"]["clusterDNS"]), ("fd00::/108", ["fd00::a"]))

    def test_labels_that_a_kubelet_may_not_set_are_left_out(self):
        metadata = {"labels": {"team": "a", "sub.kubernetes.io/x": "1", "node-restriction.kubernetes.io/y": "1", "my-k8s.io/z": "1"}}
        flag = config(render(alias("AL2023"), metadata=metadata))["spec"]["kubelet"]["flags"][0]
        self.assertEqual(labels(flag.removeprefix('--node-labels="').removesuffix('"')), {**LABELS, "team": "a", "my-k8s.io/z": "1"})


class AmazonLinux2(Test):
    def test_own_text_of_every_form(self):
        for own, expected in [(None, []), (SCRIPT, ["text/x-shellscript"]), (MIME, ["text/cloud-config", "text/x-shellscript"])]:
            with self.subTest(own):
                self.assertEqual(kinds(render(alias("AL2", userData=own))), [*expected, "text/x-shellscript"])

    def test_arguments(self):
        words = self.bootstrap(render(alias("AL2", instanceStorePolicy="RAID0", kubelet=KUBELET)))
        self.assertEqual(words[0], "shop")
        found = dict(zip(words[1::2], words[2::2], strict=True))
        flags = self.flags(found.pop("--kubelet-extra-args"))
        self.assertEqual(found, {
            "--apiserver-endpoint": "https://shop.example", "--b64-cluster-ca": "Y2E=", "--dns-cluster-ip": "10.0.0.9",
            "--use-max-pods": "false", "--local-disks": "raid0",
        })
        self.assertEqual(labels(flags.pop("--node-labels")), LABELS)
        self.assertEqual(flags.pop("--register-with-taints"), "karpenter.sh/unregistered:NoExecute")
        self.assertEqual(flags, FLAGS)

    def test_ipv6_and_no_authority(self):
        facts = copy.deepcopy(IPV6)
        facts["cluster"]["certificateAuthority"] = ""
        words = self.bootstrap(render(alias("AL2"), facts))
        found = dict(zip(words[1::2], words[2::2], strict=True))
        self.assertEqual((found["--ip-family"], found["--dns-cluster-ip"]), ("ipv6", "fd00::a"))
        self.assertNotIn("--b64-cluster-ca", found)

    def test_ipv6_without_a_dns_address(self):
        facts = copy.deepcopy(IPV6)
        facts["cluster"]["dnsAddress"] = ""
        words = self.bootstrap(render(alias("AL2"), facts))
        found = dict(zip(words[1::2], words[2::2], strict=True))
        self.assertEqual((found["--ip-family"], found["--service-ipv6-cidr"]), ("ipv6", "fd00::/108"))
        self.assertNotIn("--dns-cluster-ip", found)


class Bottlerocket(Test):
    def test_settings(self):
        own = (
            "[settings.host-containers.admin]\nenabled = true\n[settings.kubernetes]\nlog-level = 3\nunknown = 1\nmax-pods = 7\n"
            "[settings.kubernetes.node-labels]\nmine = \"1\"\n\"karpenter.sh/nodepool\" = \"no\"\n"
            "[settings.kubernetes.node-taints]\nmine = [\"a:NoSchedule\"]\n"
            "[settings.bootstrap-commands.zzz]\ncommands = [[\"apiclient\"]]\nmode = \"once\"\nessential = false\n"
        )
        kubelet = {key: value for key, value in KUBELET.items() if key != "podsPerCore"}
        taints = [{"key": "a", "value": "b", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}]
        cls = alias("Bottlerocket", userData=own, kubelet=kubelet, instanceStorePolicy="RAID0")
        found = tomllib.loads(render(cls, spec={"taints": taints}))["settings"]
        self.assertEqual(found["host-containers"], {"admin": {"enabled": True}})
        self.assertEqual(found["bootstrap-commands"], {
            "000-mount-instance-storage": {
                "commands": [["apiclient", "ephemeral-storage", "init"], ["apiclient", "ephemeral-storage", "bind"]],
                "mode": "always", "essential": True,
            },
            "zzz": {"commands": [["apiclient"]], "mode": "once", "essential": False},
        })
        self.assertEqual(found["kubernetes"], {
            "api-server": "https://shop.example", "cluster-certificate": "Y2E=", "cluster-name": "shop", "max-pods": 42,
            "cluster-dns-ip": "10.0.0.9", "log-level": 3, "system-reserved": {"cpu": "100m", "memory": "1Gi"},
            "kube-reserved": {"pid": "10"}, "eviction-hard": KUBELET["evictionHard"], "eviction-soft": KUBELET["evictionSoft"],
            "eviction-soft-grace-period": KUBELET["evictionSoftGracePeriod"], "eviction-max-pod-grace-period": 30,
            "image-gc-high-threshold-percent": "80", "image-gc-low-threshold-percent": "50", "cpu-cfs-quota-enforced": False,
            "node-labels": {**LABELS, "mine": "1"},
            "node-taints": {"a": ["b:NoSchedule", ":NoExecute"], "karpenter.sh/unregistered": [":NoExecute"]},
        })

    def test_old_versions_are_told_what_to_mount(self):
        cls = node_class(amiFamily=None, amiSelectorTerms=[{"alias": "bottlerocket@v1.45.0"}], instanceStorePolicy="RAID0")
        commands = tomllib.loads(render(cls))["settings"]["bootstrap-commands"]["000-mount-instance-storage"]["commands"]
        self.assertEqual(commands[1][3:], ["--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"])


class Windows(Test):
    def test_script(self):
        metadata = [{"key": "kubernetes.io/os", "operator": "In", "values": ["windows"]}]
        cls = alias("Windows2022", userData="Write-Host 'own'", kubelet=KUBELET, instanceStorePolicy="RAID0")
        text = render(cls, requirements=metadata)
        self.assertTrue(text.startswith("<powershell>\n") and text.rstrip().endswith("</powershell>"))
        lines = text.strip().splitlines()[1:-1]
        self.assertEqual(lines[0], "Write-Host 'own'")
        # PowerShell's single-quoted strings are those of shlex, except for doubled quotes, which are not used here.
        call = re.sub(r"^& \$EKSBootstrapScriptFile ", "", lines[-1])
        words = shlex.split(call)
        found = dict(zip(words[::2], words[1::2], strict=True))
        flags = self.flags(found.pop("-KubeletExtraArgs"))
        self.assertEqual(found, {"-EKSClusterName": "shop", "-APIServerEndpoint": "https://shop.example",
                                 "-Base64ClusterCA": "Y2E=", "-DNSClusterIP": "10.0.0.9"})
        self.assertEqual({key: flags[key] for key in FLAGS}, FLAGS)


class Custom(Test):
    def test_text_is_passed_on(self):
        own = "anything\r\n\tat all"
        self.assertEqual(render(node_class(amiFamily="Custom", amiSelectorTerms=[{"id": "ami-1"}], userData=own)), own)


if __name__ == "__main__":
    unittest.main()
