//! What other people do to resources of ours in EC2: they delete launch templates and protect instances.

use super::super::objects::{self, SOON, in_millis};
use super::super::{Context, Figure};
use crate::harness::cloud::Call;
use crate::harness::kubectl::instance_of;
use crate::harness::wait::until_true;
use crate::harness::world::World;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// Maximum time from the CreateFleet that misses its template to the one that launches. The actuator pauses for a
/// second, since EC2 may not show a new template yet.
const RECOVERY_MAX: Duration = Duration::from_secs(3);
const NODES: usize = 6;
/// How long the first TerminateInstances is held, so that the other claims are ready for the second.
const HELD_SECONDS: u64 = 3;

/// EC2's message for a missing permission.
const DENIED: &str = "You are not authorized to perform this operation. User: arn:aws:sts::123456789012:assumed-role/actuator is \
    not authorized to perform: iam:PassRole on resource: arn:aws:iam::123456789012:role/node";

/// The actuator's role may not launch: the node class says so, and nothing is launched until it may.
pub(super) fn permission_missing(_: &Context, world: &mut World) -> Result<Vec<Figure>> {
    let denied = json!({"action": "DryRunRunInstances", "do": "error", "code": "UnauthorizedOperation", "message": DENIED, "times": 1000});
    world.cloud.faults(&json!({"calls": [denied]}))?;
    world.apply_pool()?;
    world.cluster.kubectl.apply(&objects::pod("web", 1500))?;
    let validated = || -> Result<Value> {
        let classes = world.cluster.kubectl.list(&["ec2nodeclass", "default"])?;
        let conditions = classes.first().and_then(|class| class["status"]["conditions"].as_array().cloned());
        let found = conditions.into_iter().flatten().find(|condition| condition["type"] == "ValidationSucceeded");
        Ok(found.unwrap_or_default())
    };
    until_true("the node class names the permission", world.with_slack(SOON), || {
        let condition = validated()?;
        let named = condition["message"].as_str().is_some_and(|message| message.contains("lacks iam:PassRole"));
        let refused = condition["status"] == "False" && condition["reason"] == "RunInstancesAuthCheckFailed";
        Ok((named && refused, condition.to_string()))
    })?;
    ensure!(world.cloud.calls("CreateFleet", 0)?.is_empty(), "a class that is not ready launched");
    world.cloud.faults(&json!({"calls": []}))?;
    // A change of the class is validated at once; otherwise the refusal is valid for minutes.
    let patch = r#"{"spec": {"tags": {"team": "shop"}}}"#;
    world.cluster.kubectl.run(&["patch", "ec2nodeclass", "default", "--type=merge", "-p", patch])?;
    world.keep_ready("web", &objects::pod("web", 1500), SOON)?;
    ensure!(validated()?["status"] == "True", "the class is not validated: {}", validated()?);
    let asked =
        ["DryRunCreateFleet", "DryRunRunInstances"].map(|action| world.cloud.calls(action, 0).map(|all| all.len()));
    let [fleets, instances] = asked;
    Ok(vec![("dry runs of CreateFleet", fleets?.to_string()), ("of RunInstances", instances?.to_string())])
}

/// Somebody deletes the launch templates.
pub(super) fn template_deleted(_: &Context, world: &mut World) -> Result<Vec<Figure>> {
    world.apply_pool()?;
    world.keep_ready("first", &objects::pod("first", 1500), SOON)?;
    let described = world.cloud.query(&[("Action", "DescribeLaunchTemplates")])?;
    let names: Vec<&str> =
        described.split("<launchTemplateName>").skip(1).filter_map(|rest| Some(rest.split_once('<')?.0)).collect();
    ensure!(!names.is_empty(), "there is no launch template");
    for name in &names {
        world.cloud.query(&[("Action", "DeleteLaunchTemplate"), ("LaunchTemplateName", name)])?;
    }
    let seen = world.cloud.last_call()?;
    world.keep_ready("second", &objects::pod("second", 1500), SOON)?;
    let calls = world.cloud.calls("CreateFleet", seen)?;
    let misses = |call: &&Call| call.refused.starts_with("InvalidLaunchTemplate");
    let missed = calls.iter().find(misses).context("no template was missed")?;
    let launched = calls.iter().find(|call| !call.instances.is_empty()).context("nothing was launched")?;
    let delay = launched.time - missed.time;
    let bound = world.with_slack(RECOVERY_MAX).as_secs_f64();
    ensure!(delay < bound, "launched {delay:.3} s after the template was missed");
    ensure!(world.are_calls(calls.len(), 2), "{} calls of CreateFleet, 2 are enough", calls.len());
    Ok(vec![("deleted templates", names.len().to_string()), ("launched after", in_millis(delay))])
}

/// A batch of TerminateInstances is refused as a whole, since one instance is protected.
pub(super) fn batch_refused(_: &Context, world: &mut World) -> Result<Vec<Figure>> {
    world.apply_pool()?;
    world.cluster.kubectl.apply(&objects::deployment("web", NODES, 1500))?;
    world.wait_ready("web", NODES, SOON)?;
    let mut instances: Vec<String> = world.nodes()?.iter().filter_map(|n| instance_of(n).map(str::to_owned)).collect();
    instances.sort();
    // Neither the first nor the last, so that neither the order of deletion nor that of ids makes it end alone.
    let protected = instances.get(NODES / 2).context("too few nodes")?.clone();
    protect(world, &protected, true)?;
    world.scale("web", 0)?;
    world
        .cloud
        .faults(&json!({"calls": [{"action": "TerminateInstances", "do": "hold-request", "seconds": HELD_SECONDS}]}))?;
    let seen = world.cloud.last_call()?;
    world.cluster.kubectl.run(&["delete", "nodeclaims", "--all", "--wait=false"])?;
    let expected: BTreeSet<_> = [protected.clone()].into();
    until_true("all instances but the protected one end", world.with_slack(SOON), || {
        let living: BTreeSet<_> = world.cloud.living()?.into_iter().map(|i| i.id).collect();
        ensure!(living.contains(&protected), "the protected instance was terminated");
        Ok((living == expected, format!("{} live", living.len())))
    })?;
    let calls = world.cloud.calls("TerminateInstances", seen)?;
    let refused = calls.iter().find(|call| call.ids > 1 && call.refused == "OperationNotPermitted");
    let refused = refused.context("no batch was refused: nothing was met")?;
    let ended = calls.iter().filter(|call| call.refused.is_empty()).map(|call| call.time).fold(0.0, f64::max);
    until_true("only the claim of the protected instance is left, and says why", world.with_slack(SOON), || {
        let claims = world.cluster.kubectl.list(&["nodeclaims"])?;
        let says_why = |claim: &Value| claim["status"]["conditions"].to_string().contains("OperationNotPermitted");
        Ok((claims.len() == 1 && claims.iter().all(says_why), format!("{} are left", claims.len())))
    })?;
    protect(world, &protected, false)?;
    world.wait_all_gone(SOON + Duration::from_secs(60))?;
    Ok(vec![
        ("instances in the refused batch", refused.ids.to_string()),
        ("the others ended after", in_millis((ended - refused.time).max(0.0))),
    ])
}

fn protect(world: &World, instance: &str, protected: bool) -> Result<()> {
    let value = protected.to_string();
    let call = [
        ("Action", "ModifyInstanceAttribute"),
        ("InstanceId", instance),
        ("DisableApiTermination.Value", value.as_str()),
    ];
    world.cloud.query(&call).map(drop)
}
