"""Delayed reads: for some seconds, a new object does not exist for other calls, and a terminated instance still runs.

EC2: https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html; IAM:
https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot.html#troubleshoot_general_eventual-consistency. The first
page says that a call may miss an object that an earlier one has found, so that each call in the delay has its own draw.
Neither page has figures; the delays are assumptions.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from moto.ec2.exceptions import (
    InvalidInstanceIdError,
    InvalidLaunchTemplateIdNotFound,
    InvalidLaunchTemplateNameNotFoundWithNameError,
)
from moto.ec2.models.instances import Instance, InstanceBackend
from moto.ec2.models.launch_templates import LaunchTemplateBackend
from moto.ec2.models.tags import TagBackend
from moto.iam.exceptions import NotFoundException
from moto.iam.models import IAMBackend

from plimsoll_ec2.world import WORLD

# Share of the objects that every call sees immediately.
IMMEDIATE = 0.5
# The longest delay of the others. An instance is launched in the middle of its CreateFleet.
SECONDS_MAX = {"instance": 8.0, "template": 3.0, "profile": 5.0, "termination": 5.0}
# Share of the calls in the delay that see the object.
SEEN = 0.25
READS = ("DescribeInstances", "DescribeInstanceStatus")
# moto reads the instances that it launches in the same call.
LAUNCHES = ("CreateFleet", "RunInstances")
_LOCAL = threading.local()


@contextmanager
def calling(action: str, number: int) -> Iterator[None]:
    """In this thread, objects are visible as for this call. Without it, everything is visible."""
    _LOCAL.call = (action, number)
    try:
        yield
    finally:
        _LOCAL.call = None


def delay(thing: Any, kind: str) -> None:
    """Starts the delay of a new object."""
    seeded = WORLD.seeded
    if seeded.seed is None:
        return
    number = seeded.count(kind)
    share = (seeded.draw("delay", kind, number) - IMMEDIATE) / (1 - IMMEDIATE)
    if share > 0:
        thing.delayed_until = time.monotonic() + share * SECONDS_MAX[kind]
        thing.delayed_number = number


def visible(thing: Any) -> bool:
    """Whether the current call sees an object."""
    call = getattr(_LOCAL, "call", None)
    if call is None or time.monotonic() >= getattr(thing, "delayed_until", 0.0):
        return True
    return WORLD.seeded.draw("seen", *call, thing.delayed_number) < SEEN


def install() -> None:
    """Call once per process, before the first request."""
    InstanceBackend.all_reservations = _reservations(InstanceBackend.all_reservations)
    TagBackend.create_tags = _create_tags(TagBackend.create_tags)
    LaunchTemplateBackend.create_launch_template = _created(LaunchTemplateBackend.create_launch_template, "template")
    LaunchTemplateBackend.get_launch_template = _get_template(LaunchTemplateBackend.get_launch_template)
    LaunchTemplateBackend.get_launch_template_by_name = _by_name(LaunchTemplateBackend.get_launch_template_by_name)
    LaunchTemplateBackend.describe_launch_templates = _templates(LaunchTemplateBackend.describe_launch_templates)
    IAMBackend.create_instance_profile = _created(IAMBackend.create_instance_profile, "profile")
    IAMBackend.get_instance_profile = _get_profile(IAMBackend.get_instance_profile)
    Instance._state = property(_state, _set_state)


def _created(original: Callable[..., Any], kind: str) -> Callable[..., Any]:
    def create(*args: Any, **kwargs: Any) -> Any:
        thing = original(*args, **kwargs)
        delay(thing, kind)
        return thing

    return create


def _reservations(original: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Every read of instances in moto starts here: by id, by filter, and of all."""

    def read(backend: Any, filters: Any = None) -> list[Any]:
        found = original(backend, filters)
        call = getattr(_LOCAL, "call", None)
        if call is None or call[0] in LAUNCHES:
            return found
        for reservation in found:
            reservation.instances = [i for i in reservation.instances if visible(i)]
        return [r for r in found if r.instances]

    return read


def _create_tags(original: Callable[..., bool]) -> Callable[..., bool]:
    def create(backend: Any, resource_ids: list[str], tags: dict[str, str]) -> bool:
        call = getattr(_LOCAL, "call", None)
        if call and call[0] == "CreateTags":
            asked = {i for i in resource_ids if i.startswith("i-")}
            known = {i.id for r in backend.all_reservations() for i in r.instances}
            if asked - known:
                raise InvalidInstanceIdError(sorted(asked - known))
        return original(backend, resource_ids, tags)

    return create


def _get_template(original: Callable[..., Any]) -> Callable[..., Any]:
    def get(backend: Any, template_id: str) -> Any:
        template = original(backend, template_id)
        if not visible(template):
            raise InvalidLaunchTemplateIdNotFound(template_id)
        return template

    return get


def _by_name(original: Callable[..., Any]) -> Callable[..., Any]:
    """moto reads the template by its id, but the error must name what the caller asked for."""

    def get(backend: Any, name: str) -> Any:
        try:
            return original(backend, name)
        except InvalidLaunchTemplateIdNotFound:
            raise InvalidLaunchTemplateNameNotFoundWithNameError(name) from None

    return get


def _templates(original: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    def describe(backend: Any, template_names: Any = None, template_ids: Any = None, filters: Any = None) -> list[Any]:
        found = original(backend, template_names, template_ids, filters)
        for template in found:
            if not visible(template) and template_ids:
                raise InvalidLaunchTemplateIdNotFound(template.id)
            if not visible(template) and template_names:
                raise InvalidLaunchTemplateNameNotFoundWithNameError(template.name)
        return [t for t in found if visible(t)]

    return describe


def _get_profile(original: Callable[..., Any]) -> Callable[..., Any]:
    def get(backend: Any, profile_name: str) -> Any:
        profile = original(backend, profile_name)
        if not visible(profile):
            raise NotFoundException(f"Instance profile {profile_name} not found")
        return profile

    return get


class _Before:
    """State of an instance before its termination, which reads see during the delay."""

    def __init__(self, state: Any) -> None:
        self.state = copy.copy(state)


def remember(instance: Any, before: Any) -> None:
    """Reads may see an instance for some time as it was before its termination."""
    seen = _Before(before)
    delay(seen, "termination")
    instance.before_termination = seen


def _state(instance: Any) -> Any:
    before = getattr(instance, "before_termination", None)
    call = getattr(_LOCAL, "call", None)
    if before is not None and call and call[0] in READS and not visible(before):
        return before.state
    return instance.true_state


def _set_state(instance: Any, state: Any) -> None:
    instance.true_state = state
