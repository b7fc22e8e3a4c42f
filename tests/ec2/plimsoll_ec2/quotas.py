"""Quotas of the account and its Spot role: POST /_quotas.

Sources: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-on-demand-instances.html#ec2-on-demand-instances-limits
and https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/using-spot-limits.html (vCPUs by purchase option, here those of
the standard families), https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/service-linked-roles-spot-instance-requests.html
(the role), https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html (codes).
"""

from __future__ import annotations

import math
import threading
from typing import Any

from moto.ec2.models.instance_types import INSTANCE_TYPES

# "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances". Other families have their own quotas.
STANDARD = set("acdhimrtz")
OTHER_FAMILIES = ("dl", "hpc", "inf", "mac", "trn")
FIELDS = {"onDemandVcpus", "spotVcpus", "spotRole"}
OVER = {
    "on-demand": ("VcpuLimitExceeded", "You have requested more vCPU capacity than your current vCPU limit allows."),
    "spot": ("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded"),
}
NO_ROLE = (
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
    "The provided credentials do not have permission to create the service-linked role for EC2 Spot Instances.",
)


class Quotas:
    """No quota and an existing role, unless set."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        with self._lock:
            self._vcpus: dict[str, float] = {"on-demand": math.inf, "spot": math.inf}
            self._spot_role = True

    def set(self, body: Any) -> None:
        """Replaces all quotas."""
        if not isinstance(body, dict) or set(body) - FIELDS:
            raise ValueError(f"{', '.join(sorted(FIELDS))} are all that can be said")
        vcpus = {"on-demand": _vcpus(body, "onDemandVcpus"), "spot": _vcpus(body, "spotVcpus")}
        role = body.get("spotRole", True)
        if not isinstance(role, bool):
            raise ValueError(f"spotRole: true or false is needed, not {role!r}")
        with self._lock:
            self._vcpus, self._spot_role = vcpus, role

    def to_json(self) -> dict[str, Any]:
        with self._lock:
            known = {name: None if math.isinf(value) else int(value) for name, value in self._vcpus.items()}
            return {"onDemandVcpus": known["on-demand"], "spotVcpus": known["spot"], "spotRole": self._spot_role}

    def room(self, capacity_type: str, instance_type: str, living: list[tuple[str, str]]) -> tuple[float, tuple[str, str] | None]:
        """Number of further instances of this type, and the error beyond. `living`: (type, capacity type) of all."""
        with self._lock:
            quota, role = self._vcpus.get(capacity_type, math.inf), self._spot_role
        if capacity_type == "spot" and not role:
            return 0, NO_ROLE
        each = _standard_vcpus(instance_type)
        if math.isinf(quota) or not each:
            return math.inf, None
        used = sum(_standard_vcpus(type_) for type_, of in living if of == capacity_type)
        return max(0, (quota - used) // each), OVER[capacity_type]


def _standard_vcpus(instance_type: str) -> int:
    if instance_type[:1] not in STANDARD or instance_type.startswith(OTHER_FAMILIES) or instance_type not in INSTANCE_TYPES:
        return 0
    return int(INSTANCE_TYPES[instance_type]["VCpuInfo"]["DefaultVCpus"])


def _vcpus(body: dict[str, Any], name: str) -> float:
    value = body.get(name)
    if value is None:
        return math.inf
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name}: a whole number or null is needed, not {value!r}")
    return float(value)
