//! The harness without Plimsoll: a manually launched instance becomes a node, runs a pod, and is removed.

use super::super::objects::{self, SOON};
use super::super::{Context, Figure};
use crate::harness::kubectl::{condition, instance_of};
use crate::harness::wait::{Poll, until, until_true};
use crate::harness::world::World;
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use std::time::Instant;

const IMAGE_PARAMETER: &str = "amazon-eks-node-al2023-x86_64-standard-1.36-v20261101";

pub(super) fn play(_: &Context, world: &mut World) -> Result<Vec<Figure>> {
    let begun = Instant::now();
    launch(world)?;
    let node = until("the instance is a Ready node", SOON, || {
        let nodes = world.cluster.kubectl.list(&["nodes"])?;
        Ok(match nodes.into_iter().find(|n| condition(n, "Ready")) {
            Some(node) => Poll::Yes(node),
            None => Poll::NotYet("no Ready node".to_owned()),
        })
    })?;
    let joined = begun.elapsed();
    let [instance] = &world.cloud.living()?[..] else { bail!("not one instance lives") };
    ensure!(
        instance_of(&node) == Some(&instance.id),
        "the node's instance is {:?}, not {}",
        instance_of(&node),
        instance.id
    );
    let name = node["metadata"]["name"].as_str().context("the node has no name")?;
    world.cluster.kubectl.run(&["taint", "node", name, "karpenter.sh/unregistered-"])?;
    world.cluster.kubectl.apply(&objects::pod("one", 1000))?;
    world.wait_ready("one", 1, SOON)?;
    world.cloud.query(&[("Action", "TerminateInstances"), ("InstanceId.1", &instance.id)])?;
    until_true("the node is not Ready", SOON, || {
        let [node] = &world.cluster.kubectl.list(&["node", name])?[..] else {
            bail!("the node was deleted, but only Plimsoll deletes it")
        };
        Ok((!condition(node, "Ready"), "it is".to_owned()))
    })?;
    Ok(vec![("launch to Ready node", format!("{} ms", joined.as_millis()))])
}

/// Launches like the actuator: a template with AL2023's user data, and a fleet of one.
fn launch(world: &World) -> Result<()> {
    let user_data = user_data(world)?;
    let image = between(
        &world.cloud.query(&[
            ("Action", "DescribeImages"),
            ("Filter.1.Name", "name"),
            ("Filter.1.Value.1", IMAGE_PARAMETER),
        ])?,
        "imageId",
    )?;
    world.cloud.query(&[
        ("Action", "CreateLaunchTemplate"),
        ("LaunchTemplateName", "harness"),
        ("LaunchTemplateData.ImageId", &image),
        ("LaunchTemplateData.UserData", &user_data),
    ])?;
    let subnets = world.cloud.made["subnets"].as_object().context("the bootstrap made no subnets")?;
    let subnet = subnets.values().find_map(Value::as_str).context("the bootstrap made no subnet")?;
    let answer = world.cloud.query(&[
        ("Action", "CreateFleet"),
        ("Type", "instant"),
        ("ClientToken", "harness-1"),
        ("TargetCapacitySpecification.TotalTargetCapacity", "1"),
        ("TargetCapacitySpecification.DefaultTargetCapacityType", "on-demand"),
        ("LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateName", "harness"),
        ("LaunchTemplateConfigs.1.LaunchTemplateSpecification.Version", "$Latest"),
        ("LaunchTemplateConfigs.1.Overrides.1.InstanceType", "m5.large"),
        ("LaunchTemplateConfigs.1.Overrides.1.SubnetId", subnet),
    ])?;
    ensure!(!world.cloud.living()?.is_empty(), "CreateFleet launched nothing: {answer}");
    Ok(())
}

/// A NodeConfig as JSON, which is valid YAML. The MIME message is encoded by `base64`, which every machine has.
fn user_data(world: &World) -> Result<String> {
    let authority = encode(&std::fs::read(&world.cluster.authority)?);
    let config = serde_json::json!({
        "apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig",
        "spec": {
            "cluster": {"name": world.cloud.cluster, "apiServerEndpoint": world.cluster.server, "certificateAuthority": authority, "cidr": "10.96.0.0/16"},
            "kubelet": {
                "config": {"maxPods": 29, "registerWithTaints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]},
                "flags": ["--node-labels=karpenter.sh/nodepool=default"],
            },
        },
    });
    let boundary = "BOUNDARY";
    Ok(encode(
        format!("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"{boundary}\"\n\n--{boundary}\nContent-Type: application/node.eks.aws\n\n{config}\n--{boundary}--\n")
            .as_bytes(),
    ))
}

fn encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0_usize, |sum, b| sum << 8 | usize::from(*b)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            text.push(if place <= chunk.len() { char::from(DIGITS[group >> (18 - 6 * place) & 63]) } else { '=' });
        }
    }
    text
}

/// Content of the first element with this name.
fn between(xml: &str, element: &str) -> Result<String> {
    let content = xml.split_once(&format!("<{element}>")).and_then(|(_, rest)| rest.split_once('<'));
    content.map(|(text, _)| text.to_owned()).with_context(|| format!("no {element} in {xml}"))
}

#[cfg(test)]
mod tests {
    use super::encode;

    #[test]
    fn base64_as_everybody_writes_it() {
        for (plain, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(encode(plain.as_bytes()), text);
        }
    }
}
