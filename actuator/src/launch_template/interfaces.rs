//! Network interfaces of an instance.

use crate::ports::NetworkInterface;
use plimsoll_api::EC2NodeClassSpec;
use plimsoll_api::ec2_node_class::InterfaceType;

/// The class's own interfaces; or else one per EFA interface; or else a single one.
pub(super) fn network_interfaces(
    spec: &EC2NodeClassSpec,
    security_group_ids: &[String],
    efa: i64,
    ipv6: bool,
) -> Vec<NetworkInterface> {
    let addressed = addressed(spec, security_group_ids, ipv6);
    if !spec.network_interfaces.is_empty() {
        let index = |number: i32| u32::try_from(number).unwrap_or(0);
        let configured = spec.network_interfaces.iter().map(|configured| {
            let base = match configured.interface_type {
                InterfaceType::Interface => addressed.clone(),
                // An EFA-only interface has no IP address.
                InterfaceType::EfaOnly => {
                    NetworkInterface { security_group_ids: security_group_ids.to_vec(), ..NetworkInterface::default() }
                }
            };
            NetworkInterface {
                network_card_index: index(configured.network_card_index),
                device_index: index(configured.device_index),
                interface_type: Some(configured.interface_type.as_str().to_owned()),
                ..base
            }
        });
        return configured.collect();
    }
    let adapters = u32::try_from(efa).unwrap_or(0);
    if adapters == 0 {
        return vec![addressed];
    }
    (0..adapters)
        .map(|card| NetworkInterface {
            network_card_index: card,
            device_index: u32::from(card > 0),
            interface_type: Some("efa".to_owned()),
            ..addressed.clone()
        })
        .collect()
}

/// An interface with IP addresses, as configured in the class.
fn addressed(spec: &EC2NodeClassSpec, security_group_ids: &[String], ipv6: bool) -> NetworkInterface {
    let tracking = spec.connection_tracking.clone().unwrap_or_default();
    let figure = |value: Option<i32>| value.and_then(|value| u32::try_from(value).ok());
    let prefixes = figure(spec.ip_prefix_count).filter(|count| *count > 0);
    NetworkInterface {
        network_card_index: 0,
        device_index: 0,
        interface_type: None,
        security_group_ids: security_group_ids.to_vec(),
        associate_public_ip: spec.associate_public_ip_address,
        ipv4_prefix_count: prefixes.filter(|_| !ipv6),
        ipv6_prefix_count: prefixes.filter(|_| ipv6),
        ipv6_address_count: ipv6.then_some(1),
        primary_ipv6: ipv6.then_some(true),
        tcp_established_timeout: figure(tracking.tcp_established_timeout),
        udp_stream_timeout: figure(tracking.udp_stream_timeout),
        udp_timeout: figure(tracking.udp_timeout),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn groups() -> Vec<String> {
        vec!["sg-1".to_owned()]
    }

    #[test]
    fn default_interface_uses_the_class_settings() {
        let spec = EC2NodeClassSpec {
            associate_public_ip_address: Some(false),
            ip_prefix_count: Some(2),
            connection_tracking: serde_json::from_value(json!({"udpTimeout": 45})).unwrap(),
            ..EC2NodeClassSpec::default()
        };
        let expected = NetworkInterface {
            security_group_ids: groups(),
            associate_public_ip: Some(false),
            ipv4_prefix_count: Some(2),
            udp_timeout: Some(45),
            ..NetworkInterface::default()
        };
        assert_eq!(network_interfaces(&spec, &groups(), 0, false), std::slice::from_ref(&expected));
        let on_ipv6 = NetworkInterface {
            ipv4_prefix_count: None,
            ipv6_prefix_count: Some(2),
            ipv6_address_count: Some(1),
            primary_ipv6: Some(true),
            ..expected
        };
        assert_eq!(network_interfaces(&spec, &groups(), 0, true), [on_ipv6]);
    }

    #[test]
    fn timeouts_are_kept_and_no_prefixes_are_none() {
        let tracking = json!({"tcpEstablishedTimeout": 600, "udpStreamTimeout": 90});
        let spec = EC2NodeClassSpec {
            ip_prefix_count: Some(0),
            connection_tracking: serde_json::from_value(tracking).unwrap(),
            ..EC2NodeClassSpec::default()
        };
        let expected = NetworkInterface {
            security_group_ids: groups(),
            tcp_established_timeout: Some(600),
            udp_stream_timeout: Some(90),
            ..NetworkInterface::default()
        };
        assert_eq!(network_interfaces(&spec, &groups(), 0, false), [expected]);
    }

    #[test]
    fn efa_interfaces_use_one_card_each_and_the_first_is_device_zero() {
        let interfaces = network_interfaces(&EC2NodeClassSpec::default(), &groups(), 3, false);
        let places: Vec<_> = interfaces
            .iter()
            .map(|it| (it.network_card_index, it.device_index, it.interface_type.as_deref()))
            .collect();
        assert_eq!(places, [(0, 0, Some("efa")), (1, 1, Some("efa")), (2, 1, Some("efa"))]);
    }

    #[test]
    fn efa_only_interfaces_have_no_addresses() {
        let spec = EC2NodeClassSpec {
            associate_public_ip_address: Some(true),
            network_interfaces: serde_json::from_value(json!([
                {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
                {"networkCardIndex": 1, "deviceIndex": 1, "interfaceType": "efa-only"},
            ]))
            .unwrap(),
            ..EC2NodeClassSpec::default()
        };
        let interfaces = network_interfaces(&spec, &groups(), 9, false);
        assert_eq!(interfaces.len(), 2);
        assert_eq!(interfaces[0].associate_public_ip, Some(true));
        assert_eq!(interfaces[1].associate_public_ip, None);
        assert_eq!((interfaces[1].network_card_index, interfaces[1].device_index), (1, 1));
        assert_eq!(interfaces[1].security_group_ids, groups());
    }
}
