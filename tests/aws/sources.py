"""The two descriptions of deploy/aws, brought into one form: CloudFormation and Terraform, both with the same names filled in."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import hcl2
from cfnlint.decode import cfn_yaml

AWS = Path(__file__).resolve().parents[2] / "deploy" / "aws"
TEMPLATE = AWS / "cloudformation.yaml"
MODULE = AWS / "terraform"

# The longest names that EKS, SQS and IAM allow, for the size checks.
CLUSTER = "c" * 100
QUEUE = "q" * 80
ROLE = "r" * 64
ISSUER = "oidc.eks.ap-southeast-1.amazonaws.com/id/" + "A" * 32
VALUES = {
    "AWS::AccountId": "123456789012",
    "AWS::Partition": "aws-us-gov",
    "AWS::Region": "ap-southeast-1",
    "AWS::URLSuffix": "amazonaws.com",
    "ClusterName": CLUSTER,
    "Namespace": "plimsoll-system",
    "NodeRoleName": ROLE,
    "OidcProvider": ISSUER,
    "QueueName": QUEUE,
    "RoleName": ROLE,
    "ServiceAccount": "plimsoll-actuator",
}
# The same values under their names in the module.
MODULE_VALUES = {
    "aws_sqs_queue.interruption[0].arn": "Queue.Arn",
    "data.aws_partition.current.dns_suffix": VALUES["AWS::URLSuffix"],
    "local.account": VALUES["AWS::AccountId"],
    "local.node_role_name": ROLE,
    "local.partition": VALUES["AWS::Partition"],
    "local.queue_name": QUEUE,
    "local.region": VALUES["AWS::Region"],
    "var.cluster_name": CLUSTER,
    "var.namespace": VALUES["Namespace"],
    "var.oidc_provider": ISSUER,
    "var.service_account": VALUES["ServiceAccount"],
}

Document = dict[str, Any]


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@functools.cache
def _text() -> str:
    return json.dumps(cfn_yaml.load(str(TEMPLATE)))


def template() -> Document:
    """The template with short functions expanded, without positions."""
    return json.loads(_text())


def resources(kind: str) -> Document:
    """Properties of the template's resources of a type, by name."""
    found = template()["Resources"].items()
    return {name: resource["Properties"] for name, resource in found if resource["Type"] == kind}


