//! The requests for launches of a plan, as this code would send them on a new cluster: without IO, ledger or fence.

use super::Admitted;
use super::build::{self, Refusal};
use super::group::by_purchase;
use super::purchase::{Purchase, RequestError};
use crate::ledger;
use crate::overlays::requests_of_catalog;
use crate::ports::{FleetRequest, LaunchTemplateSpec};
use crate::resolve::Resolved;
use crate::settings::Settings;
use crate::state::launch_group::{GroupKey, claim_name};
use plimsoll_api::{EC2NodeClass, NodeOverlay, NodePool};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::execution::OutcomeReason;
use plimsoll_model::plan::Launch;
use plimsoll_model::snapshot::LedgerPosition;
use std::sync::Arc;

/// A launch, its pool, node class and catalog, and what the node class resolves to.
pub type PreviewInput<'a> = (&'a Launch, Arc<NodePool>, Arc<EC2NodeClass>, Arc<Catalog>, &'a Resolved);

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

/// The requests for launches, in order. Launches that request the same share a group. `overlays` are those of the plan.
///
/// # Errors
/// A launch has no request; with its position in the input.
pub fn preview(
    settings: &Settings,
    overlays: &[Arc<NodeOverlay>],
    launches: &[PreviewInput<'_>],
) -> Result<Vec<Preview>, (usize, PreviewError)> {
    let mut planned = Vec::new();
    for (index, input) in launches.iter().enumerate() {
        let (admitted, resolved) = (admit(input, overlays).map_err(|error| (index, error.into()))?, input.4);
        let purchase = Purchase::plan(&admitted, resolved, settings, Resolved::subnet_in);
        planned.push((purchase.map_err(|error| (index, error.into()))?, (index, admitted)));
    }
    let groups = by_purchase(planned).into_iter().filter_map(|(purchase, members)| {
        let actions: Vec<_> = members.iter().map(|(_, admitted)| admitted.launch.action_id.clone()).collect();
        let group = GroupKey::of(&actions, LedgerPosition::default())?;
        let only = match members.as_slice() {
            [(_, admitted)] => Some(admitted.claim.as_str()),
            _ => None,
        };
        let (templates, fleet) = purchase.preview(&group, only);
        Some(Preview { launches: members.iter().map(|(index, _)| *index).collect(), templates, fleet })
    });
    Ok(groups.collect())
}

/// The launch as an empty ledger admits it.
fn admit(
    (launch, pool, class, catalog, _): &PreviewInput<'_>,
    overlays: &[Arc<NodeOverlay>],
) -> Result<Admitted, Refusal> {
    let checked = Launch { requests: requests_of_catalog(overlays, &launch.requests), ..Launch::clone(launch) };
    let (narrowed, requirements) = build::narrow(&checked, pool, class, catalog, |_| false, |_| i64::MAX)?;
    let launch = Launch { requests: launch.requests.clone(), ..narrowed };
    let reserved = ledger::max_usage(&launch, catalog)
        .map_err(|rejection| Refusal::new(OutcomeReason::Invalid, rejection.to_string()))?;
    let claim = claim_name(&launch.node_pool, &launch.action_id);
    let (pool, class, catalog) = (Arc::clone(pool), Arc::clone(class), Arc::clone(catalog));
    Ok(Admitted { launch, requirements, pool, class, catalog, claim, reserved })
}
