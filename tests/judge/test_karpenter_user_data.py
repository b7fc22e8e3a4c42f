"""User data in the cases of Karpenter's own tests: the same kinds of input, rewritten, and the resulting node settings.
Karpenter's cases: pkg/providers/launchtemplate/suite_test.go and its testdata in aws/karpenter-provider-aws."""

from __future__ import annotations

import tomllib
import unittest

import yaml

from . import powershell
from .support import FACTS, node_class, pool, run, deployment, texts_of_classes
from .test_user_data import IPV6, Test, alias, labels, parts

SCRIPT = "#!/bin/bash\necho 'set up'\n"
MIME = (
    "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"BOUNDARY\"\n\n--BOUNDARY\n"
    "Content-Type: text/x-shellscript; charset=\"us-ascii\"\n\n" + SCRIPT + "\n--BOUNDARY--\n"
)
CONTENT_TYPE_FIRST = MIME.replace("MIME-Version: 1.0\n", "").replace("BOUNDARY\"\n", "BOUNDARY\"\nMIME-Version: 1.0\n", 1).rstrip()
NODE_CONFIG = {
    "apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig",
    "spec": {"cluster": {"name": "other", "cidr": "10.0.0.0/16"}, "kubelet": {"config": {"maxPods": 7}}},
}
# Two parts; the last delimiter lacks the hyphens that end a document.
OPEN_END = (
    "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n--//\nContent-Type: application/node.eks.aws\n\n"
    + yaml.safe_dump(NODE_CONFIG) + "--//\nContent-Type: text/x-shellscript; charset=\"us-ascii\"\n\n" + SCRIPT + "--//\n"
)
TOML = """
[settings.kubernetes]
"no-such-setting" = "x"
api-server = 'https://other'
cloud-provider = 'external'
cluster-certificate = "other"
cluster-name = 'other'
max-pods = 9999999999 # ours wins

[settings.kubernetes.eviction-hard]
"memory.available" = "12%"

[settings.kubernetes.node-labels]
"own" = "1"
"karpenter.sh/nodepool" = "other"

[settings.kubernetes.node-taints]
"own" = ["x:NoSchedule"]

[settings.network]
hosts = [["10.0.0.0", ["a.example", "b.example"]]]
no-proxy = ["localhost"]
"""
COMMAND = "\n[settings.bootstrap-commands.111-own]\ncommands = [['echo', 'own']]\nmode = 'once'\nessential = false\n"
POWERSHELL = "Write-Host \"set up\"\nWrite-Host 'it''s done' # own\n"
PODS = {"kubelet": {"maxPods": 110}}
TAINTS = {
    "taints": [{"key": "dedicated", "value": "a", "effect": "NoExecute"}],
    "startupTaints": [{"key": "starts", "value": "b", "effect": "NoExecute"}],
}
WINDOWS = [{"key": "kubernetes.io/os", "operator": "In", "values": ["windows"]}]
ON_DEMAND = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]
TEMPLATE = {"metadata": {"labels": {"example.com/team": "a"}}}
UNREGISTERED = {"key": "karpenter.sh/unregistered", "effect": "NoExecute"}


def case(family, requirements=(), taints=None, **spec):
    template = {**TEMPLATE, **({"spec": taints} if taints else {})}
    return [alias(family, **spec), pool(requirements=[*ON_DEMAND, *requirements], **template)]


def custom(text):
    return [node_class(amiFamily="Custom", amiSelectorTerms=[{"id": "ami-1"}], userData=text), pool()]


CASES = {
    "al2-mime": case("AL2", userData=MIME, **PODS),
    "al2-content-type-first": case("AL2", userData=CONTENT_TYPE_FIRST, **PODS),
    "al2-script": case("AL2", userData=SCRIPT, **PODS),
    "al2-none": case("AL2", **PODS),
    "al2-raid0": case("AL2", instanceStorePolicy="RAID0"),
    "al2023-mime": case("AL2023", userData=OPEN_END, **PODS),
    "al2023-yaml": case("AL2023", userData=yaml.safe_dump(NODE_CONFIG), **PODS),
    "al2023-script": case("AL2023", userData=SCRIPT, **PODS),
    "al2023-none": case("AL2023", **PODS),
    "al2023-raid0": case("AL2023", instanceStorePolicy="RAID0"),
    "bottlerocket-toml": case("Bottlerocket", taints=TAINTS, userData=TOML, **PODS),
    "bottlerocket-none": case("Bottlerocket", taints=TAINTS, **PODS),
    "bottlerocket-raid0": case("Bottlerocket", instanceStorePolicy="RAID0"),
    "bottlerocket-raid0-own": case("Bottlerocket", instanceStorePolicy="RAID0", userData=COMMAND),
    "windows-own": case("Windows2022", WINDOWS, userData=POWERSHELL, **PODS),
    "windows-none": case("Windows2022", WINDOWS, **PODS),
    "custom": custom("special user data"),
}


