//! Input of a self-contained request.

use super::AnswerError;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::plan::PlanOptions;
use plimsoll_model::resources::PODS;
use plimsoll_model::snapshot::{NodePool, Snapshot};
use plimsoll_proto::convert::{ConvertError, check_catalogs};
use plimsoll_proto::{catalog::v1 as catalog_wire, plan::v1 as plan_wire, snapshot::v1 as wire};
use std::collections::BTreeMap;

/// Maximum work budget of a request: ten times the default, which takes minutes on one thread.
pub(crate) const MAX_WORK_BUDGET: u64 = 2_000_000_000;

/// A snapshot with its catalogs and the plan options.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SolveInput {
    pub(crate) snapshot: Snapshot,
    pub(crate) catalogs: BTreeMap<CatalogId, Catalog>,
    pub(crate) options: PlanOptions,
}

impl SolveInput {
    pub(crate) fn new(
        snapshot: Option<wire::Snapshot>,
        catalogs: Vec<catalog_wire::Catalog>,
        options: Option<plan_wire::PlanOptions>,
    ) -> Result<Self, AnswerError> {
        let shape_errors = snapshot.iter().flat_map(|it| &it.shapes).enumerate().flat_map(shape_errors);
        let shape_errors = ConvertError::combined(shape_errors.collect::<Vec<_>>());
        let snapshot = snapshot.ok_or_else(|| ConvertError::new("snapshot", "is not set")).and_then(Snapshot::try_from);
        let (catalogs, options) = (catalogs_from_wire(catalogs), options_from_wire(options, "options"));
        // A caller that writes requests by hand wants to know all that is wrong at once.
        let errors = [snapshot.as_ref().err(), shape_errors.as_ref(), catalogs.as_ref().err(), options.as_ref().err()];
        if let Some(error) = ConvertError::combined(errors.into_iter().flatten().cloned()) {
            return Err(error.into());
        }
        let (mut snapshot, catalogs, options) = (snapshot?, catalogs?, options?);
        if let Some(only) = only_catalog(&snapshot, &catalogs) {
            assign_catalog(&mut snapshot, &only);
        }
        check_catalogs(&snapshot, &catalogs.keys().cloned().collect())?;
        Ok(Self { snapshot, catalogs, options })
    }
}

/// Errors of fields that callers forget easily, and without which a plan would be wrong: nodes would take any number of
/// pods, or a spread would allow none. The watcher always sets them.
fn shape_errors((index, shape): (usize, &wire::PodShape)) -> Vec<ConvertError> {
    let error =
        |field: String, message: String| ConvertError::new(format!("snapshot.shapes[{index}].{field}"), message);
    let counts_pods = shape.requests.iter().any(|it| it.name == PODS && it.amount != 0);
    let no_pods =
        (!counts_pods).then(|| error("requests".to_owned(), "has no \"pods\", of which a pod takes 1".to_owned()));
    let skews =
        shape.topology_spread.iter().enumerate().filter(|(_, spread)| spread.max_skew < 1).map(|(place, spread)| {
            error(format!("topology_spread[{place}].max_skew"), format!("is less than 1: {}", spread.max_skew))
        });
    no_pods.into_iter().chain(skews).collect()
}

/// Returns the only catalog, if there is exactly one and some pool refers to none.
pub(super) fn only_catalog(snapshot: &Snapshot, catalogs: &BTreeMap<CatalogId, Catalog>) -> Option<CatalogId> {
    let only = catalogs.keys().next().filter(|_| catalogs.len() == 1)?;
    snapshot.node_pools.iter().any(lacks_catalog).then(|| only.clone())
}

/// Assigns `catalog` to pools that refer to none.
pub(super) fn assign_catalog(snapshot: &mut Snapshot, catalog: &CatalogId) {
    let pools = snapshot.node_pools.iter_mut().filter(|pool| lacks_catalog(pool));
    pools.for_each(|pool| pool.catalog = Some(catalog.clone()));
}

fn lacks_catalog(pool: &NodePool) -> bool {
    pool.catalog.is_none() && pool.not_ready.is_none()
}

fn catalogs_from_wire(wire: Vec<catalog_wire::Catalog>) -> Result<BTreeMap<CatalogId, Catalog>, ConvertError> {
    let mut catalogs = BTreeMap::new();
    let mut errors = Vec::new();
    for (index, wire) in wire.into_iter().enumerate() {
        match Catalog::try_from(wire) {
            Ok(catalog) => {
                catalogs.insert(catalog.id(), catalog);
            }
            // The converter's path starts at the message; here the message is an element of a list.
            Err(error) => errors
                .push(error.with_paths(|path| format!("catalogs[{index}].{}", path.trim_start_matches("catalog.")))),
        }
    }
    match ConvertError::combined(errors) {
        Some(error) => Err(error),
        None => Ok(catalogs),
    }
}

/// Converts the options of a request, or returns the defaults.
///
/// # Errors
/// An option is out of its bounds; errors have their field below `path`.
pub fn options_from_wire(wire: Option<plan_wire::PlanOptions>, path: &str) -> Result<PlanOptions, ConvertError> {
    let options = wire.map(PlanOptions::from).unwrap_or_default();
    if options.work_budget > MAX_WORK_BUDGET {
        let message = format!("is {}, more than {MAX_WORK_BUDGET}", options.work_budget);
        return Err(ConvertError::new(format!("{path}.work_budget"), message));
    }
    Ok(options)
}
