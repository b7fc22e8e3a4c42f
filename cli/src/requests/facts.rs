//! Facts for the requests that manifests do not contain; missing facts get sample values.

use crate::CommandError;
use plimsoll_actuator::settings::Settings;
use plimsoll_api::ec2_node_class::{Ami, EC2NodeClassStatus, PlacementGroup, PlacementStrategy, SecurityGroup, Subnet};
use plimsoll_api::{AmiFamily, EC2NodeClass, Operator, Requirement};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::names::label;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const NAME: &str = "sample-cluster";
const ENDPOINT: &str = "https://sample-cluster.example";
/// "sample certificate authority" in base64.
const AUTHORITY: &str = "c2FtcGxlIGNlcnRpZmljYXRlIGF1dGhvcml0eQ==";
const VERSION: &str = "1.36";
const CIDR: &str = "10.100.0.0/16";
const DNS: &str = "10.100.0.10";
const DNS_IPV6: &str = "fd00::a";
const PROFILE: &str = "sample-instance-profile";
const GROUP: &str = "sg-00000000000000001";
const PLACEMENT_GROUP: &str = "pg-00000000000000001";

/// A FACTS file.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Facts {
    #[serde(default)]
    cluster: ClusterFacts,
    #[serde(default)]
    node_classes: BTreeMap<String, ClassFacts>,
}