class Karpenter(Test):
    @classmethod
    def setUpClass(cls):
        cls.texts = texts_of_classes(CASES)

    def labels_of(self, name):
        return {
            "example.com/team": "a", "karpenter.k8s.aws/ec2nodeclass": name, "karpenter.sh/capacity-type": "on-demand",
            "karpenter.sh/do-not-sync-taints": "true", "karpenter.sh/nodepool": name,
        }

    def node_config(self, name):
        return yaml.safe_load(parts(self.texts[name])[-1].get_payload())

    def test_amazon_linux_2_puts_own_parts_first(self):
        for form in ("mime", "content-type-first", "script"):
            with self.subTest(form):
                own, ours = parts(self.texts[f"al2-{form}"])
                self.assertEqual((own.get_content_type(), own.get_payload()), ("text/x-shellscript", SCRIPT))
                self.assertEqual(own.get_param("charset"), "us-ascii")
                self.assertEqual(ours.get_content_type(), "text/x-shellscript")
        self.assertEqual(len(parts(self.texts["al2-none"])), 1)

    def test_amazon_linux_2_bootstraps(self):
        for form in ("mime", "content-type-first", "script", "none"):
            with self.subTest(form):
                words = self.bootstrap(self.texts[f"al2-{form}"])
                found = dict(zip(words[1::2], words[2::2], strict=True))
                flags = self.flags(found.pop("--kubelet-extra-args"))
                self.assertEqual((words[0], found), ("shop", {
                    "--apiserver-endpoint": "https://shop.example", "--b64-cluster-ca": "Y2E=",
                    "--dns-cluster-ip": "10.100.0.10", "--use-max-pods": "false",
                }))
                self.assertEqual(labels(flags.pop("--node-labels")), self.labels_of(f"al2-{form}"))
                self.assertEqual(flags, {
                    "--register-with-taints": "karpenter.sh/unregistered:NoExecute", "--max-pods": "110",
                })
        words = self.bootstrap(self.texts["al2-raid0"])
        self.assertEqual(dict(zip(words[1::2], words[2::2], strict=True))["--local-disks"], "raid0")

    def test_amazon_linux_2023_merges_own_parts_before_ours(self):
        config, script = ("application/node.eks.aws", yaml.safe_dump(NODE_CONFIG)), ("text/x-shellscript", SCRIPT)
        # The newline before a delimiter belongs to the delimiter.
        stripped = ("text/x-shellscript", SCRIPT.removesuffix("\n"))
        open_config = ("application/node.eks.aws", yaml.safe_dump(NODE_CONFIG).removesuffix("\n"))
        for form, own in [("mime", [open_config, stripped]), ("yaml", [config]), ("script", [script]), ("none", [])]:
            with self.subTest(form):
                name = f"al2023-{form}"
                *others, _ = parts(self.texts[name])
                self.assertEqual([(it.get_content_type(), it.get_payload()) for it in others], own)
                found = self.node_config(name)
                flags = found["spec"]["kubelet"].pop("flags")
                self.assertEqual([labels(it.removeprefix('--node-labels="').removesuffix('"')) for it in flags],
                                 [self.labels_of(name)])
                self.assertEqual(found, {
                    "apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig",
                    "spec": {
                        "cluster": {"name": "shop", "apiServerEndpoint": "https://shop.example",
                                    "certificateAuthority": "Y2E=", "cidr": "10.100.0.0/16"},
                        "kubelet": {"config": {"maxPods": 110, "clusterDNS": ["10.100.0.10"],
                                               "registerWithTaints": [UNREGISTERED]}},
                    },
                })
        self.assertEqual(self.node_config("al2023-raid0")["spec"]["instance"], {"localStorage": {"strategy": "RAID0"}})

    def kubernetes(self, name, **more):
        own = more.pop("labels", {})
        return {
            "api-server": "https://shop.example", "cluster-certificate": "Y2E=", "cluster-name": "shop", "max-pods": 110,
            "cluster-dns-ip": "10.100.0.10", "node-labels": {**self.labels_of(name), **own},
            "node-taints": {"dedicated": ["a:NoExecute"], "starts": ["b:NoExecute"],
                            "karpenter.sh/unregistered": [":NoExecute"]},
            **more,
        }

    def test_bottlerocket_merges_settings(self):
        found = tomllib.loads(self.texts["bottlerocket-toml"])
        self.assertEqual(found, {"settings": {
            "kubernetes": self.kubernetes("bottlerocket-toml", labels={"own": "1"}, **{
                "cloud-provider": "external", "eviction-hard": {"memory.available": "12%"}}),
            "network": {"hosts": [["10.0.0.0", ["a.example", "b.example"]]], "no-proxy": ["localhost"]},
        }})
        found = tomllib.loads(self.texts["bottlerocket-none"])
        self.assertEqual(found, {"settings": {"kubernetes": self.kubernetes("bottlerocket-none")}})

    def test_bottlerocket_mounts_instance_disks_beside_own_commands(self):
        mount = {"commands": [["apiclient", "ephemeral-storage", "init"], ["apiclient", "ephemeral-storage", "bind"]],
                 "mode": "always", "essential": True}
        own = {"111-own": {"commands": [["echo", "own"]], "mode": "once", "essential": False}}
        for name, others in [("bottlerocket-raid0", {}), ("bottlerocket-raid0-own", own)]:
            found = tomllib.loads(self.texts[name])["settings"]["bootstrap-commands"]
            self.assertEqual(found, {"000-mount-instance-storage": mount, **others})

    def test_bottlerocket_refuses_what_is_not_toml(self):
        cls, its_pool = case("Bottlerocket", userData="#/bin/bash\n ./not-toml.sh")
        status, stdout, stderr = run([cls, its_pool, deployment()])
        self.assertEqual((status, stdout), (2, ""))
        self.assertIn("EC2NodeClass default: spec.userData: not TOML", stderr)

    def test_windows_runs_own_commands_first(self):
        own = [["Write-Host", "set up"], ["Write-Host", "it's done"]]
        for name, first in [("windows-own", own), ("windows-none", [])]:
            with self.subTest(name):
                text = self.texts[name].strip()
                self.assertTrue(text.startswith("<powershell>\n") and text.endswith("\n</powershell>"))
                *others, assignment, call = powershell.statements(text[len("<powershell>"):-len("</powershell>")])
                self.assertEqual([[it.value for it in statement] for statement in others], first)
                self.assertEqual([it.value for it in assignment], [
                    "[string]", "$EKSBootstrapScriptFile", "=",
                    "$env:ProgramFiles\\Amazon\\EKS\\Start-EKSBootstrap.ps1",
                ])
                self.assertEqual([it.value for it in call[:2]], ["&", "$EKSBootstrapScriptFile"])
                found = powershell.arguments(call[2:])
                flags = self.flags(found.pop("-KubeletExtraArgs"))
                self.assertEqual(found, {"-EKSClusterName": "shop", "-APIServerEndpoint": "https://shop.example",
                                         "-Base64ClusterCA": "Y2E=", "-DNSClusterIP": "10.100.0.10"})
                self.assertEqual(labels(flags.pop("--node-labels")), self.labels_of(name))
                self.assertEqual(flags, {"--register-with-taints": "karpenter.sh/unregistered:NoExecute",
                                         "--max-pods": "110"})

    def test_custom_text_is_untouched(self):
        self.assertEqual(self.texts["custom"], "special user data")


