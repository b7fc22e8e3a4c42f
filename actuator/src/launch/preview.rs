//! The requests for launches of a plan, as this code would send them on a new cluster: without IO, ledger or fence.

use super::build::{self, LiveObjects, Refusal};
use super::request::{self, Circumstances, Purchase, RequestError};
use crate::ports::{FleetRequest, LaunchTemplateSpec};
use crate::resolve::Resolved;
use crate::settings::Settings;
use crate::state::insufficient_capacity::InsufficientCapacity;
use crate::state::launch_group::{LaunchGroup, claim_name};
use plimsoll_model::plan::Launch;
use plimsoll_model::snapshot::LedgerPosition;
use plimsoll_model::time::Timestamp;

/// The requests of one launch group.
#[derive(Debug, Clone, PartialEq)]
pub struct Preview {
    /// Launches of the group, by position in the input.
    pub launches: Vec<usize>,
    /// Launch templates.
    pub templates: Vec<LaunchTemplateSpec>,
    /// The request.
    pub fleet: FleetRequest,
}

/// Why a launch has no request.
#[derive(Debug, thiserror::Error)]
pub enum PreviewError {
    /// Pool or node class do not allow the launch.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The request cannot be built.
    #[error(transparent)]
    Request(#[from] RequestError),
}

/// The requests for launches, in order. Launches that request the same share a group.
///
/// # Errors
/// A launch has no request; with its position in the input.
pub fn preview(
    settings: &Settings,
    launches: &[(&Launch, LiveObjects<'_>, &Resolved)],
) -> Result<Vec<Preview>, (usize, PreviewError)> {
    let insufficient_capacity = InsufficientCapacity::default();
    let now = Circumstances { settings, insufficient_capacity: &insufficient_capacity, time: Timestamp::default() };
    let mut planned = Vec::new();
    for (index, (launch, live, resolved)) in launches.iter().enumerate() {
        let purchase = build::narrow(launch, *live, |_| false)
            .map_err(PreviewError::from)
            .and_then(|narrowed| Ok(Purchase::plan(&now, resolved, *live, &narrowed)?))
            .map_err(|error| (index, error))?;
        planned.push((purchase, (index, *launch)));
    }
    let groups = request::together(planned).into_iter().filter_map(|(purchase, members)| {
        let actions: Vec<_> = members.iter().map(|(_, launch)| launch.action_id.clone()).collect();
        let group = LaunchGroup::of(&actions, LedgerPosition::default())?;
        let only = match members.as_slice() {
            [(_, launch)] => Some(claim_name(&launch.node_pool, &launch.action_id)),
            _ => None,
        };
        let (templates, fleet) = purchase.preview(&group, only.as_deref());
        Some(Preview { launches: members.into_iter().map(|(index, _)| index).collect(), templates, fleet })
    });
    Ok(groups.collect())
}
