"""Tokens, lost responses, errors, holds: faults of the network and EC2 from the view of a caller."""

from __future__ import annotations

import json
import threading
import time
import unittest
import urllib.error
from concurrent.futures import ThreadPoolExecutor

from botocore.exceptions import ClientError, ConnectionClosedError, HTTPClientError

from plimsoll_ec2.faults import BadFault, Faults
from tests.support import CLUSTER, PRICES, REGION, ServerTest, ids

# Time limit for operations that take milliseconds.
LIMIT = 20.0


def until(what: object, limit: float = LIMIT) -> None:
    """Polls a condition at a short interval, because it holds immediately or never."""
    end = time.monotonic() + limit
    while not what():
        if time.monotonic() > end:
            raise AssertionError("it did not come true in time")
        threading.Event().wait(0.02)


class TokenTest(ServerTest):
    def test_concurrent_retries_launch_once(self) -> None:
        overrides = [self.override("m5.large")]
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: ids(self.fleet(overrides, ClientToken="g-1")), range(16)))
        self.assertEqual(len(self.running()), 1)
        self.assertEqual({tuple(a) for a in answers}, {(self.running()[0]["InstanceId"],)})

    def test_another_token_or_none_launches_again(self) -> None:
        overrides = [self.override("m5.large")]
        for token in ({"ClientToken": "g-1"}, {"ClientToken": "g-2"}, {}):
            self.fleet(overrides, **token)
        self.assertEqual(len(self.running()), 3)

    def test_other_parameters_are_a_mismatch(self) -> None:
        self.fleet([self.override("m5.large")], ClientToken="g-1")
        with self.assertRaises(ClientError) as caught:
            self.fleet([self.override("c5.large")], ClientToken="g-1")
        self.assertEqual(caught.exception.response["Error"]["Code"], "IdempotentParameterMismatch")
        self.assertEqual(len(self.running()), 1)

    def test_an_empty_answer_is_repeated_too(self) -> None:
        self.server.control("POST", "/_faults", {"capacity": [{}]})
        overrides = [self.override("m5.large")]
        first = self.fleet(overrides, ClientToken="g-1")
        self.server.control("DELETE", "/_faults")
        again = self.fleet(overrides, ClientToken="g-1")
        self.assertEqual((again["FleetId"], again["Instances"], again["Errors"]), (first["FleetId"], [], first["Errors"]))

    def test_a_refused_call_leaves_the_token_free(self) -> None:
        with self.assertRaises(ClientError):
            self.fleet([self.override("m5.large")], ClientToken="g-1", OnDemandOptions={"AllocationStrategy": "none"})
        self.fleet([self.override("m5.large")], ClientToken="g-1")
        self.assertEqual(len(self.running()), 1)

    def test_a_forgotten_token_launches_again(self) -> None:
        self.fleet([self.override("m5.large")], ClientToken="g-1")
        self.server.control("DELETE", "/_tokens")
        self.fleet([self.override("m5.large")], ClientToken="g-1")
        self.assertEqual(len(self.running()), 2)

    def test_a_repeated_token_is_answered_as_configured(self) -> None:
        overrides = [self.override("m5.large")]
        for answer, launched in (("same", 1), ("mismatch", 1), ("expired", 2)):
            before = len(self.running())
            self.server.control("POST", "/_tokens", {"repeated": answer})
            first = self.fleet(overrides, ClientToken=answer)
            try:
                again = self.fleet(overrides, ClientToken=answer)
                self.assertEqual(ids(again) == ids(first), answer == "same")
            except ClientError as error:
                self.assertEqual((answer, error.response["Error"]["Code"]), ("mismatch", "IdempotentParameterMismatch"))
            self.assertEqual(len(self.running()) - before, launched, answer)

    def test_a_repeated_token_may_be_refused_while_the_first_call_runs(self) -> None:
        overrides = [self.override("m5.large")]
        self.server.control("POST", "/_tokens", {"repeated": "in-progress", "seconds": 2})

        def launch(_: int) -> list[str] | str:
            try:
                return ids(self.fleet(overrides, ClientToken="g-1"))
            except ClientError as error:
                return error.response["Error"]["Code"]

        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(launch, range(2)))
        self.assertEqual(answers.count("IdempotentRequestInProgress"), 1, answers)
        self.server.control("POST", "/_tokens", {"repeated": "in-progress"})
        self.assertIn(launch(0), answers, "the call has ended")
        self.assertEqual(len(self.running()), 1)
        self.server.control("DELETE", "/_tokens")