class Requirements(Test):
    def test_single_values_of_requirements_become_labels(self):
        requirement = [{"key": f"example.com/{name}", "operator": "In", "values": [name]} for name in ("one", "two")]
        restricted = [{"key": "sub.node-restriction.kubernetes.io/x", "operator": "In", "values": ["y"]}]
        families = ("AL2", "AL2023", "Bottlerocket")
        texts = texts_of_classes({it.lower(): case(it, [*requirement, *restricted]) for it in families})
        own = {"example.com/one": "one", "example.com/two": "two", "example.com/team": "a"}
        found = [
            labels(self.flags(dict(zip(*[iter(self.bootstrap(texts["al2"])[1:])] * 2))["--kubelet-extra-args"])["--node-labels"]),
            labels(yaml.safe_load(parts(texts["al2023"])[-1].get_payload())["spec"]["kubelet"]["flags"][0][15:-1]),
            tomllib.loads(texts["bottlerocket"])["settings"]["kubernetes"]["node-labels"],
        ]
        for its in found:
            self.assertEqual({key: value for key, value in its.items() if key.startswith("example.com/")}, own)
            self.assertFalse([key for key in its if "node-restriction" in key])


class KubeletFields(Test):
    """Each kubelet setting separately, for each family that supports it."""

    FIELDS = {
        "clusterDNS": (["10.0.0.9"], "--dns", "10.0.0.9", "cluster-dns-ip", "10.0.0.9"),
        "maxPods": (42, "--max-pods", "42", "max-pods", 42),
        "podsPerCore": (2, "--pods-per-core", "2", None, None),
        "systemReserved": ({"cpu": "500m", "memory": "1Gi"}, "--system-reserved", "cpu=500m,memory=1Gi", "system-reserved",
                           {"cpu": "500m", "memory": "1Gi"}),
        "kubeReserved": ({"pid": "9"}, "--kube-reserved", "pid=9", "kube-reserved", {"pid": "9"}),
        "evictionHard": ({"memory.available": "10%"}, "--eviction-hard", "memory.available<10%", "eviction-hard",
                         {"memory.available": "10%"}),
        "evictionSoft": ({"nodefs.inodesFree": "5%"}, "--eviction-soft", "nodefs.inodesFree<5%", "eviction-soft",
                         {"nodefs.inodesFree": "5%"}),
        "evictionSoftGracePeriod": ({"nodefs.inodesFree": "1m30s"}, "--eviction-soft-grace-period", "nodefs.inodesFree=1m30s",
                                    "eviction-soft-grace-period", {"nodefs.inodesFree": "1m30s"}),
        "evictionMaxPodGracePeriod": (300, "--eviction-max-pod-grace-period", "300", "eviction-max-pod-grace-period", 300),
        "imageGCHighThresholdPercent": (50, "--image-gc-high-threshold", "50", "image-gc-high-threshold-percent", "50"),
        "imageGCLowThresholdPercent": (50, "--image-gc-low-threshold", "50", "image-gc-low-threshold-percent", "50"),
        "cpuCFSQuota": (False, "--cpu-cfs-quota", "false", "cpu-cfs-quota-enforced", False),
    }
    # The kubelet accepts a soft threshold only with its grace period.
    BESIDE = {"evictionSoft": {"evictionSoftGracePeriod": {"nodefs.inodesFree": "1m"}},
              "evictionSoftGracePeriod": {"evictionSoft": {"nodefs.inodesFree": "5%"}}}

    @classmethod
    def setUpClass(cls):
        cases = {}
        for field, (value, *_, setting, _) in cls.FIELDS.items():
            kubelet = {field: value, **cls.BESIDE.get(field, {})}
            for family in ("AL2", "AL2023", "Bottlerocket", "Windows2019", "Windows2022", "Windows2025"):
                if family != "Bottlerocket" or setting:
                    needed = WINDOWS if family.startswith("Windows") else []
                    cases[f"{family}-{field}".lower()] = case(family, needed, kubelet=kubelet)
        cls.texts = texts_of_classes(cases)

    def test_each_field_of_each_family(self):
        for field, (value, flag, text, setting, expected) in self.FIELDS.items():
            with self.subTest(field):
                name = f"-{field}".lower()
                found = yaml.safe_load(parts(self.texts["al2023" + name])[-1].get_payload())["spec"]["kubelet"]["config"]
                self.assertEqual(found[field], value)
                words = self.bootstrap(self.texts["al2" + name])
                arguments = dict(zip(words[1::2], words[2::2], strict=True))
                flags = {**self.flags(arguments["--kubelet-extra-args"]), "--dns": arguments["--dns-cluster-ip"]}
                self.assertEqual(flags[flag], text)
                for year in ("2019", "2022", "2025"):
                    script = self.texts[f"windows{year}{name}"].replace("<powershell>", "").replace("</powershell>", "")
                    call = powershell.arguments(powershell.statements(script)[-1][2:])
                    flags = {**self.flags(call["-KubeletExtraArgs"]), "--dns": call["-DNSClusterIP"]}
                    self.assertEqual(flags[flag], text)
                if setting:
                    kubernetes = tomllib.loads(self.texts["bottlerocket" + name])["settings"]["kubernetes"]
                    self.assertEqual(kubernetes[setting], expected)


