"""Instances that CreateFleet launches: types, zones and properties."""

from __future__ import annotations

import json
import subprocess
import sys

from botocore.exceptions import ClientError

from tests.support import AL2023, CLUSTER, HERE, PRICES, REGION, ServerTest, errors, ids, types


class Strategies(ServerTest):
    def test_on_demand_takes_the_cheapest_whatever_its_place(self) -> None:
        answer = self.fleet([self.override(t) for t in ("r5.large", "c5.large", "m5.large")])
        self.assertEqual(types(answer), ["m5.large"])
        self.assertEqual(answer["Instances"][0]["Lifecycle"], "on-demand")
        self.assertEqual(answer["Errors"], [])

    def test_prioritized_takes_the_lowest_number_before_the_cheapest(self) -> None:
        overrides = [self.override("m5.large", Priority=2), self.override("r5.large", Priority=1)]
        answer = self.fleet(overrides, OnDemandOptions={"AllocationStrategy": "prioritized"})
        self.assertEqual(types(answer), ["r5.large"])

    def test_spot_takes_the_zone_whose_price_is_lowest(self) -> None:
        history = self.ec2.describe_spot_price_history(InstanceTypes=["m5.large"], ProductDescriptions=["Linux/UNIX"])
        price = {row["AvailabilityZone"]: float(row["SpotPrice"]) for row in history["SpotPriceHistory"]}
        zones = ("us-east-1a", "us-east-1b")
        for zone in zones:
            self.assertTrue(0.25 <= price[zone] / PRICES[REGION]["m5.large"] <= 0.60, price)
        self.assertNotEqual(price[zones[0]], price[zones[1]])
        answer = self.fleet(
            [self.override("m5.large", z) for z in zones], spot=True, SpotOptions={"AllocationStrategy": "price-capacity-optimized"}
        )
        [instance] = self.running()
        self.assertEqual(ids(answer), [instance["InstanceId"]])
        self.assertEqual(instance["Placement"]["AvailabilityZone"], min(zones, key=price.get))
        self.assertEqual(instance["InstanceLifecycle"], "spot")

    def test_a_type_without_price_comes_last(self) -> None:
        self.assertEqual(types(self.fleet([self.override("m4.large"), self.override("r5.large")])), ["r5.large"])

    def test_an_unknown_strategy_is_refused(self) -> None:
        with self.assertRaisesRegex(ClientError, "AllocationStrategy"):
            self.fleet([self.override("m5.large")], OnDemandOptions={"AllocationStrategy": "diversified"})


class Capacity(ServerTest):
    def without(self, *rules: dict[str, object]) -> None:
        self.server.control("POST", "/_faults", {"capacity": list(rules)})

    def test_a_pool_without_capacity_is_named_and_the_next_one_launches(self) -> None:
        self.without({"instanceType": "m5.large", "capacityType": "on-demand"})
        overrides = [self.override(t) for t in ("m5.large", "c5.large", "r5.large")]
        answer = self.fleet(overrides)
        self.assertEqual(types(answer), ["c5.large"])
        self.assertEqual(errors(answer), [("m5.large", "InsufficientInstanceCapacity")])
        told = answer["Errors"][0]["LaunchTemplateAndOverrides"]["Overrides"]
        self.assertEqual(told["SubnetId"], self.made["subnets"]["us-east-1a"])
        # Spot uses separate capacity.
        self.assertEqual(types(self.fleet([self.override("m5.large")], spot=True)), ["m5.large"])

    def test_only_the_zone_that_is_named_has_none(self) -> None:
        self.without({"instanceType": "m5.large", "zone": "us-east-1a"})
        self.fleet([self.override("m5.large", "us-east-1a"), self.override("m5.large", "us-east-1b")])
        self.assertEqual([i["Placement"]["AvailabilityZone"] for i in self.running()], ["us-east-1b"])

    def test_no_capacity_at_all_is_an_answer_without_instances(self) -> None:
        self.without({})
        answer = self.fleet([self.override("m5.large"), self.override("c5.large")], count=2)
        self.assertEqual(answer["Instances"], [])
        self.assertEqual(len(answer["Errors"]), 2)
        self.assertEqual(self.running(), [])

    def test_what_is_left_is_shared_out_and_used_up(self) -> None:
        self.without({"instanceType": "m5.large", "left": 2})
        overrides = [self.override("m5.large"), self.override("c5.large")]
        answer = self.fleet(overrides, count=3)
        self.assertEqual([(i["InstanceType"], len(i["InstanceIds"])) for i in answer["Instances"]], [("m5.large", 2), ("c5.large", 1)])
        self.assertEqual(errors(answer), [("m5.large", "InsufficientInstanceCapacity")])
        self.assertEqual(types(self.fleet(overrides)), ["c5.large"])

    def test_a_minimum_is_all_or_nothing(self) -> None:
        self.without({"instanceType": "m5.large", "left": 1})
        answer = self.fleet([self.override("m5.large")], count=2, OnDemandOptions={"MinTargetCapacity": 2})
        self.assertEqual(answer["Instances"], [])
        self.assertEqual(types(self.fleet([self.override("m5.large")])), ["m5.large"])

    def test_a_full_subnet_gives_what_it_has(self) -> None:
        subnet = self.ec2.create_subnet(VpcId=self.made["vpc"], CidrBlock="10.0.240.0/28", AvailabilityZone="us-east-1a")["Subnet"]
        self.assertEqual(subnet["AvailableIpAddressCount"], 11)
        answer = self.fleet([{"InstanceType": "m5.large", "SubnetId": subnet["SubnetId"]}], count=12)
        self.assertEqual(len(ids(answer)), 11)
        self.assertEqual(errors(answer), [("m5.large", "InsufficientFreeAddressesInSubnet")])

    def test_an_address_is_given_again_only_when_no_other_is_left(self) -> None:
        cidr = {"CidrBlock": "10.0.241.0/28", "AvailabilityZone": "us-east-1a"}
        subnet = self.ec2.create_subnet(VpcId=self.made["vpc"], **cidr)["Subnet"]["SubnetId"]

        def launch() -> tuple[str, str]:
            (found,) = ids(self.fleet([{"InstanceType": "m5.large", "SubnetId": subnet}]))
            described = self.ec2.describe_instances(InstanceIds=[found])["Reservations"][0]["Instances"][0]
            return found, described["PrivateIpAddress"]

        seen = []
        for _ in range(12):
            found, address = launch()
            seen.append(address)
            self.ec2.terminate_instances(InstanceIds=[found])
        self.assertEqual(len(set(seen[:11])), 11)
        self.assertIn(seen[11], seen[:11])


