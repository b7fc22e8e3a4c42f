//! Launches of one message that share their lists of offerings and requirements.

use super::{wire, without_launches, without_lists};
use plimsoll_model::plan::{Launch, OfferingChoice, Plan};
use plimsoll_model::requirements::NodeSelectorRequirement;
use std::collections::HashMap;
use std::sync::Arc;

/// Converts a plan to one message in which launches share their lists of offerings and requirements.
#[must_use]
pub fn with_shared_lists(plan: &Plan) -> wire::Plan {
    let mut launches = SharedLists::default();
    wire::Plan {
        launches: plan.launches.iter().map(|launch| launches.launch(launch)).collect(),
        ..without_launches(plan)
    }
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
        let addresses = (Arc::as_ptr(&launch.offerings) as usize, Arc::as_ptr(&launch.requirements) as usize);
        let first = *self.by_address.entry(addresses).or_insert_with(|| {
            let content = (launch.offerings.as_slice(), launch.requirements.as_slice());
            *self.by_content.entry(content).or_insert(index)
        });
        if first == index { launch.into() } else { wire::Launch { like: Some(first), ..without_lists(launch) } }
    }
}