class IPv6(Test):
    def test_every_family_gets_the_address(self):
        families = {"AL2": [], "AL2023": [], "Bottlerocket": [], "Windows2022": WINDOWS}
        texts = texts_of_classes({it.lower(): case(it, needed) for it, needed in families.items()}, IPV6)
        words = self.bootstrap(texts["al2"])
        found = dict(zip(words[1::2], words[2::2], strict=True))
        self.assertEqual((found["--ip-family"], found["--dns-cluster-ip"]), ("ipv6", "fd00::a"))
        spec = yaml.safe_load(parts(texts["al2023"])[-1].get_payload())["spec"]
        self.assertEqual((spec["cluster"]["cidr"], spec["kubelet"]["config"]["clusterDNS"]), ("fd00::/108", ["fd00::a"]))
        self.assertEqual(tomllib.loads(texts["bottlerocket"])["settings"]["kubernetes"]["cluster-dns-ip"], "fd00::a")
        self.assertIn("-DNSClusterIP 'fd00::a'", texts["windows2022"])


class Grammar(unittest.TestCase):
    """The tokenizer rejects input that is not PowerShell."""

    def test_quotes(self):
        self.assertEqual([it.value for it in powershell.tokens("f 'it''s' \"a \"\"b\"\" `\"c\"")], ["f", "it's", 'a "b" `"c'])
        for broken in ("f 'it's'", 'f "a', "f {"):
            with self.assertRaises(ValueError):
                powershell.tokens(broken)


if __name__ == "__main__":
    unittest.main()
