"""python -m plimsoll_kubelet --kubeconfig FILE --endpoint URL --cluster-name NAME"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path

from plimsoll_kubelet.cluster import Cluster
from plimsoll_kubelet.ec2 import Ec2
from plimsoll_kubelet.node import Expected
from plimsoll_kubelet.standin import StandIn

UNREGISTERED = "karpenter.sh/unregistered:NoExecute"


def main() -> None:
    parser = argparse.ArgumentParser(prog="plimsoll_kubelet", description="makes a Node of every instance that tests/ec2 runs; status 1 if one was told something wrong")
    parser.add_argument("--kubeconfig", type=Path, required=True, help="of an administrator, with a client certificate")
    parser.add_argument("--endpoint", required=True, help="of tests/ec2")
    parser.add_argument("--cluster-name", required=True, help="that user data must name")
    parser.add_argument("--cluster-endpoint", help="that user data must name (default: the kubeconfig's server)")
    parser.add_argument("--require-taint", action="append", metavar="KEY:EFFECT", help=f"that a node must register with; repeatable (default: {UNREGISTERED})")
    parser.add_argument("--boot-seconds", type=float, default=0.0, help="from running to registered")
    parser.add_argument("--every", type=float, default=0.2, help="seconds between looks")
    parser.add_argument("--report", type=Path, help="JSON file: nodes, gone, errors")
    args = parser.parse_args()

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    cluster = Cluster(args.kubeconfig)
    expected = Expected(
        cluster_name=args.cluster_name,
        endpoint=args.cluster_endpoint or cluster.server,
        certificate_authority=cluster.certificate_authority,
        service_cidr=cluster.service_cidr(),
        taints=tuple(args.require_taint or [UNREGISTERED]),
    )
    stand_in = StandIn(Ec2(args.endpoint), cluster, expected, args.boot_seconds, args.report)
    stand_in.write_report()
    print("ready", flush=True)
    stand_in.run(stop, args.every)
    stand_in.write_report()
    sys.exit(1 if stand_in.errors else 0)


if __name__ == "__main__":
    main()