class Refusals(ServerTest):
    def refused(self, override: dict[str, object], code: str) -> None:
        answer = self.fleet([override, self.override("r5.large")], OnDemandOptions={"AllocationStrategy": "prioritized"})
        self.assertEqual([c for _, c in errors(answer)], [code])
        self.assertEqual(types(answer), ["r5.large"])

    def test_an_image_of_another_architecture(self) -> None:
        arm = self.server.client("ssm").get_parameter(Name=AL2023.format("arm64"))["Parameter"]["Value"]
        self.refused(self.override("m5.large", ImageId=arm, Priority=0), "InvalidParameterValue")

    def test_an_image_that_does_not_exist(self) -> None:
        self.refused(self.override("m5.large", ImageId="ami-0123456789abcdef0", Priority=0), "InvalidAMIID.NotFound")

    def test_a_zone_in_which_the_type_is_not_sold(self) -> None:
        sold = self.ec2.describe_instance_type_offerings(
            LocationType="availability-zone", Filters=[{"Name": "location", "Values": ["us-east-1a"]}]
        )["InstanceTypeOfferings"]
        everywhere = self.ec2.describe_instance_types(Filters=[{"Name": "processor-info.supported-architecture", "Values": ["x86_64"]}])
        missing = sorted({t["InstanceType"] for t in everywhere["InstanceTypes"]} - {o["InstanceType"] for o in sold})
        self.refused(self.override(missing[0], Priority=0), "InvalidFleetConfiguration")

    def test_a_template_that_does_not_exist_fails_the_call(self) -> None:
        self.ec2.delete_launch_template(LaunchTemplateId=self.template)
        with self.assertRaises(ClientError) as caught:
            self.fleet([self.override("m5.large")])
        self.assertEqual(caught.exception.response["Error"]["Code"], "InvalidLaunchTemplateId.NotFound")

    def test_more_overrides_than_a_fleet_has(self) -> None:
        with self.assertRaisesRegex(ClientError, "300"):
            self.fleet([self.override("m5.large")] * 301)


