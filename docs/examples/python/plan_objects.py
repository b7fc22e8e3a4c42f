"""Asks a Plimsoll scheduler which nodes the objects of a cluster want, and prints the plan in lines.

The objects are read from stdin, as `kubectl get ... -o json` prints them. The scheduler holds no state: the request
brings all that there is to know.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import grpc

# grpcio-tools compiles the .proto files while they are imported; they are found by sys.path.
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "proto"))
messages, services = grpc.protos_and_services("plimsoll/objects/v1/objects.proto")

# The scheduler sends at most 16 MiB, and gRPC accepts 4 MiB by default.
MAX_ANSWER_BYTES = 16 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description="asks a Plimsoll scheduler for a plan for Kubernetes objects")
    parser.add_argument("--scheduler", default="127.0.0.1:9452", metavar="HOST:PORT", help="its open port (default: %(default)s)")
    parser.add_argument("--region", default="us-east-1", help="region of the built-in catalog (default: %(default)s)")
    parser.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS")
    args = parser.parse_args()
    request = messages.PlanObjectsRequest(objects=[sys.stdin.read()], region=args.region)
    options = [("grpc.max_receive_message_length", MAX_ANSWER_BYTES)]
    with grpc.insecure_channel(args.scheduler, options) as channel:
        try:
            answer = services.ObjectPlannerServiceStub(channel).PlanObjects(request, timeout=args.timeout)
        except grpc.RpcError as error:
            # INVALID_ARGUMENT names the object and the field of each fault.
            sys.exit(f"plan_objects.py: {error.code().name}: {error.details()}")
    for ignored in answer.ignored:
        print(f"ignored: {ignored.count} of {ignored.kind}", file=sys.stderr)
    print("\n".join(answer.lines))


if __name__ == "__main__":
    main()
