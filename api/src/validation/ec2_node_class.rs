//! Validates an EC2NodeClass.

use super::FieldError;
use crate::{
    AmiFamily, EC2NodeClassSpec,
    ec2_node_class::{
        AmiAlias, AmiSelectorTerm, BlockDeviceMapping, InterfaceType, NetworkInterface, RESERVED_TAG_PREFIX,
        RESERVED_TAGS,
    },
};
use std::collections::BTreeMap;

/// Validates `spec` beyond its schema.
pub(super) fn check(spec: &EC2NodeClassSpec, errors: &mut Vec<FieldError>) {
    let mut rules = Rules { errors };
    rules.subnets(spec);
    rules.security_groups(spec);
    rules.capacity_reservations(spec);
    rules.images(spec);
    rules.identity(spec);
    rules.tags(&spec.tags, "spec.tags");
    rules.volumes(&spec.block_device_mappings);
    rules.interfaces(&spec.network_interfaces);
    if let Some(selector) = &spec.placement_group_selector
        && selector.name.is_some() == selector.id.is_some()
    {
        rules.add("spec.placementGroupSelector", "one of name and id is needed, not both");
    }
    if let Some(tracking) = &spec.connection_tracking
        && tracking.tcp_established_timeout.is_none()
        && tracking.udp_stream_timeout.is_none()
        && tracking.udp_timeout.is_none()
    {
        let message = "at least one of tcpEstablishedTimeout, udpStreamTimeout and udpTimeout is needed";
        rules.add("spec.connectionTracking", message);
    }
    if let Some(kubelet) = &spec.kubelet {
        rules.errors.extend(kubelet.check(spec.effective_ami_family()).into_iter().map(|problem| problem.error));
    }
}

struct Rules<'errors> {
    errors: &'errors mut Vec<FieldError>,
}

