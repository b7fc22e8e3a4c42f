#!/usr/bin/env python3
"""Rebuilds catalog/data/facts.json.gz and catalog/data/zones.json.gz from the EC2 descriptions in moto's package.

    python3 -m venv venv && venv/bin/pip install 'moto[ec2]==5.2.5'
    venv/bin/python catalog/tools/rebuild.py

The same version of moto gives the same bytes. on-demand-prices.tsv and network-limits.tsv are maintained by hand: see
catalog/README.md.
"""

import gzip
import importlib.metadata
import importlib.util
import json
import pathlib
import sys

MOTO = "5.2.5"
REGIONS = ["ap-northeast-2", "eu-west-1", "us-east-1", "us-west-2"]
DATA = pathlib.Path(__file__).resolve().parent.parent / "data"


def resources() -> pathlib.Path:
    found = importlib.metadata.version("moto")
    if found != MOTO:
        sys.exit(f"moto {found} is installed, {MOTO} is required, because other versions describe other types")
    spec = importlib.util.find_spec("moto")
    return pathlib.Path(spec.origin).parent / "ec2" / "resources"


def read(path: pathlib.Path):
    with gzip.open(path) as file:
        return json.load(file)


def write(name: str, value) -> None:
    text = json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
    packed = gzip.compress(text, compresslevel=9, mtime=0)
    (DATA / name).write_bytes(packed)
    print(f"{name}: {len(text)} bytes, {len(packed)} packed")


def kept(fields: dict) -> dict:
    """Without what the reader takes as the default."""
    return {key: value for key, value in fields.items() if value not in (None, [], "", False, 0)}


def network(info: dict) -> dict:
    cards = sorted(info["NetworkCards"], key=lambda card: card["NetworkCardIndex"])
    if [card["NetworkCardIndex"] for card in cards] != list(range(len(cards))):
        sys.exit("network cards are not numbered from 0 upwards")
    return kept({
        "defaultCard": info["DefaultNetworkCardIndex"],
        "cards": [card["MaximumNetworkInterfaces"] for card in cards],
        "ipv4PerInterface": info["Ipv4AddressesPerInterface"],
        "efaInterfaces": info.get("EfaInfo", {}).get("MaximumEfaInterfaces"),
        "enaSupported": info["EnaSupport"] in ("supported", "required"),
        "encryptionInTransit": info["EncryptionInTransitSupported"],
    })


def facts(name: str, info: dict) -> dict:
    ebs = info["EbsInfo"]
    storage = info.get("InstanceStorageInfo", {})
    processor = info["ProcessorInfo"]
    return kept({
        "name": name,
        "architectures": processor["SupportedArchitectures"],
        "virtualizationTypes": info["SupportedVirtualizationTypes"],
        "usageClasses": sorted(info["SupportedUsageClasses"]),
        "hypervisor": info.get("Hypervisor"),
        "vcpus": info["VCpuInfo"]["DefaultVCpus"],
        "memoryMib": info["MemoryInfo"]["SizeInMiB"],
        "cpuManufacturer": processor.get("Manufacturer"),
        "sustainedClockMhz": round(processor.get("SustainedClockSpeedInGhz", 0) * 1000),
        "processorFeatures": sorted(processor.get("SupportedFeatures", [])),
        "nitroEnclaves": info.get("NitroEnclavesSupport") == "supported",
        "ebsBandwidthMbps": ebs.get("EbsOptimizedInfo", {}).get("MaximumBandwidthInMbps")
        if ebs["EbsOptimizedSupport"] == "default" else None,
        "network": network(info["NetworkInfo"]),
        "instanceStore": kept({
            "totalGb": storage.get("TotalSizeInGB"),
            "nvme": storage.get("NvmeSupport", "unsupported") != "unsupported",
        }) or None,
        "gpus": [kept({
            "name": gpu["Name"],
            "manufacturer": gpu["Manufacturer"],
            "count": gpu["Count"],
            "memoryMib": gpu["MemoryInfo"]["SizeInMiB"],
        }) for gpu in info.get("GpuInfo", {}).get("Gpus", [])],
        "neuronDevices": [kept({
            "name": device["Name"],
            "count": device["Count"],
            "coresPerDevice": device["CoreInfo"]["Count"],
        }) for device in info.get("NeuronInfo", {}).get("NeuronDevices", [])],
        "inferenceAccelerators": [kept({
            "name": accelerator["Name"],
            "manufacturer": accelerator["Manufacturer"],
            "count": accelerator["Count"],
        }) for accelerator in info.get("InferenceAcceleratorInfo", {}).get("Accelerators", [])],
    })


def locations(folder: pathlib.Path, region: str) -> dict:
    found = {}
    for offering in read(folder / f"{region}.json.gz"):
        found.setdefault(offering["Location"], set()).add(offering["InstanceType"])
    return found


def zones(folder: pathlib.Path, region: str) -> list:
    """A zone and its id are one place: they offer the same types. The data does not say more, so a tie is an error."""
    by_id = locations(folder / "availability-zone-id", region)
    result = []
    for zone, types in sorted(locations(folder / "availability-zone", region).items()):
        ids = [zone_id for zone_id, others in by_id.items() if others == types]
        if len(ids) != 1:
            sys.exit(f"{region}: zone {zone} could be any of {ids}")
        result.append({"name": zone, "id": ids[0], "instanceTypes": sorted(types)})
    return result


def main() -> None:
    source = resources()
    offered = {region: zones(source / "instance_type_offerings", region) for region in REGIONS}
    wanted = {name for region in offered.values() for zone in region for name in zone["instanceTypes"]}
    described = read(source / "instance_types.json.gz")
    write("facts.json.gz", [facts(name, described[name]) for name in sorted(described) if name in wanted])
    write("zones.json.gz", offered)
    print("described:", len(described), "offered but not described:", sorted(wanted - described.keys()))


if __name__ == "__main__":
    main()
