"""Requests and quotas that EC2 refuses."""

from __future__ import annotations

import base64
import unittest
from typing import Any

from botocore.exceptions import ClientError

from plimsoll_ec2.quotas import Quotas
from tests.support import ServerTest, errors, ids

TAGS = [{"Key": f"k{n}", "Value": ""} for n in range(51)]


class RequestTest(ServerTest):
    def refused(self, call: Any) -> str:
        with self.assertRaises(ClientError) as caught:
            call()
        return caught.exception.response["Error"]["Code"]

    def make(self, **data: Any) -> str:
        made = self.ec2.create_launch_template(LaunchTemplateName="other", LaunchTemplateData={"ImageId": self.image, **data})
        return made["LaunchTemplate"]["LaunchTemplateId"]

    def test_user_data_has_at_most_16_kib(self) -> None:
        longest = base64.b64encode(b"a" * 16384).decode()
        longer = base64.b64encode(b"a" * 16385).decode()
        self.assertEqual(self.refused(lambda: self.make(UserData=longer)), "InvalidUserData.Malformed")
        self.assertEqual(self.refused(lambda: self.make(UserData="#cloud-config")), "InvalidUserData.Malformed")
        self.make(UserData=longest)

    def test_a_resource_has_at_most_50_tags(self) -> None:
        spec = [{"ResourceType": "instance", "Tags": TAGS}]
        self.assertEqual(self.refused(lambda: self.make(TagSpecifications=spec)), "TagLimitExceeded")
        overrides = [self.override("m5.large")]
        self.assertEqual(self.refused(lambda: self.fleet(overrides, TagSpecifications=spec)), "TagLimitExceeded")
        self.make(TagSpecifications=[{"ResourceType": "instance", "Tags": TAGS[:50]}])

    def test_network_interfaces_exclude_other_parameters(self) -> None:
        group = [self.made["securityGroup"]]
        two = [{"DeviceIndex": 0, "Groups": group}, {"DeviceIndex": 1, "Groups": group}]
        for data, code in (
            ({"NetworkInterfaces": two[:1], "SecurityGroupIds": group}, "InvalidParameterCombination"),
            ({"NetworkInterfaces": [{**two[0], "AssociatePublicIpAddress": True}, two[1]]}, "InvalidParameterCombination"),
            ({"NetworkInterfaces": [{**two[0], "AssociatePublicIpAddress": True}]}, None),
        ):
            self.template = self.make(**data)
            answer = self.fleet([self.override("m5.large")])
            self.assertEqual(errors(answer), [("m5.large", code)] if code else [], data)
            self.ec2.delete_launch_template(LaunchTemplateId=self.template)


class QuotaTest(ServerTest):
    def test_vcpus_are_counted_by_purchase_option(self) -> None:
        self.server.control("POST", "/_quotas", {"onDemandVcpus": 5, "spotVcpus": 2})
        answer = self.fleet([self.override("m5.large")], count=3)
        self.assertEqual((len(ids(answer)), errors(answer)), (2, [("m5.large", "VcpuLimitExceeded")]))
        answer = self.fleet([self.override("m5.large")], count=2, spot=True)
        self.assertEqual((len(ids(answer)), errors(answer)), (1, [("m5.large", "MaxSpotInstanceCountExceeded")]))
        self.ec2.terminate_instances(InstanceIds=[i["InstanceId"] for i in self.running()])
        self.assertEqual(len(ids(self.fleet([self.override("m5.large")], count=2))), 2, "terminated instances do not count")

    def test_several_pools_of_a_call_share_a_quota(self) -> None:
        self.server.control("POST", "/_quotas", {"onDemandVcpus": 4})
        self.server.control("POST", "/_faults", {"capacity": [{"instanceType": "m5.large", "left": 1}]})
        answer = self.fleet([self.override("m5.large"), self.override("c5.large")], count=3)
        self.assertEqual(len(ids(answer)), 2)
        self.server.control("DELETE", "/_faults")

    def test_without_the_spot_role_only_on_demand_launches(self) -> None:
        self.server.control("POST", "/_quotas", {"spotRole": False})
        code = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
        self.assertEqual(errors(self.fleet([self.override("m5.large")], spot=True)), [("m5.large", code)])
        self.assertEqual(len(ids(self.fleet([self.override("m5.large")]))), 1)


class SetQuotaTest(unittest.TestCase):
    def test_bad_fields_are_named(self) -> None:
        for body, name in (({"vcpus": 1}, "spotVcpus"), ({"spotVcpus": -1}, "spotVcpus"), ({"spotRole": 1}, "spotRole"), ([], "spotRole")):
            with self.assertRaisesRegex(ValueError, name):
                Quotas().set(body)

    def test_other_families_have_other_quotas(self) -> None:
        quotas = Quotas()
        quotas.set({"onDemandVcpus": 0})
        self.assertEqual(quotas.room("on-demand", "m5.large", [])[0], 0)
        for other in ("p3.2xlarge", "inf1.xlarge", "g4dn.xlarge"):
            self.assertGreater(quotas.room("on-demand", other, [])[0], 100, other)
