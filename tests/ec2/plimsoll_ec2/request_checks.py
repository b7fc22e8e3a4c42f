"""Parts of requests that EC2 refuses and moto accepts.

Sources: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html (codes),
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Tags.html (50 tags),
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/user-data.html (16 KB before encoding),
https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RunInstances.html (network interfaces).
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from moto.ec2.exceptions import EC2ClientError

USER_DATA_BYTES_MAX = 16384
TAGS_MAX = 50
# Tags with this prefix do not count.
AWS = "aws:"


def user_data(encoded: str | None) -> None:
    """Refuses user data that is not Base64 or too long: CreateLaunchTemplate checks both."""
    try:
        raw = base64.b64decode(encoded or "", validate=True)
    except (binascii.Error, ValueError):
        raise EC2ClientError("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.") from None
    if len(raw) > USER_DATA_BYTES_MAX:
        raise EC2ClientError("InvalidUserData.Malformed", f"User data is limited to {USER_DATA_BYTES_MAX} bytes.")


def tags(by_resource: dict[str, dict[str, str]]) -> None:
    """Refuses too many tags of a resource."""
    for resource, its_tags in by_resource.items():
        if sum(not key.startswith(AWS) for key in its_tags) > TAGS_MAX:
            raise EC2ClientError("TagLimitExceeded", f"The maximum number of tags of {resource} is {TAGS_MAX}.")


def interfaces(data: dict[str, Any]) -> tuple[str, str] | None:
    """What EC2 refuses about the network interfaces of a launch."""
    nics = data.get("NetworkInterfaces") or []
    if nics and (data.get("SecurityGroupIds") or data.get("SecurityGroups")):
        text = "Network interfaces and instance-level security groups may not be specified on the same request"
        return "InvalidParameterCombination", text
    if len(nics) > 1 and any(str(nic.get("AssociatePublicIpAddress")).lower() == "true" for nic in nics):
        text = "The associatePublicIPAddress parameter cannot be specified when launching with multiple network interfaces."
        return "InvalidParameterCombination", text
    if any("NetworkInterfaceId" in nic and nic.get("SubnetId") for nic in nics):
        return "InvalidParameterCombination", "A network interface may not specify both a network interface ID and a subnet"
    return None
