"""A running server and its clients, shared by the tests in this folder."""

from __future__ import annotations

import atexit
import base64
import functools
import json
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from plimsoll_ec2.bootstrap import bootstrap

HERE = Path(__file__).resolve().parent.parent
REGION = "us-east-1"
CLUSTER = "probe"
# The order matters, not the amounts: m5.large is the cheapest, then c5.large, then r5.large.
PRICES = {REGION: {"m5.large": 0.05, "c5.large": 0.06, "r5.large": 0.07, "m6g.large": 0.04, "t3.nano": 0.01}}
AL2023 = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/{}/standard/recommended/image_id"


class Server:
    """The wrapper as a separate process."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        prices = Path(self._folder.name, "prices.json")
        prices.write_text(json.dumps(PRICES))
        command = [sys.executable, "-m", "plimsoll_ec2", "serve", "--prices", str(prices)]
        self._process = subprocess.Popen(command, cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the server did not start")
        self.endpoint = json.loads(line)["endpoint"]

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._process.stdout.close()
        self._folder.cleanup()

    @functools.cache
    def client(self, service: str) -> Any:
        """Without retries, so that a test sees each response. Cached, because creating a client is slow."""
        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=Config(retries={"total_max_attempts": 1}, max_pool_connections=16),
        )

    def control(self, method: str, path: str, body: Any = None) -> Any:
        """Requests a control path; a status of 400 or more raises an HTTPError whose body is in `detail`."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.endpoint + path, data=data, method=method)
        try:
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            error.detail = error.read().decode()
            raise


@functools.cache
def shared_server() -> Server:
    """Started by the first test that needs it, stopped at the end of the run."""
    server = Server()
    atexit.register(server.stop)
    return server


class ServerTest(unittest.TestCase):
    """The shared server, reset and bootstrapped before each test."""

    server: Server

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = shared_server()

    def setUp(self) -> None:
        self.server.control("POST", "/_reset")
        self.made = bootstrap(self.server.endpoint, REGION, CLUSTER, ["us-east-1a", "us-east-1b"])
        self.ec2 = self.server.client("ec2")
        self.image = self.server.client("ssm").get_parameter(Name=AL2023.format("x86_64"))["Parameter"]["Value"]
        self.template = self.ec2.create_launch_template(
            LaunchTemplateName="probe",
            LaunchTemplateData={
                "ImageId": self.image,
                "UserData": base64.b64encode(b"#cloud-config\n").decode(),
                "IamInstanceProfile": {"Name": self.made["instanceProfile"]},
                "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
                "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 33, "VolumeType": "gp3"}}],
                "NetworkInterfaces": [{"DeviceIndex": 0, "Groups": [self.made["securityGroup"]]}],
            },
        )["LaunchTemplate"]["LaunchTemplateId"]
        self.server.control("DELETE", "/_calls")

    def override(self, instance_type: str, zone: str = "us-east-1a", **more: Any) -> dict[str, Any]:
        return {"InstanceType": instance_type, "SubnetId": self.made["subnets"][zone], **more}

    def fleet(self, overrides: list[dict[str, Any]], count: int = 1, spot: bool = False, **more: Any) -> dict[str, Any]:
        kind = "spot" if spot else "on-demand"
        return self.ec2.create_fleet(
            Type="instant",
            LaunchTemplateConfigs=[
                {"LaunchTemplateSpecification": {"LaunchTemplateId": self.template, "Version": "$Latest"}, "Overrides": overrides}
            ],
            TargetCapacitySpecification={"TotalTargetCapacity": count, "DefaultTargetCapacityType": kind},
            **more,
        )

    def running(self) -> list[dict[str, Any]]:
        pages = self.ec2.get_paginator("describe_instances").paginate(
            Filters=[{"Name": "instance-state-name", "Values": ["pending", "running"]}]
        )
        return [i for page in pages for r in page["Reservations"] for i in r["Instances"]]


def ids(answer: dict[str, Any]) -> list[str]:
    """Instances in a response of CreateFleet."""
    return [i for item in answer["Instances"] for i in item["InstanceIds"]]


def types(answer: dict[str, Any]) -> list[str]:
    """Types of the instances, one per group."""
    return [item["InstanceType"] for item in answer["Instances"]]


def errors(answer: dict[str, Any]) -> list[tuple[str, str]]:
    """(instance type, code) of the pools with too few instances."""
    return [(e["LaunchTemplateAndOverrides"]["Overrides"]["InstanceType"], e["ErrorCode"]) for e in answer["Errors"]]