class CallFaultTest(ServerTest):
    def fault(self, **fault: object) -> None:
        self.server.control("POST", "/_faults", {"calls": [fault]})

    def last(self, action: str) -> dict[str, object]:
        return self.server.control("GET", f"/_calls?action={action}")["calls"][-1]

    def test_a_lost_answer_has_launched_and_the_retry_finds_it(self) -> None:
        self.fault(action="CreateFleet", do="lose-answer")
        overrides = [self.override("m5.large")]
        with self.assertRaises((ConnectionClosedError, HTTPClientError)):
            self.fleet(overrides, ClientToken="g-1")
        [instance] = self.running()
        lost = self.last("CreateFleet")
        self.assertEqual((lost["state"], lost["instances"], lost["token"]), ("lost-answer", [instance["InstanceId"]], "g-1"))
        self.assertEqual(ids(self.fleet(overrides, ClientToken="g-1")), [instance["InstanceId"]])
        self.assertEqual(len(self.running()), 1)

    def test_a_lost_request_has_done_nothing(self) -> None:
        self.fault(action="CreateFleet", do="lose-request")
        with self.assertRaises((ConnectionClosedError, HTTPClientError)):
            self.fleet([self.override("m5.large")])
        self.assertEqual(self.running(), [])
        self.assertEqual(self.last("CreateFleet")["state"], "lost-request")

    def test_errors_come_so_many_times_in_the_protocol_of_the_service(self) -> None:
        self.fault(action="DescribeSubnets", code="RequestLimitExceeded", times=2)
        for _ in range(2):
            with self.assertRaises(ClientError) as caught:
                self.ec2.describe_subnets()
            self.assertEqual(caught.exception.response["Error"]["Code"], "RequestLimitExceeded")
            self.assertEqual(caught.exception.response["ResponseMetadata"]["HTTPStatusCode"], 503)
        self.ec2.describe_subnets()
        for service, action, call in (
            ("sqs", "GetQueueUrl", lambda c: c.get_queue_url(QueueName=CLUSTER)),
            ("iam", "ListInstanceProfiles", lambda c: c.list_instance_profiles()),
        ):
            self.fault(action=action, code="InternalError")
            with self.assertRaises(ClientError) as caught:
                call(self.server.client(service))
            self.assertEqual(caught.exception.response["Error"]["Code"], "InternalError")

    def test_a_held_answer_comes_when_it_is_released(self) -> None:
        self.fault(action="CreateFleet", do="hold-answer")
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(self.fleet, [self.override("m5.large")])
            until(lambda: [c for c in self.server.control("GET", "/_calls")["calls"] if c["state"] == "held-answer"])
            self.assertEqual(len(self.running()), 1)
            self.assertFalse(answer.done())
            self.server.control("POST", "/_release")
            self.assertEqual(len(ids(answer.result(LIMIT))), 1)

    def test_a_held_request_has_not_executed(self) -> None:
        self.fault(action="CreateFleet", do="hold-request")
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(self.fleet, [self.override("m5.large")])
            until(lambda: [c for c in self.server.control("GET", "/_calls")["calls"] if c["state"] == "held-request"])
            self.assertEqual(self.running(), [])
            self.server.control("POST", "/_release")
            self.assertEqual(len(ids(answer.result(LIMIT))), 1)

    def test_a_held_request_that_is_dropped_never_executes(self) -> None:
        self.fault(action="CreateFleet", do="hold-request")
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(self.fleet, [self.override("m5.large")])
            until(lambda: [c for c in self.server.control("GET", "/_calls")["calls"] if c["state"] == "held-request"])
            self.server.control("POST", "/_release", {"drop": True})
            with self.assertRaises((ConnectionClosedError, HTTPClientError)):
                answer.result(LIMIT)
        self.assertEqual(self.running(), [])

    def test_a_bad_fault_changes_nothing_and_names_its_field(self) -> None:
        for body, field in (
            ({"calls": [{"do": "error"}]}, "calls[0].action"),
            ({"calls": [{"action": "X", "do": "explode"}]}, "calls[0].do"),
            ({"capacity": [{"left": -1}]}, "capacity[0].left"),
            ({"capacity": [{"az": "a"}]}, "'az'"),
            ({"ice": []}, "'ice'"),
            ({"pendingSeconds": "2"}, "pendingSeconds"),
        ):
            with self.assertRaises(urllib.error.HTTPError) as caught:
                self.server.control("POST", "/_faults", body)
            self.assertEqual(caught.exception.code, 400)
            self.assertIn(field, caught.exception.detail)
        self.assertEqual(self.server.control("GET", "/_faults")["calls"], [])


