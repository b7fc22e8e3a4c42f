"""CreateFleet of type `instant`, like EC2: pools in the order of the strategy, errors for pools without capacity."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.fleets import Fleet
from moto.ec2.utils import convert_tag_spec, random_fleet_id

from plimsoll_ec2 import request_checks
from plimsoll_ec2.dwell import begin_pending
from plimsoll_ec2.pools import LAST, Pool, groups_of, pools_of
from plimsoll_ec2.reservations import target_of
from plimsoll_ec2.visibility import delay
from plimsoll_ec2.world import WORLD

# EC2's own limits for one fleet.
TARGET_MAX = 1000
TOKEN_LENGTH_MAX = 64

SPOT_STRATEGIES = {
    "lowest-price",
    "diversified",
    "capacity-optimized",
    "capacity-optimized-prioritized",
    "price-capacity-optimized",
}
CAPACITY_TYPES = ("spot", "on-demand", "capacity-block", "reserved-capacity")
ON_DEMAND_STRATEGIES = {"lowest-price", "prioritized"}


@dataclass
class Order:
    """The validated request."""

    backend: Any
    capacity_type: str
    strategy: str
    total: int
    minimum: int
    single_type: bool
    single_zone: bool
    pools: list[Pool]
    tags: dict[str, dict[str, str]]


def create_fleet(response: Any) -> ActionResult:
    """The handler that replaces moto's."""
    order = _order(response)
    response.error_on_dryrun()
    # Readable, so that the log needs no parsing of the request.
    WORLD.calls.current()["fleet"] = {
        "capacityType": order.capacity_type,
        "total": order.total,
        "pools": [{"instanceType": p.instance_type, "zone": p.zone, "price": p.price} for p in order.pools],
        "tags": order.tags.get("instance", {}),
    }
    # EC2 launches at some time between the request and the answer.
    seconds = WORLD.seeded.fleet_seconds() / 2
    time.sleep(seconds)
    with WORLD.launching:
        fleet_id = _register(response, order)
        share, errors = _share_out(order)
        launched = [_launch(order, fleet_id, pool, count) for pool, count in share]
    WORLD.calls.current()["instances"] = [i for item in launched for i in item["InstanceIds"]]
    time.sleep(seconds)
    return ActionResult({"FleetId": fleet_id, "Instances": launched, "Errors": errors})


def _order(response: Any) -> Order:
    p = response._get_param
    if p("Type", "maintain") != "instant":
        raise EC2ClientError("Unsupported", "Only fleets of type instant exist here.")
    token = p("ClientToken")
    if token is not None and not 1 <= len(token) <= TOKEN_LENGTH_MAX:
        raise EC2ClientError("InvalidParameterValue", f"A client token has 1 to {TOKEN_LENGTH_MAX} characters.")
    target = p("TargetCapacitySpecification", {})
    total = int(target.get("TotalTargetCapacity", 0))
    if not 1 <= total <= TARGET_MAX:
        raise EC2ClientError("InvalidParameterValue", f"TotalTargetCapacity must be 1 to {TARGET_MAX}, not {total}.")
    capacity_type = target.get("DefaultTargetCapacityType", "on-demand")
    if capacity_type not in CAPACITY_TYPES:
        raise EC2ClientError("Unsupported", f"DefaultTargetCapacityType {capacity_type} does not exist here.")
    options = p("SpotOptions" if capacity_type == "spot" else "OnDemandOptions", {}) or {}
    if options and capacity_type not in ("spot", "on-demand"):
        raise EC2ClientError("InvalidParameterCombination", f"OnDemandOptions are not for {capacity_type}.")
    known = SPOT_STRATEGIES if capacity_type == "spot" else ON_DEMAND_STRATEGIES
    strategy = options.get("AllocationStrategy", "lowest-price")
    request_checks.tags(convert_tag_spec(p("TagSpecifications", [])))
    if strategy not in known:
        raise EC2ClientError("InvalidParameterValue", f"AllocationStrategy {strategy} does not exist for {capacity_type}.")
    backend = response.ec2_backend
    pools = pools_of(backend, p("LaunchTemplateConfigs", []), capacity_type)
    return Order(
        backend=backend,
        capacity_type=capacity_type,
        strategy=strategy,
        total=total,
        minimum=int(options.get("MinTargetCapacity", 0)),
        single_type=bool(options.get("SingleInstanceType")),
        single_zone=bool(options.get("SingleAvailabilityZone")),
        pools=pools,
        tags=convert_tag_spec(p("TagSpecifications", [])),
    )


