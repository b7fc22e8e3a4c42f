"""Fields of EC2NodeClass and the positions of their values in the requests. docs/requests.md has the same table."""

from __future__ import annotations

from typing import Any

TEMPLATE = "launches[0].createLaunchTemplate[0]"
DATA = TEMPLATE + ".LaunchTemplateData"
FLEET = "launches[0].createFleet"
DEVICE = DATA + ".BlockDeviceMappings[0]"
INTERFACE = DATA + ".NetworkInterfaces[0]"
OVERRIDE = FLEET + ".LaunchTemplateConfigs[0].Overrides[0]"


def device(**ebs: Any) -> dict[str, Any]:
    return {"blockDeviceMappings": [{"deviceName": "/dev/xvda", "rootVolume": True, "ebs": {"volumeSize": "7Gi", **ebs}}]}


CARDS = {"networkInterfaces": [
    {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
    {"networkCardIndex": 1, "deviceIndex": 2, "interfaceType": "efa-only"},
]}
SNAPSHOT = {"snapshotID": "snap-1"}

# Field, value in the class, member of the requests (JMESPath), value of the member.
FIELDS: list[tuple[str, dict[str, Any], str, Any]] = [
    ("subnetSelectorTerms", {}, OVERRIDE + ".SubnetId", "subnet-0a1"),
    ("securityGroupSelectorTerms", {}, INTERFACE + ".Groups", ["sg-1", "sg-2"]),
    ("amiSelectorTerms", {}, DATA + ".ImageId", "ami-0a1"),
    ("placementGroupSelector", {"placementGroupSelector": {"name": "own"}}, DATA + ".Placement.GroupId", "pg-0a"),
    ("amiFamily", {"amiFamily": "Bottlerocket", "amiSelectorTerms": [{"alias": "bottlerocket@latest"}]},
     DATA + ".BlockDeviceMappings[].DeviceName", ["/dev/xvda", "/dev/xvdb"]),
    ("userData", {"amiFamily": "Custom", "amiSelectorTerms": [{"id": "ami-1"}], "userData": "hello"},
     DATA + ".UserData", "aGVsbG8="),
    ("role", {}, DATA + ".IamInstanceProfile.Name", "shop-nodes"),
    ("instanceProfile", {"role": None, "instanceProfile": "own"}, DATA + ".IamInstanceProfile.Name", "shop-nodes"),
    ("tags", {"tags": {"team": "a"}}, FLEET + ".TagSpecifications[].Tags[?Key=='team'].Value[]", ["a"] * 3),
    ("associatePublicIPAddress", {"associatePublicIPAddress": True}, INTERFACE + ".AssociatePublicIpAddress", True),
    ("ipPrefixCount", {"ipPrefixCount": 2}, INTERFACE + ".Ipv4PrefixCount", 2),
    ("blockDeviceMappings[].deviceName", device(), DEVICE + ".DeviceName", "/dev/xvda"),
    ("blockDeviceMappings[].rootVolume", device(), "length(" + DATA + ".BlockDeviceMappings)", 1),
    ("blockDeviceMappings[].ebs.volumeSize", device(volumeSize="1T"), DEVICE + ".Ebs.VolumeSize", 932),
    ("blockDeviceMappings[].ebs.volumeType", device(volumeType="io2"), DEVICE + ".Ebs.VolumeType", "io2"),
    ("blockDeviceMappings[].ebs.iops", device(iops=4000), DEVICE + ".Ebs.Iops", 4000),
    ("blockDeviceMappings[].ebs.throughput", device(throughput=250), DEVICE + ".Ebs.Throughput", 250),
    ("blockDeviceMappings[].ebs.encrypted", device(encrypted=True), DEVICE + ".Ebs.Encrypted", True),
    ("blockDeviceMappings[].ebs.kmsKeyID", device(kmsKeyID="key"), DEVICE + ".Ebs.KmsKeyId", "key"),
    ("blockDeviceMappings[].ebs.snapshotID", device(**SNAPSHOT), DEVICE + ".Ebs.SnapshotId", "snap-1"),
    ("blockDeviceMappings[].ebs.volumeInitializationRate", device(volumeInitializationRate=100, **SNAPSHOT),
     DEVICE + ".Ebs.VolumeInitializationRate", 100),
    ("blockDeviceMappings[].ebs.deleteOnTermination", device(deleteOnTermination=False),
     DEVICE + ".Ebs.DeleteOnTermination", False),
    ("networkInterfaces[].networkCardIndex", CARDS, DATA + ".NetworkInterfaces[].NetworkCardIndex", [0, 1]),
    ("networkInterfaces[].deviceIndex", CARDS, DATA + ".NetworkInterfaces[].DeviceIndex", [0, 2]),
    ("networkInterfaces[].interfaceType", CARDS, DATA + ".NetworkInterfaces[].InterfaceType", ["interface", "efa-only"]),
    ("detailedMonitoring", {"detailedMonitoring": True}, DATA + ".Monitoring.Enabled", True),
    ("metadataOptions.httpEndpoint", {"metadataOptions": {"httpEndpoint": "disabled"}},
     DATA + ".MetadataOptions.HttpEndpoint", "disabled"),
    ("metadataOptions.httpProtocolIPv6", {"metadataOptions": {"httpProtocolIPv6": "enabled"}},
     DATA + ".MetadataOptions.HttpProtocolIpv6", "enabled"),
    ("metadataOptions.httpPutResponseHopLimit", {"metadataOptions": {"httpPutResponseHopLimit": 3}},
     DATA + ".MetadataOptions.HttpPutResponseHopLimit", 3),
    ("metadataOptions.httpTokens", {"metadataOptions": {"httpTokens": "optional"}},
     DATA + ".MetadataOptions.HttpTokens", "optional"),
    ("connectionTracking.tcpEstablishedTimeout", {"connectionTracking": {"tcpEstablishedTimeout": 600}},
     INTERFACE + ".ConnectionTrackingSpecification", {"TcpEstablishedTimeout": 600}),
    ("connectionTracking.udpStreamTimeout", {"connectionTracking": {"udpStreamTimeout": 60}},
     INTERFACE + ".ConnectionTrackingSpecification", {"UdpStreamTimeout": 60}),
    ("connectionTracking.udpTimeout", {"connectionTracking": {"udpTimeout": 30}},
     INTERFACE + ".ConnectionTrackingSpecification", {"UdpTimeout": 30}),
    ("context", {"context": "c"}, FLEET + ".Context", "c"),
    ("cpuOptions.nestedVirtualization", {"cpuOptions": {"nestedVirtualization": "enabled"}},
     DATA + ".CpuOptions.NestedVirtualization", "enabled"),
]

# Part of the user data, without a member of its own: tests/judge/test_karpenter_user_data.py.
IN_USER_DATA = {"kubelet", "instanceStorePolicy"}
# Needs a catalog with reservations: tests/judge/test_reservations.py.
IN_RESERVATIONS = {
    "capacityReservationSelectorTerms": DATA + ".CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId",
}

# Most types have a single network card and no nested virtualization.
TYPES = {"networkInterfaces[]": "p4d.24xlarge", "cpuOptions": "m8i.xlarge"}


def instance_type(field: str) -> str:
    return TYPES.get(field.split(".")[0], "m5.xlarge")
