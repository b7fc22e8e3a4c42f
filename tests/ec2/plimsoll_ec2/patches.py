"""Replaces moto's handlers. The version of moto is pinned for this."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable
from typing import Any
from xml.sax.saxutils import escape

import moto
from moto.ec2.exceptions import OperationNotPermitted4
from moto.ec2.models.instances import Instance, InstanceBackend, InstanceState
from moto.ec2.models.subnets import Subnet
from moto.ec2.responses.fleets import Fleets
from moto.ec2.responses.instances import InstanceResponse
from moto.ec2.responses.launch_templates import LaunchTemplates
from moto.ec2.responses.spot_instances import SpotInstances
from moto.ec2.utils import convert_tag_spec
from moto.ssm.models import Parameter, ParameterDict

from plimsoll_ec2 import dwell, fleet, images, products, request_checks, visibility
from plimsoll_ec2.world import WORLD

MOTO_VERSION = "5.2.5"
# EC2's page size for price histories.
PRICE_PAGE = 1000


def install() -> None:
    """Call once per process, before the first request."""
    if moto.__version__ != MOTO_VERSION:
        raise SystemExit(f"moto {MOTO_VERSION} is needed, this is {moto.__version__}")
    Fleets.create_fleet = _once(fleet.create_fleet)
    InstanceResponse.run_instances = _once(InstanceResponse.run_instances)
    LaunchTemplates.create_launch_template = _once(_checked_template(LaunchTemplates.create_launch_template))
    SpotInstances.describe_spot_price_history = _spot_price_history
    InstanceBackend.terminate_instances = _terminate_by_zone(InstanceBackend.terminate_instances)
    Instance.terminate = _terminate(Instance.terminate)
    visibility.install()
    Subnet.get_available_subnet_ip = _fresh_address(Subnet.get_available_subnet_ip)
    ParameterDict._check_loading_status = _with_eks_parameters(ParameterDict._check_loading_status)


def _once(handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Makes a handler respect its ClientToken."""

    def handle(response: Any) -> Any:
        token = response._get_param("ClientToken")
        if not token:
            return handler(response)
        asked = {k: v for k, v in response.querystring.items() if k not in ("ClientToken", "Action", "Version")}
        action = response.querystring["Action"][0]
        key = (response.current_account, response.region, action, token)
        return WORLD.tokens.once(key, asked, lambda: handler(response), action == "CreateFleet")

    return handle


def _checked_template(handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def handle(response: Any) -> Any:
        data = response._get_param("LaunchTemplateData", {})
        request_checks.user_data(data.get("UserData"))
        request_checks.tags(convert_tag_spec(response._get_param("TagSpecifications", [])))
        request_checks.tags(convert_tag_spec(data.get("TagSpecifications") or []))
        return handler(response)

    return handle


def _spot_price_history(response: Any) -> str:
    filters = dict(response._filters_from_querystring())
    descriptions = response._get_param("ProductDescriptions", []) or filters.pop("product-description", None) or ["Linux/UNIX"]
    zone = response._get_param("AvailabilityZone")
    if zone:
        filters["availability-zone"] = [zone]
    backend = response.ec2_backend
    pools = backend.describe_spot_price_history(response._get_param("InstanceTypes", []), filters)
    prices = []
    for pool in sorted(pools, key=lambda p: (p["InstanceType"], p["Location"])):
        price = WORLD.prices.spot(backend.region_name, pool["InstanceType"], pool["Location"])
        if price is not None:
            prices.extend((pool["InstanceType"], pool["Location"], description, price) for description in descriptions)
    start = int(response._get_param("NextToken") or 0)
    end = start + min(int(response._get_param("MaxResults") or PRICE_PAGE), PRICE_PAGE)
    # As text: a replica reads thirteen pages when it starts, and moto writes each of them in a quarter of a second.
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    items = "".join(
        f"<item><instanceType>{name}</instanceType><productDescription>{escape(description)}</productDescription>"
        f"<spotPrice>{price:.6f}</spotPrice><timestamp>{now}</timestamp><availabilityZone>{zone}</availabilityZone></item>"
        for name, zone, description, price in prices[start:end]
    )
    token = str(end) if end < len(prices) else ""
    return products.response("DescribeSpotPriceHistory", "spotPriceHistorySet", items, token)


def _fresh_address(original: Callable[[Any, Any], str]) -> Callable[[Any, Any], str]:
    """An unused address, as long as there is one: EC2 hardly ever reuses an address immediately, and nodes are named by
    it."""

    def take(subnet: Any, instance: Any) -> str:
        given_back, subnet._unused_ips = subnet._unused_ips, set()
        try:
            return original(subnet, instance)
        except StopIteration:
            subnet._unused_ips = given_back
            return original(subnet, instance)
        finally:
            subnet._unused_ips = given_back

    return take


def _terminate_by_zone(original: Callable[[Any, list[str]], Any]) -> Callable[[Any, list[str]], Any]:
    """One protected instance keeps all of its zone in the call running; those of other zones end, and the call fails."""

    def terminate(backend: Any, ids: list[str]) -> Any:
        named = backend.get_multi_instances_by_id(ids) if ids else []
        protected = [i for i in named if i.disable_api_termination in (True, "true")]
        if not protected:
            return original(backend, ids)
        zones = {i.availability_zone for i in protected}
        others = [i.id for i in named if i.availability_zone not in zones]
        if others:
            original(backend, others)
        raise OperationNotPermitted4(protected[0].id)

    return terminate


def _terminate(original: Callable[[Any], Any]) -> Callable[[Any], InstanceState]:
    def terminate(instance: Any) -> InstanceState:
        # EC2 does so as long as the instance is listed; moto would terminate it twice.
        if instance._state.name in ("shutting-down", "terminated"):
            return InstanceState(instance._state.name, instance._state.code)
        before = original(instance)
        visibility.remember(instance, before)
        dwell.begin_shutting_down(instance)
        return before

    return terminate


def _with_eks_parameters(original: Callable[..., None]) -> Callable[..., None]:
    prefixes = ("/aws/service/eks/", "/aws/service/bottlerocket/", "/aws/service/ami-windows-latest/")
    # Calls are concurrent: none may look for a parameter while another one is writing them.
    lock = threading.Lock()

    def check(self: Any, key: str) -> None:
        if str(key or "").startswith(prefixes):
            with lock:
                if getattr(self, "eks_release", "") != images.recommended():
                    for name, value in images.parameters().items():
                        dict.__setitem__(self, name, [_parameter(self.account_id, name, value)])
                    self.eks_release = images.recommended()
        original(self, key)

    return check


def _parameter(account_id: str, name: str, value: str) -> Parameter:
    return Parameter(
        account_id=account_id,
        name=name,
        value=value,
        parameter_type="String",
        description=None,
        allowed_pattern=None,
        keyid=None,
        last_modified_date=datetime.datetime(2026, 11, 1, tzinfo=datetime.timezone.utc),
        version=1,
        data_type="aws:ec2:image",
    )