impl Rules<'_> {
    fn add(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.errors.push(FieldError::new(path, message));
    }

    /// Like the CRD's rules, rejects overspecified terms only if all terms are overspecified. In other lists the id
    /// decides.
    fn subnets(&mut self, spec: &EC2NodeClassSpec) {
        let (path, terms) = ("spec.subnetSelectorTerms", &spec.subnet_selector_terms);
        if terms.is_empty() {
            return self.add(path, "a subnet selector is needed");
        }
        for (position, term) in terms.iter().enumerate() {
            if term.tags.is_empty() && term.id.is_none() {
                self.add(format!("{path}[{position}]"), "a subnet selector needs tags or id");
            }
            self.selector_tags(&term.tags, &format!("{path}[{position}].tags"));
        }
        if terms.iter().all(|term| term.id.is_some() && !term.tags.is_empty()) {
            self.add(path, "a subnet selector cannot have both id and tags");
        }
    }

    fn security_groups(&mut self, spec: &EC2NodeClassSpec) {
        let (path, terms) = ("spec.securityGroupSelectorTerms", &spec.security_group_selector_terms);
        if terms.is_empty() {
            return self.add(path, "a security group selector is needed");
        }
        for (position, term) in terms.iter().enumerate() {
            if term.tags.is_empty() && term.id.is_none() && term.name.is_none() {
                self.add(format!("{path}[{position}]"), "a security group selector needs tags, id or name");
            }
            self.selector_tags(&term.tags, &format!("{path}[{position}].tags"));
        }
        if terms.iter().all(|term| term.id.is_some() && (!term.tags.is_empty() || term.name.is_some())) {
            self.add(path, "a security group selector with id cannot have tags or name");
        }
        if terms.iter().all(|term| term.name.is_some() && (!term.tags.is_empty() || term.id.is_some())) {
            self.add(path, "a security group selector with name cannot have tags or id");
        }
    }

    fn capacity_reservations(&mut self, spec: &EC2NodeClassSpec) {
        let (path, terms) = ("spec.capacityReservationSelectorTerms", &spec.capacity_reservation_selector_terms);
        for (position, term) in terms.iter().enumerate() {
            if term.tags.is_empty() && term.id.is_none() && term.instance_match_criteria.is_none() {
                let message = "a capacity reservation selector needs tags, id or instanceMatchCriteria";
                self.add(format!("{path}[{position}]"), message);
            }
            self.selector_tags(&term.tags, &format!("{path}[{position}].tags"));
        }
        let is_overspecified = terms.iter().all(|term| {
            let others = !term.tags.is_empty() || term.owner_id.is_some() || term.instance_match_criteria.is_some();
            term.id.is_some() && others
        });
        if !terms.is_empty() && is_overspecified {
            self.add(path, "a capacity reservation selector with id cannot have anything else");
        }
    }

    fn images(&mut self, spec: &EC2NodeClassSpec) {
        let path = "spec.amiSelectorTerms";
        match (&spec.ami_selector_terms, spec.ami_family) {
            (Some(terms), family) => {
                for (position, term) in terms.iter().enumerate() {
                    self.image(term, family, &format!("{path}[{position}]"));
                }
                let has_alias = terms.iter().any(|term| term.alias.is_some());
                if has_alias && terms.len() > 1 {
                    self.add(path, "an image selector with alias must be the only one");
                }
                if !has_alias && family.is_none() {
                    self.add("spec.amiFamily", "is needed where amiSelectorTerms has no alias");
                }
            }
            (None, None) => self.add("spec.amiFamily", "is needed where there are no amiSelectorTerms"),
            (None, Some(AmiFamily::Custom)) => {
                self.add(path, "is needed with amiFamily Custom, since no image is known to be meant");
            }
            (None, Some(_)) => {}
        }
    }

    fn image(&mut self, term: &AmiSelectorTerm, family: Option<AmiFamily>, path: &str) {
        let AmiSelectorTerm { alias, tags, id, name, owner, ssm_parameter } = term;
        let has_criteria = !tags.is_empty() || name.is_some();
        if !has_criteria && id.is_none() && alias.is_none() && ssm_parameter.is_none() {
            self.add(path, "an image selector needs tags, id, name, alias or ssmParameter");
        }
        if id.is_some() && (has_criteria || alias.is_some() || owner.is_some()) {
            self.add(path, "an image selector with id cannot have alias, tags, name or owner");
        }
        if alias.is_some() && (has_criteria || id.is_some() || owner.is_some()) {
            self.add(path, "an image selector with alias cannot have id, tags, name or owner");
        }
        self.selector_tags(tags, &format!("{path}.tags"));
        match alias.as_deref().map(AmiAlias::parse) {
            Some(Err(error)) => self.add(format!("{path}.alias"), error.to_string()),
            Some(Ok(alias)) => {
                let fits = family.is_none_or(|family| family == alias.family || family == AmiFamily::Custom);
                if !fits {
                    self.add("spec.amiFamily", format!("must be {}, that of the alias, or Custom", alias.family));
                }
            }
            None => {}
        }
    }

    fn identity(&mut self, spec: &EC2NodeClassSpec) {
        if spec.role.is_some() == spec.instance_profile.is_some() {
            self.add("spec.role", "one of role and instanceProfile is needed, not both");
        }
        for (field, value) in [("role", &spec.role), ("instanceProfile", &spec.instance_profile)] {
            if value.as_deref() == Some("") {
                self.add(format!("spec.{field}"), "must not be empty");
            }
        }
    }

    fn tags(&mut self, tags: &BTreeMap<String, String>, path: &str) {
        for key in tags.keys() {
            if key.is_empty() {
                self.add(path, "a tag needs a key");
            } else if RESERVED_TAGS.contains(&key.as_str()) || key.starts_with(RESERVED_TAG_PREFIX) {
                self.add(format!("{path}[{key}]"), "is set by the autoscaler");
            }
        }
    }

    fn selector_tags(&mut self, tags: &BTreeMap<String, String>, path: &str) {
        if tags.iter().any(|(key, value)| key.is_empty() || value.is_empty()) {
            self.add(path, "a tag needs a key and a value; the value * stands for any");
        }
    }

    fn volumes(&mut self, mappings: &[BlockDeviceMapping]) {
        let path = "spec.blockDeviceMappings";
        if mappings.iter().filter(|mapping| mapping.root_volume == Some(true)).count() > 1 {
            self.add(path, "only one volume can be the root volume");
        }
        for (position, mapping) in mappings.iter().enumerate() {
            let Some(ebs) = &mapping.ebs else { continue };
            let path = format!("{path}[{position}].ebs");
            if ebs.snapshot_id.is_none() && ebs.volume_size.is_none() {
                self.add(&path, "a volume needs volumeSize or snapshotID");
            }
            let has_snapshot = ebs.snapshot_id.as_ref().is_some_and(|snapshot| !snapshot.is_empty());
            if ebs.volume_initialization_rate.is_some() && !has_snapshot {
                self.add(format!("{path}.volumeInitializationRate"), "needs a snapshotID");
            }
        }
    }

    fn interfaces(&mut self, interfaces: &[NetworkInterface]) {
        let path = "spec.networkInterfaces";
        let place = |interface: &NetworkInterface| (interface.network_card_index, interface.device_index);
        let is_first = |interface: &NetworkInterface| {
            place(interface) == (0, 0) && interface.interface_type == InterfaceType::Interface
        };
        if !interfaces.is_empty() && !interfaces.iter().any(is_first) {
            self.add(path, "card 0 needs an ordinary interface as device 0");
        }
        for (position, interface) in interfaces.iter().enumerate() {
            let mut before = interfaces.iter().take(position);
            let path = format!("{path}[{position}]");
            if before.clone().any(|earlier| place(earlier) == place(interface)) {
                self.add(&path, "two interfaces cannot be the same device of the same card");
            }
            let is_efa_here = |it: &&NetworkInterface| {
                it.interface_type == InterfaceType::EfaOnly && it.network_card_index == interface.network_card_index
            };
            if is_efa_here(&interface) && before.any(|earlier| is_efa_here(&earlier)) {
                self.add(&path, "a card can have only one interface for EFA only");
            }
        }
    }
}