/// An empty string means that the value is unknown.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClusterFacts {
    name: Option<String>,
    endpoint: Option<String>,
    certificate_authority: Option<String>,
    version: Option<String>,
    #[serde(rename = "serviceCIDR")]
    service_cidr: Option<String>,
    dns_address: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClassFacts {
    #[serde(default)]
    subnets: Vec<SubnetFacts>,
    #[serde(default)]
    security_groups: Vec<GroupFacts>,
    #[serde(default)]
    amis: Vec<AmiFacts>,
    instance_profile: Option<String>,
    placement_group: Option<PlacementGroupFacts>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PlacementGroupFacts {
    id: String,
    name: Option<String>,
    strategy: PlacementStrategy,
    partition_count: Option<i32>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SubnetFacts {
    id: String,
    zone: String,
    #[serde(rename = "zoneID")]
    zone_id: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupFacts {
    id: String,
    name: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct AmiFacts {
    id: String,
    name: Option<String>,
    #[serde(default)]
    requirements: Vec<Requirement>,
}

/// Paths in the FACTS file with sample values.
#[derive(Debug, Default)]
pub(super) struct Samples(BTreeSet<String>);

impl Samples {
    pub(super) fn used(&self) -> &BTreeSet<String> {
        &self.0
    }

    fn text(&mut self, field: &str, given: Option<&String>, sample: &str) -> String {
        given.cloned().unwrap_or_else(|| {
            self.0.insert(format!("cluster.{field}"));
            sample.to_owned()
        })
    }
}

impl Facts {
    pub(super) fn read(path: &Path) -> Result<Self, CommandError> {
        let problem = |error: String| CommandError::BadInput(format!("{}: {error}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| problem(error.to_string()))?;
        let value: serde_json::Value =
            serde_saphyr::from_str(&text).map_err(|error| problem(format!("not YAML: {}", error.without_snippet())))?;
        if value.is_null() {
            return Ok(Self::default());
        }
        serde_path_to_error::deserialize(value).map_err(|error| problem(format!("{}: {}", error.path(), error.inner())))
    }

    /// Rejects facts about a node class that the input does not contain.
    pub(super) fn check_names(&self, path: &str, classes: &[EC2NodeClass]) -> Result<(), CommandError> {
        let is_known = |name: &str| classes.iter().any(|class| class.metadata.name.as_deref() == Some(name));
        match self.node_classes.keys().find(|name| !is_known(name)) {
            Some(name) => Err(CommandError::BadInput(format!(
                "{path}: nodeClasses.{name}: no EC2NodeClass of the manifests has this name"
            ))),
            None => Ok(()),
        }
    }

    /// Settings of an actuator in this cluster.
    pub(super) fn settings(&self, region: &str, samples: &mut Samples) -> Settings {
        let given = &self.cluster;
        let known = |text: String| (!text.is_empty()).then_some(text);
        let service_cidr = samples.text("serviceCIDR", given.service_cidr.as_ref(), CIDR);
        let dns = if service_cidr.contains(':') { DNS_IPV6 } else { DNS };
        Settings {
            cluster_name: samples.text("name", given.name.as_ref(), NAME),
            cluster_endpoint: samples.text("endpoint", given.endpoint.as_ref(), ENDPOINT),
            cluster_ca_bundle: samples.text("certificateAuthority", given.certificate_authority.as_ref(), AUTHORITY),
            kubernetes_version: samples.text("version", given.version.as_ref(), VERSION),
            cluster_dns: known(samples.text("dnsAddress", given.dns_address.as_ref(), dns)),
            service_cidr: known(service_cidr),
            region: region.to_owned(),
            ..Settings::default()
        }
    }

    /// The class with a status from the facts, otherwise its own, otherwise from samples.
    pub(super) fn with_status(&self, class: &EC2NodeClass, catalog: &Catalog, samples: &mut Samples) -> EC2NodeClass {
        let name = class.metadata.name.clone().unwrap_or_default();
        let mut status = class.status.clone().unwrap_or_default();
        if let Some(given) = self.node_classes.get(&name) {
            given.put(&mut status);
        }
        let mut sample = |field: &str| samples.0.insert(format!("nodeClasses.{name}.{field}"));
        if status.subnets.is_empty() {
            sample("subnets");
            status.subnets = sample_subnets(catalog);
        }
        if status.security_groups.is_empty() {
            let own: Vec<String> =
                class.spec.security_group_selector_terms.iter().filter_map(|term| term.id.clone()).collect();
            let ids = if own.is_empty() {
                sample("securityGroups");
                vec![GROUP.to_owned()]
            } else {
                own
            };
            status.security_groups = ids.into_iter().map(|id| SecurityGroup { id, name: None }).collect();
        }
        if status.amis.is_empty() {
            sample("amis");
            status.amis = sample_images(class);
        }
        if status.instance_profile.as_ref().is_none_or(String::is_empty) {
            status.instance_profile = class.spec.instance_profile.clone().filter(|it| !it.is_empty()).or_else(|| {
                sample("instanceProfile");
                Some(PROFILE.to_owned())
            });
        }
        if let Some(selector) = &class.spec.placement_group_selector
            && status.placement_group.is_none()
        {
            sample("placementGroup");
            status.placement_group = Some(PlacementGroup {
                id: selector.id.clone().unwrap_or_else(|| PLACEMENT_GROUP.to_owned()),
                name: selector.name.clone(),
                strategy: PlacementStrategy::Cluster,
                partition_count: None,
            });
        }
        EC2NodeClass { status: Some(status), ..class.clone() }
    }
}

impl ClassFacts {
    fn put(&self, status: &mut EC2NodeClassStatus) {
        if !self.subnets.is_empty() {
            let subnet = |it: SubnetFacts| Subnet { id: it.id, zone: it.zone, zone_id: it.zone_id };
            status.subnets = self.subnets.iter().cloned().map(subnet).collect();
        }
        if !self.security_groups.is_empty() {
            let group = |it: GroupFacts| SecurityGroup { id: it.id, name: it.name };
            status.security_groups = self.security_groups.iter().cloned().map(group).collect();
        }
        if !self.amis.is_empty() {
            let image =
                |it: AmiFacts| Ami { id: it.id, name: it.name, requirements: it.requirements, deprecated: None };
            status.amis = self.amis.iter().cloned().map(image).collect();
        }
        if let Some(profile) = &self.instance_profile {
            status.instance_profile = Some(profile.clone());
        }
        if let Some(group) = self.placement_group.clone() {
            let PlacementGroupFacts { id, name, strategy, partition_count } = group;
            status.placement_group = Some(PlacementGroup { id, name, strategy, partition_count });
        }
    }
}

/// One subnet in each zone of the catalog.
fn sample_subnets(catalog: &Catalog) -> Vec<Subnet> {
    let offerings = catalog.instance_types.iter().flat_map(|kind| &kind.offerings);
    let zones: BTreeSet<&str> = offerings.map(|offering| offering.zone.as_str()).collect();
    let subnet = |(number, zone): (usize, &str)| Subnet {
        id: format!("subnet-{number:017x}"),
        zone: zone.to_owned(),
        zone_id: None,
    };
    (1..).zip(zones).map(subnet).collect()
}

/// Images that the class selects by id, otherwise one for each architecture.
fn sample_images(class: &EC2NodeClass) -> Vec<Ami> {
    let terms = class.spec.effective_ami_selector_terms();
    let own: Vec<Ami> = terms
        .iter()
        .filter_map(|term| term.id.clone())
        .map(|id| Ami { id, name: None, deprecated: None, requirements: Vec::new() })
        .collect();
    if !own.is_empty() {
        return own;
    }
    let architectures: &[&str] = match class.spec.effective_ami_family() {
        AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => &["amd64"],
        _ => &["amd64", "arm64"],
    };
    let image = |(number, architecture): (usize, &&str)| Ami {
        id: format!("ami-{number:017x}"),
        name: Some(format!("sample-{architecture}")),
        deprecated: None,
        requirements: vec![Requirement::new(label::ARCH, Operator::In, [*architecture])],
    };
    (1..).zip(architectures).map(image).collect()
}