class Equipment(ServerTest):
    def test_the_instance_has_what_template_and_request_say(self) -> None:
        tags = [{"ResourceType": "instance", "Tags": [{"Key": "karpenter.sh/nodepool", "Value": "default"}]}]
        tags.append({"ResourceType": "volume", "Tags": [{"Key": "Name", "Value": "root"}]})
        answer = self.fleet([self.override("m5.large")], TagSpecifications=tags)
        [instance] = self.running()
        self.assertEqual([g["GroupId"] for g in instance["SecurityGroups"]], [self.made["securityGroup"]])
        self.assertEqual([g["GroupId"] for g in instance["NetworkInterfaces"][0]["Groups"]], [self.made["securityGroup"]])
        self.assertTrue(instance["IamInstanceProfile"]["Arn"].endswith("/" + self.made["instanceProfile"]))
        self.assertEqual(instance["MetadataOptions"]["HttpTokens"], "required")
        told = {t["Key"]: t["Value"] for t in instance["Tags"]}
        self.assertEqual(told["karpenter.sh/nodepool"], "default")
        self.assertEqual(told["aws:ec2:fleet-id"], answer["FleetId"])
        self.assertEqual(told["aws:ec2launchtemplate:id"], self.template)
        [volume] = self.ec2.describe_volumes(Filters=[{"Name": "attachment.instance-id", "Values": [instance["InstanceId"]]}])["Volumes"]
        self.assertEqual((volume["Size"], volume["Tags"]), (33, [{"Key": "Name", "Value": "root"}]))
        data = self.server.control("GET", f"/_instances?user-data={instance['InstanceId']}")["instances"][0]
        self.assertEqual((data["userData"], data["rootGib"]), ("I2Nsb3VkLWNvbmZpZwo=", 33))

    def test_a_free_address_is_taken_and_given_back(self) -> None:
        subnet = self.made["subnets"]["us-east-1a"]

        def free() -> int:
            return self.ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0]["AvailableIpAddressCount"]

        before = free()
        answer = self.fleet([self.override("m5.large")], count=3)
        self.assertEqual(free(), before - 3)
        self.ec2.terminate_instances(InstanceIds=ids(answer))
        self.assertEqual(free(), before)

    def test_the_bootstrap_command_tells_what_it_made(self) -> None:
        command = [sys.executable, "-m", "plimsoll_ec2", "bootstrap", "--endpoint", self.server.endpoint]
        command += ["--region", "eu-west-1", "--cluster", "other"]
        made = json.loads(subprocess.run(command, cwd=HERE, check=True, capture_output=True, text=True).stdout)
        self.assertEqual(list(made["subnets"]), ["eu-west-1a", "eu-west-1b", "eu-west-1c"])
        self.assertEqual((made["queue"], made["instanceProfile"]), ("other", "karpenter-node"))

    def test_bootstrap_tags_what_selectors_look_for(self) -> None:
        selector = [{"Name": "tag:karpenter.sh/discovery", "Values": [CLUSTER]}]
        subnets = self.ec2.describe_subnets(Filters=selector)["Subnets"]
        self.assertEqual({s["SubnetId"] for s in subnets}, set(self.made["subnets"].values()))
        [group] = self.ec2.describe_security_groups(Filters=selector)["SecurityGroups"]
        self.assertEqual(group["GroupId"], self.made["securityGroup"])
        role = self.server.client("iam").get_instance_profile(InstanceProfileName="karpenter-node")["InstanceProfile"]["Roles"][0]
        self.assertEqual(role["RoleName"], f"KarpenterNodeRole-{CLUSTER}")


class Images(ServerTest):
    def test_every_parameter_names_an_image_of_its_architecture(self) -> None:
        ssm = self.server.client("ssm")
        for name, architecture, pattern in (
            (AL2023.format("arm64"), "arm64", "amazon-eks-node-al2023-arm64-standard-1.36-v*"),
            (AL2023.format("x86_64").replace("standard", "neuron"), "x86_64", "amazon-eks-node-al2023-x86_64-neuron-1.36-v*"),
            ("/aws/service/eks/optimized-ami/1.32/amazon-linux-2-gpu/recommended/image_id", "x86_64", "amazon-eks-gpu-node-1.32-v*"),
            ("/aws/service/bottlerocket/aws-k8s-1.36-nvidia/arm64/latest/image_id", "arm64", "bottlerocket-aws-k8s-1.36-nvidia-aarch64-v*"),
        ):
            value = ssm.get_parameter(Name=name)["Parameter"]["Value"]
            found = self.ec2.describe_images(Owners=["amazon"], Filters=[{"Name": "name", "Values": [pattern]}])["Images"]
            newest = max(found, key=lambda i: i["CreationDate"])
            self.assertEqual((newest["ImageId"], newest["Architecture"]), (value, architecture), name)
            self.assertGreater(len(found), 1, name)

    def test_a_parameter_that_is_not_published_is_not_found(self) -> None:
        with self.assertRaises(ClientError) as caught:
            self.server.client("ssm").get_parameter(Name=AL2023.format("riscv"))
        self.assertEqual(caught.exception.response["Error"]["Code"], "ParameterNotFound")