def _ranked(order: Order) -> list[Pool]:
    """The pools in the order of the strategy; those without a price last, ties in the order of the request."""
    if "prioritized" in order.strategy:
        return sorted(order.pools, key=lambda p: p.priority)
    return sorted(order.pools, key=lambda p: LAST if p.price is None else p.price)


def _share_out(order: Order) -> tuple[list[tuple[Pool, int]], list[dict[str, Any]]]:
    """Number of instances of each pool, and an error for each pool that was tried and had too few."""
    share: list[tuple[Pool, int]] = []
    errors: list[dict[str, Any]] = []
    # Several pools may share a type and zone, or a subnet.
    drawn: dict[tuple[str, str], int] = {}
    remaining = order.total
    for pool in _ranked(order):
        if remaining == 0:
            break
        if share and order.single_type and pool.instance_type != share[0][0].instance_type:
            continue
        if share and order.single_zone and pool.zone != share[0][0].zone:
            continue
        count, problem = _available(order, pool, share, drawn, remaining)
        if problem:
            errors.append(
                {
                    "LaunchTemplateAndOverrides": pool.to_json(),
                    "Lifecycle": order.capacity_type,
                    "ErrorCode": problem[0],
                    "ErrorMessage": problem[1],
                }
            )
        if count:
            share.append((pool, count))
            remaining -= count
            for key in (("room", f"{pool.instance_type}/{pool.zone}"), ("subnet", pool.subnet.id)):
                drawn[key] = drawn.get(key, 0) + count
            target = ("reservation", str(target_of(pool.data)))
            drawn[target] = drawn.get(target, 0) + count
            place = (f"group {(pool.data.get('Placement') or {}).get('GroupId')}", pool.zone)
            drawn[place] = drawn.get(place, 0) + count
    if order.total - remaining < order.minimum:
        return [], errors
    return share, errors


def _available(
    order: Order, pool: Pool, share: list[tuple[Pool, int]], drawn: dict[tuple[str, str], int], wanted: int
) -> tuple[int, tuple[str, str] | None]:
    if pool.problem:
        return 0, pool.problem
    if order.capacity_type == "spot" and pool.max_price is not None and pool.price is not None and pool.price > pool.max_price:
        return 0, ("SpotMaxPriceTooLow", f"The Spot price of {pool.instance_type} in {pool.zone} is {pool.price}.")
    free = pool.subnet.available_ip_address_count - drawn.get(("subnet", pool.subnet.id), 0)
    room, code = WORLD.faults.room(order.capacity_type, pool.instance_type, pool.zone)
    room -= drawn.get(("room", f"{pool.instance_type}/{pool.zone}"), 0)
    target = target_of(pool.data)
    reserved, refusal = WORLD.reservations.room(target, pool.instance_type, pool.zone)
    reserved -= drawn.get(("reservation", str(target)), 0) if target else 0
    placed, refused = WORLD.placement.room(pool.data, pool.zone, drawn)
    living = [(i.instance_type, said["capacityType"]) for i, said in WORLD.launches if i.state in ("pending", "running")]
    living += [(p.instance_type, order.capacity_type) for p, n in share for _ in range(n)]
    quota, over = WORLD.quotas.room(order.capacity_type, pool.instance_type, living)
    count = int(max(0, min(wanted, free, room, reserved, placed, quota)))
    if count == wanted:
        return count, None
    if quota <= min(room, free, reserved, placed):
        return count, over
    if placed <= min(room, free, reserved):
        return count, refused
    if reserved <= min(room, free):
        return count, refusal
    if room <= free:
        return count, (code, f"There is not enough {order.capacity_type} capacity for {pool.instance_type} in {pool.zone}.")
    return count, ("InsufficientFreeAddressesInSubnet", f"The subnet {pool.subnet.id} has not enough free addresses.")


