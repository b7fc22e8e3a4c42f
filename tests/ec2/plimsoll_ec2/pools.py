"""The pools of a CreateFleet: each override of each launch template, with what EC2 would refuse about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES
from moto.iam.models import iam_backends

from plimsoll_ec2 import request_checks
from plimsoll_ec2.visibility import visible
from plimsoll_ec2.world import WORLD

# EC2's own limit for one fleet.
OVERRIDES_MAX = 300
# For pools without priority or price.
LAST = float("inf")


@dataclass
class Pool:
    """One override of one launch template: a source of instances."""

    instance_type: str
    image_id: str
    subnet: Any
    zone: str
    priority: float
    max_price: float | None
    price: float | None
    template: dict[str, Any]
    override: dict[str, Any]
    data: dict[str, Any]
    problem: tuple[str, str] | None = None

    def to_json(self) -> dict[str, Any]:
        return {"LaunchTemplateSpecification": self.template, "Overrides": self.override}


def pools_of(backend: Any, configs: list[dict[str, Any]], capacity_type: str) -> list[Pool]:
    if not configs:
        raise EC2ClientError("MissingParameter", "The request must contain the parameter LaunchTemplateConfigs.")
    if sum(len(c.get("Overrides") or [{}]) for c in configs) > OVERRIDES_MAX:
        raise EC2ClientError("InvalidParameterValue", f"A fleet has at most {OVERRIDES_MAX} overrides.")
    pools = []
    for config in configs:
        asked = config.get("LaunchTemplateSpecification", {})
        # A missing template fails the whole call with moto's error, which is the same as EC2's.
        if "LaunchTemplateId" in asked:
            template = backend.get_launch_template(template_id=asked["LaunchTemplateId"])
        elif "LaunchTemplateName" in asked:
            template = backend.get_launch_template_by_name(name=asked["LaunchTemplateName"])
        else:
            raise EC2ClientError("MissingParameter", "A launch template needs an id or a name.")
        version = template.get_version(asked.get("Version") or "$Default")
        told = {"LaunchTemplateId": template.id, "LaunchTemplateName": template.name, "Version": str(version.number)}
        for override in config.get("Overrides") or [{}]:
            pools.append(_pool(backend, told, version.data, override, capacity_type))
    return pools


def _pool(backend: Any, told: dict[str, Any], data: dict[str, Any], override: dict[str, Any], capacity_type: str) -> Pool:
    if "InstanceRequirements" in override:
        raise EC2ClientError("Unsupported", "InstanceRequirements do not exist here.")
    instance_type = override.get("InstanceType") or data.get("InstanceType") or ""
    image_id = override.get("ImageId") or data.get("ImageId") or ""
    primary = next((n for n in data.get("NetworkInterfaces") or [] if int(n.get("DeviceIndex", 0)) == 0), {})
    subnet, zone, problem = _place(backend, override, primary.get("SubnetId"))
    region = backend.region_name
    prices = WORLD.prices
    pool = Pool(
        instance_type=instance_type,
        image_id=image_id,
        subnet=subnet,
        zone=zone,
        priority=float(override.get("Priority", LAST)),
        max_price=float(override["MaxPrice"]) if override.get("MaxPrice") else None,
        price=prices.spot(region, instance_type, zone) if capacity_type == "spot" else prices.on_demand(region, instance_type),
        template=told,
        override=override,
        data=data,
        problem=problem,
    )
    pool.problem = pool.problem or _problem(backend, pool)
    return pool


def _place(backend: Any, override: dict[str, Any], template_subnet: str | None) -> tuple[Any, str, tuple[str, str] | None]:
    zone = override.get("AvailabilityZone", "")
    subnet_id = override.get("SubnetId") or template_subnet
    if subnet_id:
        try:
            subnet = backend.get_subnet(subnet_id)
        except EC2ClientError:
            return None, zone, ("InvalidSubnetID.NotFound", f"The subnet ID '{subnet_id}' does not exist")
        if zone and zone != subnet.availability_zone:
            return subnet, zone, ("InvalidParameterValue", f"The subnet {subnet_id} is not in the zone {zone}.")
        return subnet, subnet.availability_zone, None
    subnet = backend.get_default_subnets().get(zone)
    if subnet is None:
        return None, zone, ("InvalidInput", f"No default subnet for availability zone: '{zone}'.")
    return subnet, zone, None


def _problem(backend: Any, pool: Pool) -> tuple[str, str] | None:
    """Why EC2 would reject this pool, independent of its capacity."""
    facts = INSTANCE_TYPES.get(pool.instance_type)
    if facts is None:
        return "InvalidParameterValue", f"Invalid value '{pool.instance_type}' for InstanceType."
    offered = INSTANCE_TYPE_OFFERINGS["availability-zone"].get(backend.region_name, [])
    if not any(o["InstanceType"] == pool.instance_type and o["Location"] == pool.zone for o in offered):
        return "InvalidFleetConfiguration", f"The instance type {pool.instance_type} is not offered in {pool.zone}."
    image = backend.amis.get(pool.image_id)
    if image is None:
        return "InvalidAMIID.NotFound", f"The image id '[{pool.image_id}]' does not exist"
    problem = request_checks.interfaces(pool.data)
    if problem:
        return problem
    if image.architecture not in facts["ProcessorInfo"]["SupportedArchitectures"]:
        return (
            "InvalidParameterValue",
            f"The architecture {image.architecture} of {pool.image_id} is not one of the instance type {pool.instance_type}.",
        )
    for group in groups_of(pool.data):
        if backend.get_security_group_from_id(group) is None:
            return "InvalidGroup.NotFound", f"The security group '{group}' does not exist"
    return _profile_problem(backend, pool.data.get("IamInstanceProfile"))


def _profile_problem(backend: Any, profile: dict[str, Any] | None) -> tuple[str, str] | None:
    if not profile:
        return None
    known = iam_backends[backend.account_id][backend.partition].instance_profiles.values()
    if any(visible(k) and (profile.get("Name") == k.name or profile.get("Arn") == k.arn) for k in known):
        return None
    told = profile.get("Name") or profile.get("Arn")
    return "InvalidParameterValue", f"Value ({told}) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"


def groups_of(data: dict[str, Any]) -> list[str]:
    """The security groups of the instance: those of its first network interface, if the template has interfaces."""
    for nic in data.get("NetworkInterfaces") or []:
        if int(nic.get("DeviceIndex", 0)) == 0:
            return nic.get("Groups") or []
    return data.get("SecurityGroupIds") or []
