//! Launches of one message that share their lists of offerings and requirements, and unschedulable pods that share
//! their reasons.

use super::{to_wire, wire, without_lists, without_sharers};
use crate::convert::encoded_size;
use plimsoll_model::plan::{Launch, OfferingChoice, Plan, Reason, Unschedulable};
use plimsoll_model::requirements::NodeSelectorRequirement;
use std::collections::HashMap;
use std::sync::Arc;

/// Converts a plan to one message in which launches share their lists of offerings and requirements.
#[must_use]
pub fn with_shared_lists(plan: &Plan) -> wire::Plan {
    wire::Plan { unschedulable: to_wire(&plan.unschedulable), ..with_shared_launches(plan) }
}

/// As [`with_shared_lists`], and unschedulable pods share their reasons.
#[must_use]
pub fn with_shared_reasons(plan: &Plan) -> wire::Plan {
    let mut reasons = SharedReasons::default();
    let unschedulable = plan.unschedulable.iter().map(|pod| reasons.pod(pod)).collect();
    wire::Plan { unschedulable, ..with_shared_launches(plan) }
}

/// Sizes in bytes of the launches and of the unschedulable pods of a plan in a message in which they share no lists.
/// The message could take gigabytes, so each list is only converted once.
#[must_use]
pub fn unshared_sizes(plan: &Plan) -> (usize, usize) {
    let mut lists: HashMap<(usize, usize), usize> = HashMap::new();
    let launch = |launch: &Launch| {
        let lists = *lists.entry(addresses(launch)).or_insert_with(|| {
            let offerings = to_wire(launch.offerings.as_slice());
            let requirements = to_wire(launch.requirements.as_slice());
            encoded_size(&wire::Launch { offerings, requirements, ..wire::Launch::default() })
        });
        delimited(encoded_size(&without_lists(launch)) + lists)
    };
    let launches: usize = plan.launches.iter().map(launch).sum();
    let mut reasons: HashMap<usize, usize> = HashMap::new();
    let pod = |pod: &Unschedulable| {
        let reasons = *reasons.entry(Arc::as_ptr(&pod.reasons) as usize).or_insert_with(|| {
            let reasons = to_wire(pod.reasons.as_slice());
            encoded_size(&wire::Unschedulable { reasons, ..wire::Unschedulable::default() })
        });
        let header = wire::Unschedulable { pod: Some((&pod.pod).into()), ..wire::Unschedulable::default() };
        delimited(encoded_size(&header) + reasons)
    };
    (launches, plan.unschedulable.iter().map(pod).sum())
}

/// Size of a message of this size in a list, whose field number is below 16.
fn delimited(bytes: usize) -> usize {
    1 + prost::length_delimiter_len(bytes) + bytes
}

/// Addresses of the lists of a launch.
fn addresses(launch: &Launch) -> (usize, usize) {
    (Arc::as_ptr(&launch.offerings) as usize, Arc::as_ptr(&launch.requirements) as usize)
}

/// Converts a plan without its unschedulable pods.
fn with_shared_launches(plan: &Plan) -> wire::Plan {
    let mut lists = SharedLists::default();
    let launches = plan.launches.iter().map(|launch| lists.launch(launch)).collect();
    wire::Plan { launches, ..without_sharers(plan) }
}

/// Converts the launches of one message in order. Lists of offerings and requirements that are equal are sent only
/// once. `like` refers to both lists of a launch, so both must be equal.
#[derive(Debug, Default)]
pub struct SharedLists<'a> {
    /// First launch with the lists, by addresses of both lists: most equal lists are the same allocation, and are found
    /// without a comparison. The launches outlive this value, so an address stays that of one list. Neither map is
    /// iterated, so hash order does not matter.
    by_address: HashMap<(usize, usize), u32>,
    /// First launch with the lists, by their content.
    by_content: HashMap<(&'a [OfferingChoice], &'a [NodeSelectorRequirement]), u32>,
    launches: u32,
}

impl<'a> SharedLists<'a> {
    /// Converts the next launch of the message.
    pub fn launch(&mut self, launch: &'a Launch) -> wire::Launch {
        let index = self.launches;
        self.launches = index.saturating_add(1);
        let first = *self.by_address.entry(addresses(launch)).or_insert_with(|| {
            let content = (launch.offerings.as_slice(), launch.requirements.as_slice());
            *self.by_content.entry(content).or_insert(index)
        });
        if first == index { launch.into() } else { wire::Launch { like: Some(first), ..without_lists(launch) } }
    }
}

/// Converts the unschedulable pods of one message in order. Equal lists of reasons are sent only once.
#[derive(Debug, Default)]
pub struct SharedReasons<'a> {
    /// First pod with the list, by its address and by its content, as in [`SharedLists`].
    by_address: HashMap<usize, u32>,
    by_content: HashMap<&'a [Reason], u32>,
    pods: u32,
}

impl<'a> SharedReasons<'a> {
    /// Converts the next pod of the message.
    pub fn pod(&mut self, pod: &'a Unschedulable) -> wire::Unschedulable {
        let index = self.pods;
        self.pods = index.saturating_add(1);
        let first = *self
            .by_address
            .entry(Arc::as_ptr(&pod.reasons) as usize)
            .or_insert_with(|| *self.by_content.entry(pod.reasons.as_slice()).or_insert(index));
        if first == index {
            return pod.into();
        }
        wire::Unschedulable { pod: Some((&pod.pod).into()), reasons: Vec::new(), like: Some(first) }
    }
}
