"""Asks a Plimsoll scheduler which nodes a handful of pods want, and prints the plan.

The scheduler holds no state: the request brings all that there is to know, and the same request gets the same answer.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import grpc

# grpcio-tools compiles the .proto files while they are imported; they are found by sys.path.
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "proto"))
catalog = grpc.protos("plimsoll/catalog/v1/catalog.proto")
nodes = grpc.protos("plimsoll/snapshot/v1/nodes.proto")
plans = grpc.protos("plimsoll/plan/v1/plan.proto")
pods = grpc.protos("plimsoll/snapshot/v1/pods.proto")
requirements = grpc.protos("plimsoll/snapshot/v1/requirements.proto")
resources = grpc.protos("plimsoll/snapshot/v1/resources.proto")
scheduler, services = grpc.protos_and_services("plimsoll/scheduler/v1/scheduler.proto")
snapshots = grpc.protos("plimsoll/snapshot/v1/snapshot.proto")

GIB = 1024**3
MICRO = 1_000_000
ZONES = ("us-east-1a", "us-east-1b")
# Name, architecture, CPUs, GiB, US dollars per hour. A real client asks `plimsoll catalog` for all of them.
TYPES = (
    ("c6g.large", "arm64", 2, 4, 0.068),
    ("c6g.2xlarge", "arm64", 8, 16, 0.272),
    ("m6i.large", "amd64", 2, 8, 0.096),
    ("m6i.2xlarge", "amd64", 8, 32, 0.384),
)


def amounts(**values: int) -> list:
    """Resource amounts, sorted by name: CPU in thousandths, memory in bytes."""
    return [resources.ResourceAmount(name=name, amount=values[name]) for name in sorted(values)]


def example_catalog():
    """Four instance types, each for sale on demand and as Spot in two zones."""
    types = []
    for name, architecture, cpus, gib, price in TYPES:
        offerings = [
            catalog.Offering(zone=zone, capacity_type=kind, price_micro_usd_per_hour=round(price * share * MICRO), available=True)
            for zone in ZONES
            for kind, share in ((resources.CAPACITY_TYPE_ON_DEMAND, 1.0), (resources.CAPACITY_TYPE_SPOT, 0.4))
        ]
        labels = {
            "kubernetes.io/arch": architecture,
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": name,
            "topology.kubernetes.io/region": "us-east-1",
        }
        types.append(
            catalog.InstanceType(
                name=name,
                architecture=architecture,
                operating_systems=["linux"],
                capacity=amounts(cpu=cpus * 1000, memory=gib * GIB, pods=58),
                overhead=amounts(cpu=100, memory=GIB // 2),
                labels=labels,
                offerings=offerings,
            )
        )
    return catalog.Catalog(region="us-east-1", instance_types=types)


def example_pool():
    """A pool that buys Spot or on-demand. It names no catalog: the request has one."""
    either = requirements.NodeSelectorRequirement(
        key="karpenter.sh/capacity-type", operator=requirements.NODE_SELECTOR_OPERATOR_IN, values=["on-demand", "spot"]
    )
    never = nodes.Disruption(policy=nodes.CONSOLIDATION_POLICY_WHEN_EMPTY)
    return nodes.NodePool(name="default", node_class="default", requirements=[either], disruption=never)


def shape(name: str, cpu: int, memory: int, node_selector: dict[str, str] | None = None):
    """What pods of one kind want."""
    wanted = amounts(cpu=cpu, memory=memory, pods=1)
    return pods.PodShape(id=name, namespace="default", requests=wanted, node_selector=node_selector)


def example_snapshot():
    """A cluster without nodes and seven pods that wait: three of a web server, three of a batch job, one that fits nowhere."""
    now = int(time.time() * 1000)
    shapes = [
        shape("web", cpu=500, memory=GIB),
        shape("batch", cpu=1500, memory=2 * GIB, node_selector={"kubernetes.io/arch": "amd64"}),
        shape("giant", cpu=96_000, memory=8 * GIB),
    ]
    waiting = []
    for kind, count in (("web", 3), ("batch", 3), ("giant", 1)):
        for number in range(count):
            name = f"{kind}-{number}"
            waiting.append(
                pods.Pod(uid=f"default/{name}", namespace="default", name=name, shape=kind, pending=pods.PodPending(), created_unix_ms=now)
            )
    return snapshots.Snapshot(sequence=1, now_unix_ms=now, shapes=shapes, pods=waiting, node_pools=[example_pool()])


def show(plan) -> None:
    """One line for each launch and each pod without a place."""
    for launch in plan.launches:
        cheapest = launch.offerings[0]
        kind = resources.CapacityType.Name(cheapest.capacity_type).removeprefix("CAPACITY_TYPE_").lower().replace("_", "-")
        price = cheapest.price_micro_usd_per_hour / MICRO
        taken = " ".join(pod.name for pod in launch.pods)
        print(f"launch {cheapest.instance_type} {kind} in {cheapest.zone} at {price:.4f} USD/h for {taken}")
    for pod in plan.unschedulable:
        reasons = "; ".join(f"{reason.node_pool or 'pod'}: {reason.message}" for reason in pod.reasons)
        print(f"no place for {pod.pod.name}: {reasons}")
    print(f"{plan.hourly_micro_usd / MICRO:.4f} USD/h, no plan can cost less than {plan.lower_bound_micro_usd / MICRO:.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="asks a Plimsoll scheduler for a plan")
    parser.add_argument("--scheduler", default="127.0.0.1:9452", metavar="HOST:PORT", help="its open port (default: %(default)s)")
    parser.add_argument("--timeout", type=float, default=10.0, metavar="SECONDS")
    args = parser.parse_args()
    request = scheduler.PlanRequest(
        snapshot=example_snapshot(), catalogs=[example_catalog()], options=plans.PlanOptions(disruption=False)
    )
    with grpc.insecure_channel(args.scheduler) as channel:
        try:
            answer = services.SchedulerServiceStub(channel).Plan(request, timeout=args.timeout)
        except grpc.RpcError as error:
            sys.exit(f"plan.py: {error.code().name}: {error.details()}")
    show(answer.plan)


if __name__ == "__main__":
    main()