def filled(value: Any) -> Any:
    """A value of the template with its functions evaluated for VALUES."""
    if isinstance(value, list):
        return [filled(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "Ref" in value:
        return VALUES[value["Ref"]]
    if "Fn::GetAtt" in value:
        return ".".join(as_list(value["Fn::GetAtt"]))
    if "Fn::Sub" in value:
        text = re.sub(r"\$\{([A-Za-z:]+)\}", lambda name: VALUES[name[1]], as_list(value["Fn::Sub"])[0])
        return json.loads(text) if text.startswith("{") else text
    return {key: filled(item) for key, item in value.items()}


def template_for_moto(parameters: dict[str, str]) -> Document:
    """CloudFormation takes a policy also as text, moto only as an object: its keys are filled in here, its values by moto."""

    def key(text: str) -> str:
        return re.sub(r"\$\{([A-Za-z:]+)\}", lambda name: parameters.get(name[1], ""), text)

    def spelled_out(value: Any, own: Document) -> Any:
        if isinstance(value, list):
            return [spelled_out(item, own) for item in value]
        if isinstance(value, dict):
            return {key(name): spelled_out(item, own) for name, item in value.items()}
        return {"Fn::Sub": [value, own] if own else value} if "${" in value else value

    def changed(value: Any) -> Any:
        if isinstance(value, list):
            return [changed(item) for item in value]
        if not isinstance(value, dict):
            return value
        text = as_list(value.get("Fn::Sub", ""))
        if text[0].startswith("{"):
            return spelled_out(json.loads(text[0]), text[1] if len(text) > 1 else {})
        return {name: changed(item) for name, item in value.items()}

    return changed(template())


def normal(document: Document) -> list[Document]:
    """Statements in a normal form, so that equal permissions are equal."""
    statements = []
    for statement in document["Statement"]:
        principal = statement.get("Principal", {})
        principal = {"*": "*"} if principal == "*" else principal
        condition = statement.get("Condition", {})
        statements.append(
            {
                "sid": statement.get("Sid", ""),
                "effect": statement["Effect"],
                "actions": sorted(as_list(statement["Action"])),
                "resources": sorted(as_list(statement.get("Resource", []))),
                "principals": {kind: sorted(as_list(names)) for kind, names in principal.items()},
                "conditions": {
                    test: {key: sorted(as_list(values)) for key, values in keys.items()} for test, keys in condition.items()
                },
            }
        )
    return statements


def template_documents() -> dict[str, Document]:
    """Every policy document of the template, with VALUES."""
    actuator = resources("AWS::IAM::Role")["ActuatorRole"]["AssumeRolePolicyDocument"]["Fn::If"]
    policies = resources("AWS::IAM::ManagedPolicy")
    documents = {
        "discovery": policies.pop("DiscoveryPolicy")["PolicyDocument"],
        "instances": policies.pop("InstancesPolicy")["PolicyDocument"],
        "irsa": actuator[2],
        "node_trust": resources("AWS::IAM::Role")["NodeRole"]["AssumeRolePolicyDocument"],
        "pod_identity": actuator[1],
        "queue": resources("AWS::SQS::QueuePolicy")["QueuePolicy"]["PolicyDocument"],
    }
    assert not policies, f"policies that are not compared: {policies}"
    return {name: filled(document) for name, document in documents.items()}


def unquoted(value: Any) -> Any:
    """Output of hcl2 without its own entries and without the quotes of strings."""
    if isinstance(value, dict):
        return {unquoted(key): unquoted(item) for key, item in value.items() if not key.startswith("__")}
    if isinstance(value, list):
        return [unquoted(item) for item in value]
    return value[1:-1] if isinstance(value, str) and value.startswith('"') else value


@functools.cache
def module() -> Document:
    """Blocks of all files of the module, by block type."""
    blocks: Document = {}
    for path in sorted(MODULE.glob("*.tf")):
        with path.open() as file:
            for kind, found in unquoted(hcl2.load(file)).items():
                blocks.setdefault(kind, []).extend(found)
    return blocks


def module_blocks(kind: str, of_type: str) -> Document:
    """Resources or data sources of a type, by name."""
    found = [block[of_type] for block in module()[kind] if of_type in block]
    return {name: body for block in found for name, body in block.items()}


def module_locals() -> Document:
    return {name: value for block in module()["locals"] for name, value in block.items()}


def expanded(value: Any) -> Any:
    """A value of the module with its expressions evaluated for VALUES."""
    if isinstance(value, list):
        return [expanded(item) for item in value]
    if not isinstance(value, str):
        return value
    if value == "${[for rule in aws_cloudwatch_event_rule.interruption : rule.arn]}":
        return [f"{name}.Arn" for name in module_locals()["event_patterns"]]
    values = {**MODULE_VALUES, "local.cluster_arn": re.sub(r"\$\{([^}]+)\}", lambda n: MODULE_VALUES[n[1]], module_locals()["cluster_arn"])}
    return re.sub(r"\$\{([^}]+)\}", lambda name: values[name[1]], value)


def module_documents() -> dict[str, Document]:
    """Every policy document of the module, as the provider would write it."""
    documents = {}
    for name, body in module_blocks("data", "aws_iam_policy_document").items():
        statements = []
        for block in body["statement"]:
            statement: Document = {"Sid": block.get("sid", ""), "Effect": block.get("effect", "Allow"), "Action": block["actions"]}
            if "resources" in block:
                statement["Resource"] = expanded(block["resources"])
            for principal in block.get("principals", []):
                statement.setdefault("Principal", {})[principal["type"]] = expanded(principal["identifiers"])
            for condition in block.get("condition", []):
                keys = statement.setdefault("Condition", {}).setdefault(condition["test"], {})
                keys[expanded(condition["variable"])] = expanded(condition["values"])
            statements.append(statement)
        documents[name] = {"Version": "2012-10-17", "Statement": statements}
    return documents
