"""Pricing's GetProducts, and EC2 lists that moto does not support."""

from __future__ import annotations

import json
from typing import Any
from xml.sax.saxutils import escape

from plimsoll_ec2 import placement, reservations
from plimsoll_ec2.world import WORLD

PAGE_MAX = 100
_NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
# Actions for which moto returns an HTML page with status 500, with the name of the list in their response.
LISTS = {
    "DescribeCapacityReservations": "capacityReservationSet",
    "DescribePlacementGroups": "placementGroupSet",
}


def described(action: str, parameters: dict[str, Any]) -> tuple[int, str]:
    """Status and response: the configured capacity reservations or placement groups."""
    try:
        if action == "DescribeCapacityReservations":
            items, token = WORLD.reservations.describe(parameters)
        else:
            items, token = WORLD.placement.describe(parameters), ""
    except reservations.Refused as error:
        return refusal(error.code, str(error))
    except placement.Unknown as error:
        return refusal(placement.UNKNOWN, str(error))
    return 200, response(action, LISTS[action], items, token)


def refusal(code: str, message: str) -> tuple[int, str]:
    """Status and response of a call that EC2 refuses."""
    inner = f"<Code>{code}</Code><Message>{escape(message)}</Message>"
    return 400, f"<Response><Errors><Error>{inner}</Error></Errors><RequestID>plimsoll-ec2</RequestID></Response>"


def response(action: str, name: str, items: str, token: str) -> str:
    """A response of EC2 with one list, whose items are XML, and the token of the next page."""
    next_token = f"<nextToken>{token}</nextToken>" if token else ""
    return (
        f'<?xml version="1.0" encoding="UTF-8"?><{action}Response xmlns="{_NAMESPACE}">'
        f"<requestId>plimsoll-ec2</requestId><{name}>{items}</{name}>{next_token}</{action}Response>"
    )


def get_products(body: dict[str, Any]) -> dict[str, Any]:
    """On-demand prices of Linux instances with shared tenancy, filtered by regionCode, location and instanceType."""
    from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS

    filters = {f["Field"]: f["Value"] for f in body.get("Filters", [])}
    if body.get("ServiceCode") != "AmazonEC2":
        return {"FormatVersion": "aws_v1", "PriceList": []}
    region = filters.get("regionCode", "us-east-1")
    shared = filters.get("tenancy", "Shared") == "Shared"
    linux = filters.get("operatingSystem", "Linux") == "Linux"
    prices = []
    for offering in sorted(INSTANCE_TYPE_OFFERINGS["region"].get(region, []), key=lambda o: o["InstanceType"]):
        name = offering["InstanceType"]
        price = WORLD.prices.on_demand(region, name)
        if price is not None and shared and linux and filters.get("instanceType", name) == name:
            prices.append((name, price))
    start = int(body.get("NextToken") or 0)
    end = start + min(int(body.get("MaxResults") or PAGE_MAX), PAGE_MAX)
    rows = [json.dumps(_product(region, name, price)) for name, price in prices[start:end]]
    page: dict[str, Any] = {"FormatVersion": "aws_v1", "PriceList": rows}
    if end < len(prices):
        page["NextToken"] = str(end)
    return page


def _product(region: str, name: str, price: float) -> dict[str, Any]:
    sku = f"SKU-{name}"
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": f"{price:.10f}"}, "beginRange": "0", "endRange": "Inf"}
    attributes = {
        "instanceType": name,
        "regionCode": region,
        "tenancy": "Shared",
        "operatingSystem": "Linux",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
    }
    term = {"sku": sku, "priceDimensions": {f"{sku}.T.D": dimension}}
    return {
        "serviceCode": "AmazonEC2",
        "product": {"sku": sku, "productFamily": "Compute Instance", "attributes": attributes},
        "terms": {"OnDemand": {f"{sku}.T": term}},
    }
