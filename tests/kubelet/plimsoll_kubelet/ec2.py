"""Instances from the control path of tests/ec2, and facts about their types from EC2's own API."""

from __future__ import annotations

import functools
import json
import urllib.request
from typing import Any

import boto3

TIMEOUT_SECONDS = 10.0


class Ec2:
    """One endpoint, any region."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint.rstrip("/")

    def instances(self) -> list[dict[str, Any]]:
        """All instances of the history, with their states."""
        return self._get("/_instances")

    def instance(self, instance_id: str) -> dict[str, Any]:
        """One instance with its user data."""
        return self._get(f"/_instances?user-data={instance_id}")[0]

    @functools.cache
    def facts(self, region: str, instance_type: str) -> dict[str, Any]:
        """DescribeInstanceTypes of one type."""
        return self._client(region).describe_instance_types(InstanceTypes=[instance_type])["InstanceTypes"][0]

    @functools.cache
    def zone_id(self, region: str, zone: str) -> str:
        """A zone id such as use1-az2."""
        return self._client(region).describe_availability_zones(ZoneNames=[zone])["AvailabilityZones"][0]["ZoneId"]

    @functools.cache
    def _client(self, region: str) -> Any:
        return boto3.client("ec2", endpoint_url=self._endpoint, region_name=region, aws_access_key_id="harness", aws_secret_access_key="test")

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(self._endpoint + path, timeout=TIMEOUT_SECONDS) as answer:
            return json.load(answer)["instances"]
