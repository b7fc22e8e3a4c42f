"""Requests for generated valid classes and pools are valid. The seed and the number of cases are in the failure's text."""

from __future__ import annotations

import os
import random
import unittest

from .model import faults
from .support import deployment, node_class, pool, requests

SEED = int(os.environ.get("JUDGE_SEED", "1"))
# Each takes about 0.3 s; the whole judge stays below a minute.
CASES = int(os.environ.get("JUDGE_CASES", "40"))
FAMILIES = ["AL2", "AL2023", "Bottlerocket", "Custom", "Windows2022"]


def maybe(draw, make):
    return make() if draw.random() < 0.5 else None


def present(**members):
    return {key: value for key, value in members.items() if value is not None}


def volume(draw):
    kind = draw.choice(["standard", "io1", "io2", "gp2", "sc1", "st1", "gp3"])
    snapshot = maybe(draw, lambda: "snap-1")
    return present(
        volumeSize=draw.choice(["1Gi", "100Gi", "59000Gi", "1Ti", "64T", "500G"]), volumeType=kind, snapshotID=snapshot,
        iops=maybe(draw, lambda: draw.randint(100, 64_000)), throughput=maybe(draw, lambda: draw.randint(125, 1_000)),
        encrypted=maybe(draw, lambda: draw.random() < 0.5), deleteOnTermination=maybe(draw, lambda: draw.random() < 0.5),
        kmsKeyID=maybe(draw, lambda: "alias/key"),
        volumeInitializationRate=maybe(draw, lambda: draw.randint(100, 300)) if snapshot else None,
    )


def drawn_class(draw):
    family = draw.choice(FAMILIES)
    terms = [{"id": "ami-1"}] if family == "Custom" else [{"alias": f"{family.lower()}@latest"}]
    switch = lambda: draw.choice(["enabled", "disabled"])
    devices = [{"deviceName": f"/dev/xvd{letter}", "ebs": volume(draw)} for letter in "abc"[:draw.randint(1, 3)]]
    text = {"Bottlerocket": "[settings.motd]\n", "Windows2022": "Write-Host 1\n"}.get(family, "#!/bin/sh\ntrue\n")
    tracking = {"tcpEstablishedTimeout": draw.randint(60, 432_000), "udpTimeout": draw.randint(30, 60)}
    taken = draw.choice([("role", "node"), ("instanceProfile", "profile")])
    return node_class(
        amiFamily=family, amiSelectorTerms=terms, **{"role": None, taken[0]: taken[1]},
        userData=maybe(draw, lambda: text), tags=maybe(draw, lambda: {f"k{i}": "v" * i for i in range(draw.randint(1, 40))}),
        associatePublicIPAddress=maybe(draw, lambda: draw.random() < 0.5), ipPrefixCount=maybe(draw, lambda: draw.randint(0, 9)),
        blockDeviceMappings=maybe(draw, lambda: devices), instanceStorePolicy=maybe(draw, lambda: "RAID0"),
        detailedMonitoring=maybe(draw, lambda: draw.random() < 0.5), context=maybe(draw, lambda: "context"),
        connectionTracking=maybe(draw, lambda: tracking), kubelet=maybe(draw, lambda: {"maxPods": draw.randint(10, 200)}),
        metadataOptions=maybe(draw, lambda: {
            "httpEndpoint": switch(), "httpProtocolIPv6": switch(), "httpTokens": draw.choice(["required", "optional"]),
            "httpPutResponseHopLimit": draw.randint(1, 64),
        }),
    )


def drawn_pool(draw):
    categories = {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": draw.sample(["c", "m", "r", "t"], 2)}
    capacity = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": draw.choice([["spot"], ["on-demand"], ["spot", "on-demand"]])}
    made = pool(requirements=[categories, capacity], metadata={"labels": {"team": f"t{draw.randint(0, 9)}"}})
    made["spec"]["template"]["spec"]["requirements"].pop(0)
    return made


class Generated(unittest.TestCase):
    def test_requests_are_valid(self):
        launched = 0
        for number in range(CASES):
            draw = random.Random(f"{SEED}-{number}")
            objects = [drawn_class(draw), drawn_pool(draw), deployment(draw.randint(1, 20))]
            with self.subTest(seed=SEED, case=number, node_class=objects[0]["spec"]):
                for launch in requests(objects, {})["launches"]:
                    launched += 1
                    for template in launch["createLaunchTemplate"]:
                        self.assertEqual(faults("CreateLaunchTemplate", template), [])
                    self.assertEqual(faults("CreateFleet", launch["createFleet"]), [])
        self.assertGreater(launched, CASES // 2)


if __name__ == "__main__":
    unittest.main()
