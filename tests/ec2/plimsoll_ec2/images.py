"""The images that EKS publishes, in EC2 and SSM: names, architectures, dates, parameters."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# The last minor version with AL2 is 1.32.
KUBERNETES_MINORS = ("1.34", "1.35", "1.36")
AL2_MINORS = ("1.32",)
# Two releases each: "recommended" is the later one, the other is for pinned versions and drift.
RELEASES = ("20260901", "20261101")
# The release that the parameters "recommended" and "latest" name.
_recommended = RELEASES[-1]
BOTTLEROCKET_RELEASES = (("1.50.0", "20260901"), ("1.52.0", "20261101"))

EKS_OWNER = "602401143452"
AMAZON_OWNER = "801119661308"
BOTTLEROCKET_OWNER = "092701018921"


@dataclass(frozen=True)
class Image:
    """One image and the SSM parameters whose value is its id."""

    name: str
    architecture: str
    date: str
    owner: str
    parameters: tuple[str, ...]
    windows: bool = False

    @property
    def ami_id(self) -> str:
        """Derived from the name, so that a restarted server and a test have the same id."""
        return "ami-0" + hashlib.sha256(self.name.encode()).hexdigest()[:16]

    def to_moto(self) -> dict[str, object]:
        """An entry of moto's MOTO_AMIS_PATH file."""
        day = f"{self.date[:4]}-{self.date[4:6]}-{self.date[6:]}"
        return {
            "ami_id": self.ami_id,
            "name": self.name,
            "description": self.name,
            "owner_id": self.owner,
            "owner_alias": "amazon",
            "public": True,
            "virtualization_type": "hvm",
            "hypervisor": "xen",
            "architecture": self.architecture,
            "creation_date": f"{day}T00:00:00.000Z",
            "image_location": f"amazon/{self.name}",
            "root_device_type": "ebs",
            "root_device_name": "/dev/sda1" if self.windows else "/dev/xvda",
            "platform": "windows" if self.windows else None,
        }


def images() -> list[Image]:
    """All images."""
    found: list[Image] = []
    for minor in KUBERNETES_MINORS:
        found += _al2023(minor)
        found += _bottlerocket(minor)
        found += _windows(minor)
    for minor in AL2_MINORS:
        found += _al2(minor)
    return found


def recommend(body: Any) -> None:
    """Sets the release that EKS recommends: AL2, AL2023 and Bottlerocket of all versions."""
    global _recommended
    release = body.get("recommended") if isinstance(body, dict) else None
    if release not in RELEASES:
        raise ValueError(f"recommended: one of {', '.join(RELEASES)} is needed, not {release!r}")
    _recommended = release


def recommended() -> str:
    """The release that EKS recommends."""
    return _recommended


def parameters() -> dict[str, str]:
    """SSM parameter name to image id."""
    return {parameter: image.ami_id for image in images() for parameter in image.parameters}


def _al2023(minor: str) -> Iterator[Image]:
    for arch, variants in (("x86_64", ("standard", "nvidia", "neuron")), ("arm64", ("standard", "nvidia"))):
        for variant in variants:
            base = f"/aws/service/eks/optimized-ami/{minor}/amazon-linux-2023/{arch}/{variant}"
            for date in RELEASES:
                name = f"amazon-eks-node-al2023-{arch}-{variant}-{minor}-v{date}"
                yield _image(name, arch, date, EKS_OWNER, base, name, date == _recommended, "recommended")


def _al2(minor: str) -> Iterator[Image]:
    for folder, stem, arch in (
        ("amazon-linux-2", "amazon-eks-node", "x86_64"),
        ("amazon-linux-2-arm64", "amazon-eks-arm64-node", "arm64"),
        ("amazon-linux-2-gpu", "amazon-eks-gpu-node", "x86_64"),
    ):
        base = f"/aws/service/eks/optimized-ami/{minor}/{folder}"
        for date in RELEASES:
            name = f"{stem}-{minor}-v{date}"
            yield _image(name, arch, date, EKS_OWNER, base, name, date == _recommended, "recommended")


def _bottlerocket(minor: str) -> Iterator[Image]:
    for flavour in ("", "-nvidia"):
        for arch, long_arch in (("x86_64", "x86_64"), ("arm64", "aarch64")):
            base = f"/aws/service/bottlerocket/aws-k8s-{minor}{flavour}/{arch}"
            for version, date in BOTTLEROCKET_RELEASES:
                name = f"bottlerocket-aws-k8s-{minor}{flavour}-{long_arch}-v{version}"
                yield _image(name, arch, date, BOTTLEROCKET_OWNER, base, version, date == _recommended, "latest")


def _windows(minor: str) -> Iterator[Image]:
    for year in ("2022", "2025"):
        date = RELEASES[-1]
        name = f"Windows_Server-{year}-English-Core-EKS_Optimized-{minor}-{date}"
        parameter = f"/aws/service/ami-windows-latest/Windows_Server-{year}-English-Core-EKS_Optimized-{minor}/image_id"
        yield Image(name, "x86_64", date, AMAZON_OWNER, (parameter,), windows=True)


def _image(name: str, arch: str, date: str, owner: str, base: str, version: str, newest: bool, alias: str) -> Image:
    versions = (version, alias) if newest else (version,)
    return Image(name, arch, date, owner, tuple(f"{base}/{v}/image_id" for v in versions))
