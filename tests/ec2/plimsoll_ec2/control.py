"""The control paths: /_faults, /_release, /_tokens, /_images, /_calls, /_instances, /_reservations, /_placement_groups,
/_quotas, /_events, /_foreign, /_queue, /_reset."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qs

from plimsoll_ec2 import events, images
from plimsoll_ec2.seeded import seed_of
from plimsoll_ec2.world import WORLD

Answer = tuple[int, Any]


def serve(environ: dict[str, Any], start: Callable[..., Any], body: bytes) -> Iterable[bytes]:
    """One control request: JSON in, JSON out."""
    route = (environ["REQUEST_METHOD"], environ["PATH_INFO"])
    query = {k: v[0] for k, v in parse_qs(environ.get("QUERY_STRING", "")).items()}
    handler = ROUTES.get(route)
    if handler is None:
        known = ", ".join(sorted(f"{m} {p}" for m, p in ROUTES))
        status, answer = 404, {"error": f"{route[0]} {route[1]} is not known; these are: {known}"}
    else:
        try:
            status, answer = handler(query, json.loads(body) if body else {})
        except ValueError as error:
            status, answer = 400, {"error": str(error)}
    text = json.dumps(answer).encode() + b"\n"
    start(f"{status} {'OK' if status < 400 else 'Error'}", [("Content-Type", "application/json"), ("Content-Length", str(len(text)))])
    return [text]


def _get_faults(_query: dict[str, str], _body: Any) -> Answer:
    return 200, {**WORLD.faults.to_json(), "seed": WORLD.seeded.seed}


def _post_faults(query: dict[str, str], body: Any) -> Answer:
    """Faults by name; `seed` is a number, or null for none."""
    with_seed = isinstance(body, dict) and "seed" in body
    seed = seed_of(body["seed"]) if with_seed else None
    WORLD.faults.update({k: v for k, v in body.items() if k != "seed"} if with_seed else body)
    if with_seed:
        WORLD.seeded.set(seed)
    return _get_faults(query, body)


def _delete_faults(query: dict[str, str], body: Any) -> Answer:
    WORLD.faults.clear()
    WORLD.seeded.set(None)
    return _get_faults(query, body)


def _release(_query: dict[str, str], body: Any) -> Answer:
    """Releases held calls; with `{"drop": true}`, calls that were held before execution never execute."""
    if not isinstance(body, dict) or set(body) - {"drop"}:
        raise ValueError("drop: true or false is all that can be said")
    WORLD.faults.release(drop=bool(body.get("drop")))
    return 200, {}


def _forget_tokens(_query: dict[str, str], _body: Any) -> Answer:
    WORLD.tokens.forget()
    return 200, {}


def _post_tokens(_query: dict[str, str], body: Any) -> Answer:
    WORLD.tokens.set(body)
    return 200, {}


def _post_images(_query: dict[str, str], body: Any) -> Answer:
    images.recommend(body)
    return 200, {"recommended": images.recommended()}


def _get_calls(query: dict[str, str], _body: Any) -> Answer:
    return 200, {"calls": WORLD.calls.since(int(query.get("since", 0)), query.get("action"))}


def _delete_calls(_query: dict[str, str], _body: Any) -> Answer:
    WORLD.calls.clear()
    return 200, {}


def _get_instances(query: dict[str, str], _body: Any) -> Answer:
    """Every instance that CreateFleet has launched; with `?user-data=ID` only that one with its user data."""
    only = query.get("user-data")
    with WORLD.launching:
        launches = list(WORLD.launches)
    found = [_instance(i, said, only is not None) for i, said in launches if only in (None, i.id)]
    if only is not None and not found:
        return 404, {"error": f"no instance {only} was launched"}
    return 200, {"instances": found}


def _instance(instance: Any, said: dict[str, Any], with_user_data: bool) -> dict[str, Any]:
    told = {
        "instanceId": instance.id,
        "instanceType": instance.instance_type,
        "region": instance.region_name,
        "zone": instance.availability_zone,
        "state": instance.state,
        "imageId": instance.image_id,
        "architecture": instance.architecture,
        "tags": {t["key"]: t["value"] for t in instance.get_tags()},
        **said,
    }
    # moto removes the interfaces of a terminated instance.
    if instance.nics and 0 in instance.nics:
        told["privateIp"] = instance.private_ip
        told["privateDnsName"] = instance.private_dns_name
    if with_user_data:
        told["userData"] = str(instance.user_data) if instance.user_data else ""
        told["rootGib"] = max((v.size for _, v in _volumes(instance)), default=0)
    return told


def _volumes(instance: Any) -> list[tuple[str, Any]]:
    return [(device, instance.ec2_backend.volumes[m.volume_id]) for device, m in instance.get_block_device_mapping]


def _get_reservations(_query: dict[str, str], _body: Any) -> Answer:
    return 200, WORLD.reservations.to_json()


def _post_reservations(_query: dict[str, str], body: Any) -> Answer:
    WORLD.reservations.set(body)
    return 200, WORLD.reservations.to_json()


def _get_placement_groups(_query: dict[str, str], _body: Any) -> Answer:
    return 200, WORLD.placement.to_json()


def _post_placement_groups(_query: dict[str, str], body: Any) -> Answer:
    WORLD.placement.set(body)
    return 200, WORLD.placement.to_json()


def _get_quotas(_query: dict[str, str], _body: Any) -> Answer:
    return 200, WORLD.quotas.to_json()


def _post_quotas(_query: dict[str, str], body: Any) -> Answer:
    WORLD.quotas.set(body)
    return 200, WORLD.quotas.to_json()


def _post_events(_query: dict[str, str], body: Any) -> Answer:
    return 200, events.send(body)


def _post_foreign(_query: dict[str, str], body: Any) -> Answer:
    return 200, events.flood(body)


def _get_queue(query: dict[str, str], _body: Any) -> Answer:
    return 200, {"messages": events.waiting(query.get("queue", ""), query.get("region", ""))}


def _reset(_query: dict[str, str], _body: Any) -> Answer:
    from moto.moto_api._internal.models import moto_api_backend

    WORLD.reset()
    moto_api_backend.reset()
    return 200, {}


ROUTES: dict[tuple[str, str], Callable[[dict[str, str], Any], Answer]] = {
    ("GET", "/_faults"): _get_faults,
    ("POST", "/_faults"): _post_faults,
    ("DELETE", "/_faults"): _delete_faults,
    ("POST", "/_release"): _release,
    ("POST", "/_tokens"): _post_tokens,
    ("DELETE", "/_tokens"): _forget_tokens,
    ("POST", "/_images"): _post_images,
    ("GET", "/_calls"): _get_calls,
    ("DELETE", "/_calls"): _delete_calls,
    ("GET", "/_instances"): _get_instances,
    ("GET", "/_reservations"): _get_reservations,
    ("POST", "/_reservations"): _post_reservations,
    ("GET", "/_placement_groups"): _get_placement_groups,
    ("POST", "/_placement_groups"): _post_placement_groups,
    ("GET", "/_quotas"): _get_quotas,
    ("POST", "/_quotas"): _post_quotas,
    ("POST", "/_events"): _post_events,
    ("POST", "/_foreign"): _post_foreign,
    ("GET", "/_queue"): _get_queue,
    ("POST", "/_reset"): _reset,
}
