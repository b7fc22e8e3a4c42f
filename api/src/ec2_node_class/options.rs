//! Network interfaces, metadata, connections, processor, disks of the instance type.

use crate::schema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How instance store volumes are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum InstanceStorePolicy {
    /// Combine them into a RAID 0 volume for the data of pods.
    RAID0,
}

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkInterface {
    /// Index of the network card; the first is 0.
    #[schemars(range(min = 0))]
    pub network_card_index: i32,
    /// Device index of the interface on its network card; the first is 0.
    #[schemars(range(min = 0))]
    pub device_index: i32,
    /// Type of the interface: interface, or efa-only for EFA without an IP address.
    pub interface_type: InterfaceType,
}

/// Type of a network interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum InterfaceType {
    /// A network interface with IP addresses.
    Interface,
    /// EFA without IP addresses.
    EfaOnly,
}

impl InterfaceType {
    /// Name in the EC2 API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Interface => "interface",
            Self::EfaOnly => "efa-only",
        }
    }
}

pub(super) fn interface_rules() -> Value {
    schema::cel(&[
        (
            "self.size() == 0 || self.exists(i, i.networkCardIndex == 0 && i.deviceIndex == 0 && i.interfaceType == 'interface')",
            "card 0 needs an ordinary interface as device 0",
        ),
        (
            "self.all(i, self.exists_one(j, i.networkCardIndex == j.networkCardIndex && i.deviceIndex == j.deviceIndex))",
            "two interfaces cannot be the same device of the same card",
        ),
        (
            "self.all(i, i.interfaceType != 'efa-only' || self.exists_one(j, i.networkCardIndex == j.networkCardIndex && j.interfaceType == 'efa-only'))",
            "a card can have only one interface for EFA only",
        ),
    ])
}

/// Enabled or disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EnabledOrDisabled {
    /// Enabled.
    Enabled,
    /// Disabled.
    Disabled,
}

impl EnabledOrDisabled {
    /// Name in the EC2 API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enabled => "enabled",
            Self::Disabled => "disabled",
        }
    }
}

/// Which versions of IMDS are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HttpTokens {
    /// Only IMDSv2, which requires a session token.
    Required,
    /// IMDSv1 and IMDSv2.
    Optional,
}

impl HttpTokens {
    /// Name in the EC2 API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::Optional => "optional",
        }
    }
}

/// Access to the instance metadata service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetadataOptions {
    /// Whether the metadata service is enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "enabled"))]
    pub http_endpoint: Option<EnabledOrDisabled>,
    /// Whether the IPv6 endpoint of the metadata service is enabled.
    #[serde(rename = "httpProtocolIPv6", default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "disabled"))]
    pub http_protocol_ipv6: Option<EnabledOrDisabled>,
    /// Maximum number of network hops to the metadata service. Pods without host network need 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64), extend("default" = 1))]
    pub http_put_response_hop_limit: Option<i64>,
    /// Whether a session token is required (IMDSv2), or optional (IMDSv1 and IMDSv2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "required"))]
    pub http_tokens: Option<HttpTokens>,
}

impl MetadataOptions {
    /// Applies the defaults.
    #[must_use]
    pub fn resolved(self) -> Self {
        Self {
            http_endpoint: self.http_endpoint.or(Some(EnabledOrDisabled::Enabled)),
            http_protocol_ipv6: self.http_protocol_ipv6.or(Some(EnabledOrDisabled::Disabled)),
            http_put_response_hop_limit: self.http_put_response_hop_limit.or(Some(1)),
            http_tokens: self.http_tokens.or(Some(HttpTokens::Required)),
        }
    }
}

/// Idle timeouts of connection tracking, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::cel(&[(
    "has(self.tcpEstablishedTimeout) || has(self.udpStreamTimeout) || has(self.udpTimeout)",
    "at least one of tcpEstablishedTimeout, udpStreamTimeout and udpTimeout is needed",
)])))]
pub struct ConnectionTracking {
    /// Idle timeout of established TCP connections in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 432000))]
    pub tcp_established_timeout: Option<i32>,
    /// Idle timeout of UDP flows with replies in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 180))]
    pub udp_stream_timeout: Option<i32>,
    /// Idle timeout of UDP flows without replies in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 30, max = 60))]
    pub udp_timeout: Option<i32>,
}

/// CPU options of the instances.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CpuOptions {
    /// Whether nested virtualization is enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nested_virtualization: Option<EnabledOrDisabled>,
}