def _register(response: Any, order: Order) -> str:
    """Registers the fleet in moto without launching instances."""
    fleet = Fleet.__new__(Fleet)
    target = response._get_param("TargetCapacitySpecification")
    fleet.ec2_backend = order.backend
    fleet.id = random_fleet_id()
    fleet.fleet_type = "instant"
    fleet.state = "active"
    fleet.target_capacity_specification = target
    fleet.target_capacity = order.total
    fleet.fulfilled_capacity = 0.0
    fleet.launch_template_configs = response._get_param("LaunchTemplateConfigs")
    fleet.spot_options = response._get_param("SpotOptions", {})
    fleet.on_demand_options = response._get_param("OnDemandOptions", {})
    fleet.launch_specs, fleet.spot_requests, fleet.on_demand_instances = [], [], []
    fleet.add_tags(order.tags.get("fleet", {}))
    fleet.tags = fleet.get_tags()
    order.backend.fleets[fleet.id] = fleet
    return fleet.id


def _launch(order: Order, fleet_id: str, pool: Pool, count: int) -> dict[str, Any]:
    data, backend = pool.data, order.backend
    tags = convert_tag_spec(data.get("TagSpecifications") or [])
    instance_tags = {**tags.get("instance", {}), **order.tags.get("instance", {}), "aws:ec2:fleet-id": fleet_id}
    # moto assigns the instance's groups to every interface, and keeps an interface without settings.
    nics = [
        {"DeleteOnTermination": True, **{k: v for k, v in n.items() if k != "Groups"}}
        for n in data.get("NetworkInterfaces") or [{"DeviceIndex": 0}]
    ]
    reservation = backend.run_instances(
        image_id=pool.image_id,
        count=count,
        user_data=None,
        security_group_names=[],
        security_group_ids=groups_of(data),
        instance_type=pool.instance_type,
        is_instance_type_default=False,
        key_name=data.get("KeyName"),
        placement=None,
        region_name=backend.region_name,
        subnet_id=pool.subnet.id,
        nics=nics,
        launch_template={"LaunchTemplateId": pool.template["LaunchTemplateId"], "Version": pool.template["Version"]},
        block_device_mappings=data.get("BlockDeviceMappings") or [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 20, "VolumeType": "gp3"}}],
        metadata_options=data.get("MetadataOptions") or {},
        monitoring_state="enabled" if (data.get("Monitoring") or {}).get("Enabled") else "disabled",
        ebs_optimized=data.get("EbsOptimized", False),
        lifecycle="spot" if order.capacity_type == "spot" else None,
        tags={"instance": instance_tags, "volume": {**tags.get("volume", {}), **order.tags.get("volume", {})}},
    )
    call = WORLD.calls.current()
    WORLD.reservations.used(target_of(data), reservation.instances)
    WORLD.placement.used(data, reservation.instances)
    for instance in reservation.instances:
        _equip(order, instance, data)
        WORLD.launches.append(
            (
                instance,
                {
                    "token": call["token"],
                    "fleet": fleet_id,
                    "capacityType": "reserved" if target_of(data) else order.capacity_type,
                    "price": pool.price,
                    "launched": time.time(),
                },
            )
        )
    WORLD.faults.use(order.capacity_type, pool.instance_type, pool.zone, count)
    return {
        "LaunchTemplateAndOverrides": pool.to_json(),
        "Lifecycle": order.capacity_type,
        "InstanceIds": [i.id for i in reservation.instances],
        "InstanceType": pool.instance_type,
    }


def _equip(order: Order, instance: Any, data: dict[str, Any]) -> None:
    """Settings that EC2 applies from the template and moto does not."""
    tags = convert_tag_spec(data.get("TagSpecifications") or [])
    for nic in instance.nics.values():
        nic.add_tags(tags.get("network-interface", {}))
    profile = data.get("IamInstanceProfile")
    if profile:
        order.backend.associate_iam_instance_profile(
            instance_id=instance.id,
            iam_instance_profile_name=profile.get("Name"),
            iam_instance_profile_arn=profile.get("Arn"),
        )
    begin_pending(instance)
    delay(instance, "instance")
