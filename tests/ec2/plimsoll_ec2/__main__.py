"""python -m plimsoll_ec2 serve | bootstrap"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(prog="plimsoll_ec2", description="moto's EC2 with capacity, prices, idempotency and faults, for tests")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="serve on 127.0.0.1 until SIGTERM")
    serve.add_argument("--port", type=int, default=0, help="default: a free one; the first line on stdout tells it")
    serve.add_argument("--prices", type=Path, action="append", default=[], metavar="FILE", help="{region: {type: usd}}, or what `plimsoll catalog -o json` prints; repeatable")
    serve.add_argument("--seed", type=int, help="slow calls, rare failures, throttling and delayed reads by this seed, as of POST /_faults")
    serve.add_argument("--answers", type=Path, metavar="FOLDER", help="keep slow answers about instance types here, for other servers of the same run")
    make = commands.add_parser("bootstrap", help="make subnets, a security group, the queue, the node role and its profile")
    make.add_argument("--endpoint", required=True)
    make.add_argument("--region", required=True)
    make.add_argument("--cluster", required=True)
    make.add_argument("--zone", action="append", help="default: every zone of the region; repeatable")
    args = parser.parse_args()
    if args.command == "serve":
        from plimsoll_ec2.seeded import seed_of
        from plimsoll_ec2.server import serve as run

        try:
            run(args.port, args.prices, seed_of(args.seed), args.answers)
        except ValueError as error:
            sys.exit(f"plimsoll_ec2: {error}")
    else:
        from plimsoll_ec2.bootstrap import bootstrap

        print(json.dumps(bootstrap(args.endpoint, args.region, args.cluster, args.zone)))


if __name__ == "__main__":
    main()
