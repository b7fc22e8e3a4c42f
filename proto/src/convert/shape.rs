//! Conversion of pod shapes.

use super::{
    ConvertError, ConvertResult, key, list, optional, required, resources_from_wire, resources_to_wire, to_wire,
};
use crate::snapshot::v1 as wire;
use plimsoll_model::identity::ShapeId;
use plimsoll_model::snapshot::{
    HostPort, OnDemandMix, OnDemandRatio, PodAffinityTerm, PodShape, TopologySpread, VolumeTopology,
};

impl From<&PodShape> for wire::PodShape {
    fn from(shape: &PodShape) -> Self {
        Self {
            id: shape.id.0.clone(),
            namespace: shape.namespace.clone(),
            labels: shape.labels.clone(),
            requests: resources_to_wire(&shape.requests),
            node_selector: shape.node_selector.clone(),
            required_node_affinity: to_wire(&shape.required_node_affinity),
            preferred_node_affinity: to_wire(&shape.preferred_node_affinity),
            tolerations: to_wire(&shape.tolerations),
            host_ports: to_wire(&shape.host_ports),
            topology_spread: to_wire(&shape.topology_spread),
            pod_affinity: to_wire(&shape.pod_affinity),
            volumes: to_wire(&shape.volumes),
            resource_claims: shape.resource_claims.clone(),
            priority: shape.priority,
            on_demand: shape.on_demand.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<wire::PodShape> for PodShape {
    type Error = ConvertError;
    fn try_from(shape: wire::PodShape) -> ConvertResult<Self> {
        Ok(Self {
            id: ShapeId(key("id", shape.id)?),
            namespace: shape.namespace,
            labels: shape.labels,
            requests: resources_from_wire("requests", shape.requests)?,
            node_selector: shape.node_selector,
            required_node_affinity: list("required_node_affinity", shape.required_node_affinity)?,
            preferred_node_affinity: list("preferred_node_affinity", shape.preferred_node_affinity)?,
            tolerations: list("tolerations", shape.tolerations)?,
            host_ports: list("host_ports", shape.host_ports)?,
            topology_spread: list("topology_spread", shape.topology_spread)?,
            pod_affinity: list("pod_affinity", shape.pod_affinity)?,
            volumes: list("volumes", shape.volumes)?,
            resource_claims: shape.resource_claims,
            priority: shape.priority,
            on_demand: optional("on_demand", shape.on_demand)?,
        })
    }
}

impl From<&OnDemandRatio> for wire::OnDemandWish {
    fn from(ratio: &OnDemandRatio) -> Self {
        Self { workload: ratio.workload.clone(), mix: Some((&ratio.mix).into()) }
    }
}

impl TryFrom<wire::OnDemandWish> for OnDemandRatio {
    type Error = ConvertError;
    fn try_from(ratio: wire::OnDemandWish) -> ConvertResult<Self> {
        Ok(Self { workload: key("workload", ratio.workload)?, mix: required("mix", ratio.mix)? })
    }
}

impl From<&OnDemandMix> for wire::OnDemandMix {
    fn from(mix: &OnDemandMix) -> Self {
        Self { base: mix.base, percentage: mix.percentage }
    }
}

impl TryFrom<wire::OnDemandMix> for OnDemandMix {
    type Error = ConvertError;
    fn try_from(mix: wire::OnDemandMix) -> ConvertResult<Self> {
        if mix.percentage > 100 {
            return Err(ConvertError::new("percentage", format!("is more than 100: {}", mix.percentage)));
        }
        Ok(Self { base: mix.base, percentage: mix.percentage })
    }
}

impl From<&HostPort> for wire::HostPort {
    fn from(port: &HostPort) -> Self {
        Self { ip: port.ip.clone(), port: port.port.into(), protocol: port.protocol.clone() }
    }
}

impl TryFrom<wire::HostPort> for HostPort {
    type Error = ConvertError;
    fn try_from(port: wire::HostPort) -> ConvertResult<Self> {
        let number = u16::try_from(port.port).ok().filter(|number| *number > 0);
        let number =
            number.ok_or_else(|| ConvertError::new("port", format!("is not between 1 and 65535: {}", port.port)))?;
        Ok(Self { ip: port.ip, port: number, protocol: port.protocol })
    }
}

impl From<&TopologySpread> for wire::TopologySpread {
    fn from(spread: &TopologySpread) -> Self {
        Self {
            topology_key: spread.topology_key.clone(),
            max_skew: spread.max_skew,
            min_domains: spread.min_domains,
            required: spread.required,
            selector: spread.selector.as_ref().map(Into::into),
            honor_node_affinity: spread.honor_node_affinity,
            honor_node_taints: spread.honor_node_taints,
        }
    }
}

impl TryFrom<wire::TopologySpread> for TopologySpread {
    type Error = ConvertError;
    fn try_from(spread: wire::TopologySpread) -> ConvertResult<Self> {
        Ok(Self {
            topology_key: key("topology_key", spread.topology_key)?,
            max_skew: spread.max_skew,
            min_domains: spread.min_domains,
            required: spread.required,
            selector: optional("selector", spread.selector)?,
            honor_node_affinity: spread.honor_node_affinity,
            honor_node_taints: spread.honor_node_taints,
        })
    }
}

impl From<&PodAffinityTerm> for wire::PodAffinityTerm {
    fn from(term: &PodAffinityTerm) -> Self {
        Self {
            anti: term.anti,
            weight: term.weight,
            topology_key: term.topology_key.clone(),
            selector: term.selector.as_ref().map(Into::into),
            namespaces: term.namespaces.clone(),
        }
    }
}

impl TryFrom<wire::PodAffinityTerm> for PodAffinityTerm {
    type Error = ConvertError;
    fn try_from(term: wire::PodAffinityTerm) -> ConvertResult<Self> {
        Ok(Self {
            anti: term.anti,
            weight: term.weight,
            topology_key: key("topology_key", term.topology_key)?,
            selector: optional("selector", term.selector)?,
            namespaces: term.namespaces,
        })
    }
}

impl From<&VolumeTopology> for wire::VolumeTopology {
    fn from(volume: &VolumeTopology) -> Self {
        Self {
            claim: volume.claim.clone(),
            driver: volume.driver.clone(),
            alternatives: to_wire(&volume.alternatives),
            problem: volume.problem.clone(),
        }
    }
}

impl TryFrom<wire::VolumeTopology> for VolumeTopology {
    type Error = ConvertError;
    fn try_from(volume: wire::VolumeTopology) -> ConvertResult<Self> {
        Ok(Self {
            claim: volume.claim,
            driver: volume.driver,
            alternatives: list("alternatives", volume.alternatives)?,
            problem: volume.problem,
        })
    }
}
