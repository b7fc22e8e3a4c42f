"""Validates requests against AWS' own model of the EC2 API from botocore. Calls no Plimsoll code."""

from __future__ import annotations

import base64
import re
from typing import Any

import botocore.session
from botocore.validate import ParamValidator

MODEL = botocore.session.get_session().get_service_model("ec2")
# Bytes before encoding: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/user-data.html
USER_DATA_MAX = 16_384
# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Tags.html#tag-restrictions
TAGS_MAX = 50
TAG_KEY_MAX, TAG_VALUE_MAX = 128, 256
# https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateFleet.html
TOKEN_MAX, OVERRIDES_MAX = 64, 300
# https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateLaunchTemplate.html
NAME = re.compile(r"[a-zA-Z0-9().\-/_]{3,128}")


def faults(operation: str, request: dict[str, Any]) -> list[str]:
    """Violations of the model and of EC2's documented limits."""
    shape = MODEL.operation_model(operation).input_shape
    report = ParamValidator().validate(request, shape)
    found = report.generate_report().splitlines() if report.has_errors() else []
    found += list(_constraints(shape, request, operation))
    limits = {"CreateLaunchTemplate": _template, "CreateFleet": _fleet, "RunInstances": _instance}[operation]
    return found + (list(limits(request)) if not found else [])


def _constraints(shape: Any, value: Any, path: str):
    """Enums, upper bounds and patterns, which the ParamValidator does not check."""
    if shape.type_name == "structure" and isinstance(value, dict):
        for name, member in shape.members.items():
            if name in value:
                yield from _constraints(member, value[name], f"{path}.{name}")
        return
    if shape.type_name == "list" and isinstance(value, list):
        if len(value) > shape.metadata.get("max", len(value)):
            yield f"{path}: {len(value)} items"
        for index, item in enumerate(value):
            yield from _constraints(shape.member, item, f"{path}[{index}]")
        return
    if shape.type_name == "string" and isinstance(value, str):
        if shape.enum and value not in shape.enum:
            yield f"{path}: {value!r} is not one of {len(shape.enum)} values"
        if len(value) > shape.metadata.get("max", len(value)):
            yield f"{path}: {len(value)} characters"
        pattern = shape.metadata.get("pattern")
        if pattern and not re.search(pattern, value):
            yield f"{path}: {value!r} does not match {pattern}"
        return
    if shape.type_name in ("integer", "long") and isinstance(value, int):
        if value > shape.metadata.get("max", value):
            yield f"{path}: {value} is too large"
        if value.bit_length() > (31 if shape.type_name == "integer" else 63):
            yield f"{path}: {value} does not fit"


def _tags(specifications: list[dict[str, Any]], path: str):
    kinds = [specification["ResourceType"] for specification in specifications]
    if len(set(kinds)) != len(kinds):
        yield f"{path}: a resource type twice"
    for specification in specifications:
        tags = specification["Tags"]
        if len(tags) > TAGS_MAX:
            yield f"{path}: {len(tags)} tags"
        if len({tag["Key"] for tag in tags}) != len(tags):
            yield f"{path}: a key twice"
        for tag in tags:
            if not 1 <= len(tag["Key"]) <= TAG_KEY_MAX or len(tag["Value"]) > TAG_VALUE_MAX:
                yield f"{path}: {tag['Key']} is too long"
            if tag["Key"].startswith("aws:"):
                yield f"{path}: {tag['Key']} is reserved"


def _template(request: dict[str, Any]):
    if not NAME.fullmatch(request["LaunchTemplateName"]):
        yield "LaunchTemplateName: characters or length"
    data = request["LaunchTemplateData"]
    if len(base64.b64decode(data["UserData"], validate=True)) > USER_DATA_MAX:
        yield "UserData: too large"
    places = [(it["NetworkCardIndex"], it["DeviceIndex"]) for it in data["NetworkInterfaces"]]
    if len(set(places)) != len(places):
        yield "NetworkInterfaces: a place twice"
    for interface in data["NetworkInterfaces"]:
        if "Ipv4PrefixCount" in interface and "Ipv6PrefixCount" in interface:
            yield "NetworkInterfaces: prefixes of both families"
        # https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceNetworkInterfaceSpecification.html
        if interface.get("AssociatePublicIpAddress") and len(places) > 1:
            yield "NetworkInterfaces: a public address with several interfaces"
    names = [it["DeviceName"] for it in data.get("BlockDeviceMappings", [])]
    if len(set(names)) != len(names):
        yield "BlockDeviceMappings: a device twice"
    yield from _tags(data["TagSpecifications"], "LaunchTemplateData.TagSpecifications")
    yield from _tags(request["TagSpecifications"], "TagSpecifications")


def _instance(request: dict[str, Any]):
    # https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RunInstances.html
    if not 1 <= request["MinCount"] <= request["MaxCount"]:
        yield "MinCount and MaxCount contradict each other"
    if "SubnetId" in request and "NetworkInterfaces" in request:
        yield "SubnetId with NetworkInterfaces"
    yield from _tags(request["TagSpecifications"], "TagSpecifications")


def _fleet(request: dict[str, Any]):
    if len(request["ClientToken"]) > TOKEN_MAX:
        yield "ClientToken: too long"
    overrides = [way for config in request["LaunchTemplateConfigs"] for way in config["Overrides"]]
    if not 1 <= len(overrides) <= OVERRIDES_MAX:
        yield f"{len(overrides)} overrides"
    kind = request["TargetCapacitySpecification"]["DefaultTargetCapacityType"]
    if ("SpotOptions" in request) != (kind == "spot") or ("OnDemandOptions" in request) != (kind == "on-demand"):
        yield "options of another capacity type"
    yield from _tags(request["TagSpecifications"], "TagSpecifications")
