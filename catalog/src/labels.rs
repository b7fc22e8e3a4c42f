//! Computes labels with one value per instance type.

use crate::{InstanceTypeFacts, NodeClassSettings, limits};
use plimsoll_api::AmiFamily;
use plimsoll_model::names::label;
use std::collections::BTreeMap;

/// Labels of an instance type. A label that is missing does not exist on its nodes.
pub(crate) fn labels(facts: &InstanceTypeFacts, settings: &NodeClassSettings) -> BTreeMap<String, String> {
    let mut labels = Labels(BTreeMap::new());
    labels.name(facts);
    labels.machine(facts);
    labels.devices(facts);
    if let Some(build) = windows_build(settings.ami_family) {
        labels.0.insert(label::WINDOWS_BUILD.to_owned(), build.to_owned());
    }
    if let Some(group) = &settings.placement_group {
        labels.0.insert(label::PLACEMENT_GROUP_ID.to_owned(), group.id.clone());
    }
    labels.0
}

struct Labels(BTreeMap<String, String>);

impl Labels {
    fn insert(&mut self, name: &str, value: &impl ToString) {
        self.0.insert(format!("{}/{name}", label::AWS_DOMAIN), value.to_string());
    }

    fn name(&mut self, facts: &InstanceTypeFacts) {
        let family = facts.family();
        self.insert("instance-family", &family);
        self.insert("instance-size", &facts.size());
        self.insert("instance-capability-flex", &family.contains("-flex"));
        if let Some((category, generation)) = category_and_generation(family) {
            self.insert("instance-category", &category);
            self.insert("instance-generation", &generation);
        }
    }

    fn machine(&mut self, facts: &InstanceTypeFacts) {
        self.insert("instance-cpu", &facts.vcpus);
        self.insert("instance-memory", &facts.memory_mib);
        self.insert("instance-hypervisor", &facts.hypervisor);
        self.insert("instance-encryption-in-transit-supported", &facts.network.encryption_in_transit);
        self.insert("nitro-sandbox", &facts.nitro_enclaves);
        if !facts.cpu_manufacturer.is_empty() {
            self.insert("instance-cpu-manufacturer", &kebab(&facts.cpu_manufacturer));
        }
        self.insert("instance-cpu-sustained-clock-speed-mhz", &facts.sustained_clock_mhz);
        if facts.ebs_bandwidth_mbps > 0 {
            self.insert("instance-ebs-bandwidth", &facts.ebs_bandwidth_mbps);
        }
        if let Some(bandwidth) = limits::baseline_bandwidth_mbps(&facts.name) {
            self.insert("instance-network-bandwidth", &bandwidth);
        }
        if let Some(store) = facts.instance_store.filter(|store| store.nvme) {
            self.insert("instance-local-nvme", &store.total_gb);
        }
    }

    /// Labels have a single value, so devices of several models have no labels.
    fn devices(&mut self, facts: &InstanceTypeFacts) {
        if let [gpu] = facts.gpus.as_slice() {
            self.insert("instance-gpu-name", &kebab(&gpu.name));
            self.insert("instance-gpu-manufacturer", &kebab(&gpu.manufacturer));
            self.insert("instance-gpu-count", &gpu.count);
            self.insert("instance-gpu-memory", &gpu.memory_mib);
        }
        match (facts.neuron_devices.as_slice(), facts.inference_accelerators.as_slice()) {
            ([device], _) => self.accelerator(&device.name, "aws", device.count),
            ([], [accelerator]) => {
                self.accelerator(&accelerator.name, &kebab(&accelerator.manufacturer), accelerator.count);
            }
            _ => {}
        }
    }

    fn accelerator(&mut self, name: &str, manufacturer: &str, count: i64) {
        self.insert("instance-accelerator-name", &kebab(name));
        self.insert("instance-accelerator-manufacturer", &manufacturer);
        self.insert("instance-accelerator-count", &count);
    }
}

/// Splits a family such as `m6gd` into category `m` and generation `6`. The family consists of letters, optionally a
/// size in TB, digits and a suffix.
fn category_and_generation(family: &str) -> Option<(&str, &str)> {
    let (category, rest) = split_at_first(family, |c| !c.is_ascii_lowercase())?;
    let rest = match rest.strip_prefix('-') {
        Some(size) => split_at_first(size, |c| !c.is_ascii_digit())?.1.strip_prefix("tb")?,
        None => rest,
    };
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest.get(..end).filter(|_| !category.is_empty() && end > 0).map(|generation| (category, generation))
}

fn split_at_first(text: &str, end: impl Fn(char) -> bool) -> Option<(&str, &str)> {
    let position = text.find(end)?;
    Some(text.split_at(position))
}

/// Converts to lower case with hyphens instead of spaces, as in label values.
fn kebab(text: &str) -> String {
    text.to_lowercase().replace(' ', "-")
}

fn windows_build(family: AmiFamily) -> Option<&'static str> {
    match family {
        AmiFamily::Windows2019 => Some("10.0.17763"),
        AmiFamily::Windows2022 => Some("10.0.20348"),
        AmiFamily::Windows2025 => Some("10.0.26100"),
        AmiFamily::AL2 | AmiFamily::AL2023 | AmiFamily::Bottlerocket | AmiFamily::Custom => None,
    }
}

#[cfg(test)]
mod tests {
    use super::category_and_generation;

    #[test]
    fn category_and_generation_are_parsed_from_the_family() {
        let cases = [
            ("m6gd", Some(("m", "6"))),
            ("u-6tb1", Some(("u", "1"))),
            ("u7i-12tb", Some(("u", "7"))),
            ("trn1n", Some(("trn", "1"))),
            ("m7i-flex", Some(("m", "7"))),
            ("mac", None),
        ];
        for (family, expected) in cases {
            assert_eq!(category_and_generation(family), expected, "{family}");
        }
    }
}
