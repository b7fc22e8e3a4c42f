//! Instances that existed before: launched without Plimsoll, with the image and network of the EC2NodeClass.

use crate::harness::cloud::Cloud;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// EC2 accepts at most this many instances per call of `RunInstances` by default.
const BATCH: usize = 500;

/// Image, subnets and security group that an EC2NodeClass selects.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) image: String,
    /// Subnet and zone.
    subnets: Vec<(String, String)>,
    group: String,
}

/// A running instance and its zone.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) id: String,
    pub(super) zone: String,
}

impl Facts {
    /// # Errors
    /// If the status of the EC2NodeClass is incomplete.
    pub(super) fn read(class: &Value) -> Result<Facts> {
        let status = &class["status"];
        // The image for types without accelerators.
        let is_plain = |ami: &&Value| {
            let requirements = ami["requirements"].to_string();
            requirements.contains("amd64") && !requirements.contains("\"Exists\"")
        };
        let image = status["amis"].as_array().into_iter().flatten().find(is_plain).and_then(|ami| ami["id"].as_str());
        let subnets = status["subnets"].as_array().into_iter().flatten();
        let pair = |subnet: &Value| Some((subnet["id"].as_str()?.to_owned(), subnet["zone"].as_str()?.to_owned()));
        let subnets: Vec<_> = subnets.filter_map(pair).collect();
        ensure!(!subnets.is_empty(), "the EC2NodeClass has no subnets: {status}");
        Ok(Facts {
            image: image.with_context(|| format!("the EC2NodeClass has no amd64 image: {status}"))?.to_owned(),
            group: status["securityGroups"][0]["id"].as_str().context("no security group")?.to_owned(),
            subnets,
        })
    }
}

/// Launches running instances of a type, evenly over the subnets.
///
/// # Errors
/// If EC2 refuses them.
pub(super) fn run(cloud: &Cloud, facts: &Facts, instance_type: &str, count: usize) -> Result<Vec<Instance>> {
    let mut all = Vec::with_capacity(count);
    let mut subnets = facts.subnets.iter().cycle();
    while all.len() < count {
        let (subnet, zone) = subnets.next().context("no subnets")?;
        let number = BATCH.min(count - all.len()).to_string();
        let answer = cloud.query(&[
            ("Action", "RunInstances"),
            ("ImageId", &facts.image),
            ("InstanceType", instance_type),
            ("MinCount", &number),
            ("MaxCount", &number),
            ("SubnetId", subnet),
            ("SecurityGroupId.1", &facts.group),
        ])?;
        let ids = answer.split("<instanceId>").skip(1).filter_map(|rest| rest.split_once('<').map(|(id, _)| id));
        let before = all.len();
        all.extend(ids.map(|id| Instance { id: id.to_owned(), zone: zone.clone() }));
        ensure!(all.len() > before, "EC2 launched nothing: {answer}");
    }
    all.truncate(count);
    Ok(all)
}