class LifeTest(ServerTest):
    def state(self) -> str:
        return self.server.control("GET", "/_instances")["instances"][0]["state"]

    def test_an_instance_dwells_in_pending_and_in_shutting_down(self) -> None:
        self.server.control("POST", "/_faults", {"pendingSeconds": 300, "shuttingDownSeconds": 300})
        answer = self.fleet([self.override("m5.large")])
        self.assertEqual(self.state(), "pending")
        self.ec2.terminate_instances(InstanceIds=ids(answer))
        self.assertEqual(self.state(), "shutting-down")

    def test_dwelling_ends(self) -> None:
        self.server.control("POST", "/_faults", {"pendingSeconds": 0.1, "shuttingDownSeconds": 0.1})
        answer = self.fleet([self.override("m5.large")])
        until(lambda: self.state() == "running")
        self.ec2.terminate_instances(InstanceIds=ids(answer))
        until(lambda: self.state() == "terminated")

    def test_one_terminated_while_pending_does_not_come_back(self) -> None:
        self.server.control("POST", "/_faults", {"pendingSeconds": 0.2})
        self.ec2.terminate_instances(InstanceIds=ids(self.fleet([self.override("m5.large")])))
        # When a later instance is running, the delay of the first one has passed too.
        later = ids(self.fleet([self.override("m5.large")]))
        until(lambda: [i["state"] for i in self.server.control("GET", "/_instances")["instances"] if i["instanceId"] in later] == ["running"])
        self.assertEqual(self.state(), "terminated")

    def test_a_spot_notice_reaches_the_queue_and_then_takes_the_instance(self) -> None:
        [instance] = ids(self.fleet([self.override("m5.large")], spot=True))
        self.server.control("POST", "/_events", {"queue": CLUSTER, "region": REGION, "instanceId": instance, "noticeSeconds": 0.2})
        [message] = self.server.client("sqs").receive_message(QueueUrl=self.made["queueUrl"])["Messages"]
        body = json.loads(message["Body"])
        self.assertEqual(body["detail-type"], "EC2 Spot Instance Interruption Warning")
        self.assertEqual(body["detail"], {"instance-id": instance, "instance-action": "terminate"})
        until(lambda: self.state() == "terminated")

    def test_terminating_twice_is_once(self) -> None:
        answer = self.fleet([self.override("m5.large")])
        for _ in range(2):
            self.ec2.terminate_instances(InstanceIds=ids(answer))
        self.assertEqual(self.state(), "terminated")


