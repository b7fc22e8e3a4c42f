"""deploy/aws: the template and the Terraform module grant the same permissions, within IAM's limits, and the queue gets
its events."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import unittest
import warnings
from pathlib import Path
from typing import Any

import boto3
from moto import mock_aws

import sources

# Characters without white space that IAM allows in a managed policy and, unless the quota is raised, in a trust policy.
MANAGED_POLICY_MAX = 6144
TRUST_POLICY_MAX = 2048
# One region of each partition, because partitions have different services.
REGIONS = "eu-central-1,cn-north-1,us-gov-west-1"
# In the same virtual environment, independent of PATH.
CFN_LINT = Path(sys.executable).with_name("cfn-lint")


def lint(path: Path) -> str:
    """The findings, truncated because some list all actions of a service."""
    command = [CFN_LINT, "--format", "parseable", "--regions", REGIONS, "--", path]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return "\n".join(line[:200] for line in (ended.stdout + ended.stderr).splitlines())


class Lint(unittest.TestCase):
    def test_cfn_lint_has_nothing_to_say(self) -> None:
        self.assertEqual(lint(sources.TEMPLATE), "")

    def test_cfn_lint_knows_every_action_and_condition_of_the_policies(self) -> None:
        # cfn-lint does not check policies in strings, so they are passed as objects.
        documents = sources.template_documents()
        resources = {
            name: {"Type": "AWS::IAM::ManagedPolicy", "Properties": {"PolicyDocument": documents[name]}}
            for name in ("discovery", "instances")
        } | {
            name.replace("_", ""): {"Type": "AWS::IAM::Role", "Properties": {"AssumeRolePolicyDocument": documents[name]}}
            for name in ("irsa", "pod_identity")
        }
        self.assertEqual(self.lint_of(resources), "")
        documents["discovery"]["Statement"][0]["Action"].append("ec2:DescribeNothing")
        self.assertIn("W3037", self.lint_of(resources), "the judge must see what is wrong")

    def lint_of(self, resources: dict[str, Any]) -> str:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "template.json")
            path.write_text(json.dumps({"AWSTemplateFormatVersion": "2010-09-09", "Resources": resources}))
            return lint(path)


class SameInTerraform(unittest.TestCase):
    maxDiff = None

    def test_policy_documents_are_equal(self) -> None:
        template, module = sources.template_documents(), sources.module_documents()
        self.assertEqual(sorted(template), sorted(module))
        for name, document in template.items():
            with self.subTest(document=name):
                self.assertEqual(sources.normal(document), sources.normal(module[name]))

    def test_event_patterns_are_equal(self) -> None:
        rules = sources.resources("AWS::Events::Rule")
        self.assertEqual({name: rule["EventPattern"] for name, rule in rules.items()}, sources.module_locals()["event_patterns"])

    def test_queue_and_node_role_are_equal(self) -> None:
        queue = sources.resources("AWS::SQS::Queue")["Queue"]
        same = sources.module_blocks("resource", "aws_sqs_queue")["interruption"]
        self.assertEqual(queue["MessageRetentionPeriod"], same["message_retention_seconds"])
        self.assertTrue(queue["SqsManagedSseEnabled"] and same["sqs_managed_sse_enabled"])
        policies = sources.resources("AWS::IAM::Role")["NodeRole"]["ManagedPolicyArns"]
        attached = sources.module_blocks("resource", "aws_iam_role_policy_attachment")["node"]["for_each"]
        names = [policy["Fn::Sub"].rsplit("/", 1)[1] for policy in policies]
        self.assertEqual(names, [part for part in attached.split('"') if part.startswith("Amazon")])

    def test_parameters_are_the_variables(self) -> None:
        def snake(name: str) -> str:
            return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name).lstrip("_")

        def plain(value: Any) -> Any:
            return {"true": True, "false": False}.get(value, value)

        parameters = {snake(name): plain(p.get("Default")) for name, p in sources.template()["Parameters"].items()}
        variables = {name: body.get("default") for block in sources.module()["variable"] for name, body in block.items()}
        self.assertEqual(parameters, variables)


class Limits(unittest.TestCase):
    def test_documents_fit_with_the_longest_names(self) -> None:
        for name, document in sources.template_documents().items():
            size = len(json.dumps(document, separators=(",", ":")))
            limit = MANAGED_POLICY_MAX if name in ("discovery", "instances") else TRUST_POLICY_MAX
            with self.subTest(document=name):
                self.assertLessEqual(size, limit)


@mock_aws
class Stack(unittest.TestCase):
    """The template as moto's CloudFormation creates it. moto omits access entries, associations and the queue's policy.
    """

    def setUp(self) -> None:
        warnings.filterwarnings("ignore", message="Tried to parse .* not supported by moto")
        self.session = boto3.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name="eu-west-1")

    def deploy(self, **parameters: str) -> dict[str, str]:
        stacks = self.session.client("cloudformation")
        stacks.create_stack(
            StackName="plimsoll",
            TemplateBody=json.dumps(sources.template_for_moto(parameters)),
            Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()],
            Capabilities=["CAPABILITY_NAMED_IAM"],
        )
        stack = stacks.describe_stacks(StackName="plimsoll")["Stacks"][0]
        self.assertEqual(stack["StackStatus"], "CREATE_COMPLETE")
        return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}

    def test_the_queue_gets_the_events_that_the_actuator_reads_and_no_others(self) -> None:
        outputs = self.deploy(ClusterName="prod")
        self.assertEqual(outputs["InterruptionQueueName"], "prod")

        def event(source: str, kind: str, detail: dict[str, str]) -> dict[str, str]:
            return {"Source": source, "DetailType": kind, "Detail": json.dumps(detail)}

        state = "EC2 Instance State-change Notification"
        wanted = [
            event("aws.ec2", "EC2 Spot Instance Interruption Warning", {"instance-id": "i-1"}),
            event("aws.ec2", "EC2 Instance Rebalance Recommendation", {"instance-id": "i-2"}),
            event("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning", {"instance-id": "i-3"}),
            event("aws.ec2", state, {"instance-id": "i-4", "state": "stopping"}),
            event("aws.ec2", state, {"instance-id": "i-5", "state": "terminated"}),
            event("aws.health", "AWS Health Event", {"service": "EC2", "eventTypeCategory": "scheduledChange"}),
        ]
        others = [
            event("aws.ec2", state, {"instance-id": "i-6", "state": "running"}),
            event("aws.health", "AWS Health Event", {"service": "RDS", "eventTypeCategory": "scheduledChange"}),
            event("aws.health", "AWS Health Event", {"service": "EC2", "eventTypeCategory": "issue"}),
            event("aws.autoscaling", "EC2 Spot Instance Interruption Warning", {"instance-id": "i-7"}),
        ]
        self.session.client("events").put_events(Entries=others + wanted)
        queues = self.session.client("sqs")
        url = queues.get_queue_url(QueueName="prod")["QueueUrl"]
        received = []
        while messages := queues.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
            received += [json.loads(message["Body"])["detail"] for message in messages]
        details = [json.loads(one["Detail"]) for one in wanted]
        self.assertEqual(sorted(received, key=json.dumps), sorted(details, key=json.dumps))

    def test_the_role_has_the_policies_of_its_cluster(self) -> None:
        outputs = self.deploy(ClusterName="prod", NodeRoleName="our-nodes")
        self.assertEqual(outputs["NodeRoleName"], "our-nodes")
        iam = self.session.client("iam")
        role = iam.get_role(RoleName=outputs["ActuatorRoleArn"].rsplit("/", 1)[1])["Role"]
        self.assertEqual(role["AssumeRolePolicyDocument"]["Statement"][0]["Principal"], {"Service": "pods.eks.amazonaws.com"})
        # moto does not attach the policies to the role.
        arns = [policy["Arn"] for policy in iam.list_policies(Scope="Local")["Policies"]]
        self.assertEqual(len(arns), 2)
        documents = [iam.get_policy_version(PolicyArn=arn, VersionId="v1")["PolicyVersion"]["Document"] for arn in arns]
        passed = [s["Resource"] for document in documents for s in document["Statement"] if s["Action"] == "iam:PassRole"]
        self.assertEqual(passed, ["arn:aws:iam::123456789012:role/our-nodes"])
        self.assertEqual(iam.get_role(RoleName="our-nodes")["Role"]["RoleName"], "our-nodes")

    def test_clusters_of_one_name_in_two_regions_need_only_another_node_role(self) -> None:
        self.deploy(ClusterName="prod")
        self.session = boto3.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1")
        self.deploy(ClusterName="prod", NodeRoleName="prod-nodes-us-east-1")
        names = {policy["PolicyName"] for policy in self.session.client("iam").list_policies(Scope="Local")["Policies"]}
        self.assertEqual(len(names), 4)

    def test_existing_queue_and_role_are_left_alone(self) -> None:
        issuer = "oidc.eks.eu-west-1.amazonaws.com/id/ABC"
        outputs = self.deploy(
            ClusterName="prod", CreateInterruptionQueue="false", CreateNodeRole="false", Credentials="IRSA", OidcProvider=issuer
        )
        self.assertEqual(outputs["NodeRoleName"], "KarpenterNodeRole-prod")
        self.assertNotIn("QueueUrls", self.session.client("sqs").list_queues())
        roles = self.session.client("iam").list_roles()["Roles"]
        self.assertEqual([role["Arn"] for role in roles], [outputs["ActuatorRoleArn"]])
        statement = roles[0]["AssumeRolePolicyDocument"]["Statement"][0]
        self.assertEqual(statement["Principal"], {"Federated": f"arn:aws:iam::123456789012:oidc-provider/{issuer}"})
        subject = statement["Condition"]["StringEquals"][f"{issuer}:sub"]
        self.assertEqual(subject, "system:serviceaccount:plimsoll-system:plimsoll-actuator")


if __name__ == "__main__":
    unittest.main()
