//! EventBridge events as EC2 sends them.

use super::machine::Machine;
use plimsoll_model::time::Timestamp;
use serde_json::{Value, json};

/// The account of the simulation: the one of AWS' own examples.
const ACCOUNT: &str = "123456789012";

/// EventBridge's time: seconds, UTC.
fn time(at: Timestamp) -> String {
    jiff::Timestamp::from_second(at.0.div_euclid(1000)).unwrap_or_default().to_string()
}

fn event(kind: &str, region: &str, resource: &str, detail: &Value, id: &str, at: Timestamp) -> String {
    json!({
        "version": "0",
        "id": id,
        "detail-type": kind,
        "source": "aws.ec2",
        "account": ACCOUNT,
        "time": time(at),
        "region": region,
        "resources": [resource],
        "detail": detail,
    })
    .to_string()
}

/// The machine is taken in two minutes.
pub(super) fn spot_warning(machine: &Machine, region: &str, id: &str, at: Timestamp) -> String {
    // This one event names the zone where others name region and account.
    let resource = format!("arn:aws:ec2:{}:instance/{}", machine.zone, machine.id);
    let detail = json!({ "instance-id": machine.id, "instance-action": "terminate" });
    event("EC2 Spot Instance Interruption Warning", region, &resource, &detail, id, at)
}

/// The machine may be taken some time.
pub(super) fn rebalance(machine: &Machine, region: &str, id: &str, at: Timestamp) -> String {
    let resource = format!("arn:aws:ec2:{}:instance/{}", machine.zone, machine.id);
    let detail = json!({ "instance-id": machine.id });
    event("EC2 Instance Rebalance Recommendation", region, &resource, &detail, id, at)
}

/// The machine is now in this state, in EC2's words.
pub(super) fn state_change(machine: &Machine, state: &str, region: &str, id: &str, at: Timestamp) -> String {
    let resource = format!("arn:aws:ec2:{region}:{ACCOUNT}:instance/{}", machine.id);
    let detail = json!({ "instance-id": machine.id, "state": state });
    event("EC2 Instance State-change Notification", region, &resource, &detail, id, at)
}