class LogTest(ServerTest):
    def test_a_call_is_logged_with_token_and_instances_and_without_secrets(self) -> None:
        before = time.time()
        answer = self.fleet([self.override("m5.large")], ClientToken="g-1")
        [call] = self.server.control("GET", "/_calls")["calls"]
        self.assertEqual((call["action"], call["token"], call["instances"], call["status"]), ("CreateFleet", "g-1", ids(answer), 200))
        self.assertTrue(before <= call["time"] <= time.time())
        pools = [{"instanceType": "m5.large", "zone": "us-east-1a", "price": PRICES[REGION]["m5.large"]}]
        self.assertEqual((call["fleet"]["capacityType"], call["fleet"]["total"], call["fleet"]["pools"]), ("on-demand", 1, pools))
        self.assertEqual(call["parameters"]["TargetCapacitySpecification.TotalTargetCapacity"], "1")
        self.assertEqual(self.server.control("GET", f"/_calls?since={call['seq']}")["calls"], [])

    def test_pricing_answers_by_pages_what_the_file_says(self) -> None:
        pages = self.server.client("pricing").get_paginator("get_products").paginate(
            ServiceCode="AmazonEC2",
            Filters=[{"Type": "TERM_MATCH", "Field": "regionCode", "Value": REGION}],
            PaginationConfig={"PageSize": 2},
        )
        found = {}
        for page in pages:
            for text in page["PriceList"]:
                item = json.loads(text)
                [term] = item["terms"]["OnDemand"].values()
                [dimension] = term["priceDimensions"].values()
                found[item["product"]["attributes"]["instanceType"]] = float(dimension["pricePerUnit"]["USD"])
        self.assertEqual(found, PRICES[REGION])

    def test_what_moto_does_not_have_is_an_empty_list(self) -> None:
        self.assertEqual(self.ec2.describe_capacity_reservations()["CapacityReservations"], [])
        self.assertEqual(self.ec2.describe_placement_groups()["PlacementGroups"], [])


class RefusalTest(ServerTest):
    def test_a_dry_run_launches_nothing_and_is_an_action_of_its_own(self) -> None:
        def code() -> str:
            with self.assertRaises(ClientError) as caught:
                self.fleet([self.override("m5.large")], DryRun=True)
            return caught.exception.response["Error"]["Code"]

        self.assertEqual(code(), "DryRunOperation")
        denied = {"action": "DryRunCreateFleet", "do": "error", "code": "UnauthorizedOperation", "status": 403}
        self.server.control("POST", "/_faults", {"calls": [denied]})
        self.assertEqual(len(ids(self.fleet([self.override("m5.large")]))), 1)
        self.assertEqual(code(), "UnauthorizedOperation")
        actions = [call["action"] for call in self.server.control("GET", "/_calls")["calls"]]
        self.assertEqual(actions, ["DryRunCreateFleet", "CreateFleet", "DryRunCreateFleet"])

    def test_a_protected_instance_keeps_those_of_its_zone(self) -> None:
        a = ids(self.fleet([self.override("m5.large")], count=3))
        b = ids(self.fleet([self.override("m5.large", "us-east-1b")]))
        self.ec2.modify_instance_attribute(InstanceId=a[2], DisableApiTermination={"Value": True})
        with self.assertRaises(ClientError) as caught:
            self.ec2.terminate_instances(InstanceIds=a + b)
        self.assertEqual(caught.exception.response["Error"]["Code"], "OperationNotPermitted")
        self.assertEqual(sorted(i["InstanceId"] for i in self.running()), sorted(a))
        self.ec2.terminate_instances(InstanceIds=a[:2])
        self.ec2.modify_instance_attribute(InstanceId=a[2], DisableApiTermination={"Value": False})
        self.ec2.terminate_instances(InstanceIds=a[2:])
        self.assertEqual(self.running(), [])


class FaultsUnit(unittest.TestCase):
    def test_the_tightest_rule_counts(self) -> None:
        faults = Faults()
        faults.update({"capacity": [{"left": 5}, {"instanceType": "m5.large", "left": 1, "code": "UnfulfillableCapacity"}]})
        self.assertEqual(faults.room("spot", "m5.large", "a"), (1, "UnfulfillableCapacity"))
        self.assertEqual(faults.room("spot", "c5.large", "a")[0], 5)
        faults.use("spot", "m5.large", "a", 1)
        self.assertEqual((faults.room("spot", "m5.large", "a")[0], faults.room("spot", "c5.large", "a")[0]), (0, 4))

    def test_an_update_is_all_or_nothing(self) -> None:
        faults = Faults()
        with self.assertRaises(BadFault):
            faults.update({"pendingSeconds": 3, "calls": [{"action": 1}]})
        self.assertEqual(faults.pending_seconds, 0.0)


if __name__ == "__main__":
    unittest.main()
