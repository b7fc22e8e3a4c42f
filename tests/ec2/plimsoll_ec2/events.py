"""Messages about instances, as EventBridge sends them to the interruption queue."""

from __future__ import annotations

import json
import threading
import time
import uuid
from datetime import datetime, timedelta, timezone
from typing import Any

KINDS = ("spot-interruption", "rebalance", "state-change", "scheduled-change")
# Notice period of a Spot instance.
NOTICE_SECONDS = 120.0
ACCOUNT = "123456789012"
# A flood of messages ends with the run.
FLOOD_SECONDS_MAX = 300.0
# Every tenth message of a flood is of one of these kinds, the others are changes of state.
RARE_KINDS = ("spot-interruption", "rebalance", "scheduled-change")


class BadEvent(ValueError):
    """The body of POST /_events is invalid; the message names the field."""


def send(body: Any) -> dict[str, Any]:
    """Sends a message to the queue; after a Spot notice, the instance is terminated at the end of the notice period."""
    if not isinstance(body, dict):
        raise BadEvent("the body must be an object")
    for name in ("queue", "region", "instanceId"):
        if not isinstance(body.get(name), str):
            raise BadEvent(f"{name}: must be a string")
    kind = body.get("kind", "spot-interruption")
    if kind not in KINDS:
        raise BadEvent(f"kind: one of {', '.join(KINDS)} is needed, not {kind!r}")
    from moto.sqs.models import sqs_backends

    message = envelope(kind, body["region"], body["instanceId"], body.get("state", "stopping"))
    sqs_backends[ACCOUNT][body["region"]].send_message(body["queue"], json.dumps(message))
    if kind == "spot-interruption" and body.get("reclaim", True):
        timer = threading.Timer(float(body.get("noticeSeconds", NOTICE_SECONDS)), _reclaim, (body["region"], body["instanceId"]))
        timer.daemon = True
        timer.start()
    return message


def flood(body: Any) -> dict[str, Any]:
    """Sends messages about instances of others, evenly over the time: `{"queue", "region", "messages", "seconds"}`."""
    if not isinstance(body, dict):
        raise BadEvent("the body must be an object")
    for name in ("queue", "region"):
        if not isinstance(body.get(name), str):
            raise BadEvent(f"{name}: must be a string")
    count, seconds = body.get("messages"), body.get("seconds")
    if not isinstance(count, int) or count < 1:
        raise BadEvent(f"messages: a whole number from 1 is needed, not {count!r}")
    if not isinstance(seconds, (int, float)) or not 0 < seconds <= FLOOD_SECONDS_MAX:
        raise BadEvent(f"seconds: a number up to {FLOOD_SECONDS_MAX:g} is needed, not {seconds!r}")
    thread = threading.Thread(target=_flood, args=(body["queue"], body["region"], count, float(seconds)), daemon=True)
    thread.start()
    return {"messages": count}


def _flood(queue: str, region: str, count: int, seconds: float) -> None:
    from moto.sqs.models import sqs_backends

    began = time.monotonic()
    for number in range(count):
        kind = RARE_KINDS[number // 10 % len(RARE_KINDS)] if number % 10 == 0 else "state-change"
        message = envelope(kind, region, f"i-f{number:016x}", "terminated")
        sqs_backends[ACCOUNT][region].send_message(queue, json.dumps(message))
        time.sleep(max(0.0, began + (number + 1) * seconds / count - time.monotonic()))


def waiting(queue: str, region: str) -> int:
    """Number of messages in a queue, delivered or not."""
    from moto.sqs.models import sqs_backends

    found = sqs_backends[ACCOUNT][region].get_queue(queue)
    return int(found.approximate_number_of_messages) + int(found.approximate_number_of_messages_not_visible)


def envelope(kind: str, region: str, instance_id: str, state: str) -> dict[str, Any]:
    """The event in the format of EventBridge."""
    now = datetime.now(timezone.utc)
    base = {
        "version": "0",
        "id": str(uuid.uuid4()),
        "account": ACCOUNT,
        "time": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": region,
        "resources": [f"arn:aws:ec2:{region}:{ACCOUNT}:instance/{instance_id}"],
        "source": "aws.ec2",
    }
    if kind == "spot-interruption":
        return {
            **base,
            "detail-type": "EC2 Spot Instance Interruption Warning",
            "detail": {"instance-id": instance_id, "instance-action": "terminate"},
        }
    if kind == "rebalance":
        return {**base, "detail-type": "EC2 Instance Rebalance Recommendation", "detail": {"instance-id": instance_id}}
    if kind == "state-change":
        return {**base, "detail-type": "EC2 Instance State-change Notification", "detail": {"instance-id": instance_id, "state": state}}
    day = "%a, %d %b %Y %H:%M:%S GMT"
    return {
        **base,
        "source": "aws.health",
        "detail-type": "AWS Health Event",
        "resources": [instance_id],
        "detail": {
            "service": "EC2",
            "eventTypeCategory": "scheduledChange",
            "eventTypeCode": "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
            "eventArn": f"arn:aws:health:{region}::event/EC2/AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED/{uuid.uuid4()}",
            "startTime": now.strftime(day),
            "endTime": (now + timedelta(days=14)).strftime(day),
            "affectedEntities": [{"entityValue": instance_id}],
        },
    }


def _reclaim(region: str, instance_id: str) -> None:
    from moto.ec2.models import ec2_backends

    backend = ec2_backends[ACCOUNT][region]
    for instance in backend.all_instances():
        if instance.id == instance_id:
            instance.terminate()
