"""Resources that a cluster's administrator creates before Plimsoll: network, queue, node role."""

from __future__ import annotations

import functools
import ipaddress
import json
from typing import Any

import boto3

VPC_CIDR = "10.0.0.0/16"
# One /20 per zone: 4,091 addresses each, for up to 16 zones.
SUBNET_PREFIX = 20
# EventBridge's rules deliver nothing older to the queue that a client could still use.
QUEUE_RETENTION_SECONDS = 300
PROFILE = "karpenter-node"
# Access key of tests and administrators. A seed has no effect on their calls.
TEST_KEY = "harness"


@functools.cache
def _session(region: str) -> Any:
    """Cached: creating a client reads megabytes of API descriptions, and tests bootstrap often."""
    return boto3.Session(aws_access_key_id=TEST_KEY, aws_secret_access_key="test", region_name=region)


def bootstrap(endpoint: str, region: str, cluster: str, zones: list[str] | None) -> dict[str, Any]:
    """Creates all resources in one region and returns their names."""
    session = _session(region)
    ec2 = session.client("ec2", endpoint_url=endpoint)
    discovery = [{"Key": "karpenter.sh/discovery", "Value": cluster}]
    vpc = ec2.create_vpc(CidrBlock=VPC_CIDR)["Vpc"]["VpcId"]
    if zones is None:
        zones = sorted(z["ZoneName"] for z in ec2.describe_availability_zones()["AvailabilityZones"])
    subnets = {}
    blocks = ipaddress.ip_network(VPC_CIDR).subnets(new_prefix=SUBNET_PREFIX)
    for zone, block in zip(zones, blocks):
        subnets[zone] = ec2.create_subnet(
            VpcId=vpc,
            CidrBlock=str(block),
            AvailabilityZone=zone,
            TagSpecifications=[{"ResourceType": "subnet", "Tags": discovery + [{"Key": "Name", "Value": f"{cluster}-{zone}"}]}],
        )["Subnet"]["SubnetId"]
    group = ec2.create_security_group(
        GroupName=f"{cluster}-node",
        Description="nodes",
        VpcId=vpc,
        TagSpecifications=[{"ResourceType": "security-group", "Tags": discovery}],
    )["GroupId"]
    queue = session.client("sqs", endpoint_url=endpoint).create_queue(
        QueueName=cluster, Attributes={"MessageRetentionPeriod": str(QUEUE_RETENTION_SECONDS)}
    )["QueueUrl"]
    roles = _roles(session, endpoint, cluster)
    return {
        "region": region,
        "cluster": cluster,
        "vpc": vpc,
        "subnets": subnets,
        "securityGroup": group,
        "queue": cluster,
        "queueUrl": queue,
        "roles": roles,
        "instanceProfile": PROFILE,
    }


def _roles(session: Any, endpoint: str, cluster: str) -> list[str]:
    """The node role with both spellings of Karpenter's documentation, and one profile with it."""
    iam = session.client("iam", endpoint_url=endpoint)
    trust = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
    }
    # IAM is global: for a second region, the roles exist already.
    names = [f"KarpenterNodeRole-{cluster}", f"karpenterNodeRole-{cluster}"]
    for name in names:
        try:
            iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(trust))
        except iam.exceptions.EntityAlreadyExistsException:
            pass
    try:
        iam.create_instance_profile(InstanceProfileName=PROFILE)
        iam.add_role_to_instance_profile(InstanceProfileName=PROFILE, RoleName=names[0])
    except iam.exceptions.EntityAlreadyExistsException:
        pass
    return names
