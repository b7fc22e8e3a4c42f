//! What a scheduler is asked: the snapshot of the objects, and the catalogs that its pools buy from.

use crate::{ManifestErrors, Manifests, Offers};
use plimsoll_catalog::builtin::UnknownRegion;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::snapshot::Snapshot;
use plimsoll_model::time::Timestamp;
use plimsoll_snapshot::{Extra, Objects, Problem, Source};
use std::collections::{BTreeMap, BTreeSet};

/// A snapshot and its catalogs.
#[derive(Debug, Clone)]
pub struct Question {
    /// The cluster.
    pub snapshot: Snapshot,
    /// Catalogs that pools of the snapshot refer to.
    pub catalogs: BTreeMap<CatalogId, Catalog>,
}

/// Why there is no question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuestionError {
    /// Faults of the objects.
    #[error(transparent)]
    Manifests(#[from] ManifestErrors),
    /// No catalog.
    #[error(transparent)]
    Region(#[from] UnknownRegion),
}

impl Manifests {
    /// The question at the time `now`. `reprice` may change the prices of catalogs.
    ///
    /// # Errors
    /// Every field that cannot be used; or the region of `offers` has no catalog.
    pub fn question(
        &self,
        offers: &Offers,
        reprice: &dyn Fn(&mut Catalog),
        now: Timestamp,
    ) -> Result<Question, QuestionError> {
        let (catalogs, by_class) = offers.catalogs(&self.objects.node_classes, reprice)?;
        let extra = Extra { source: Source::Files, now, catalogs: by_class, ..Extra::default() };
        let (snapshot, problems) = plimsoll_snapshot::build(&self.objects, &extra);
        let faults = self.faults(&problems, &extra);
        if faults.is_empty() { Ok(question(snapshot, catalogs)) } else { Err(ManifestErrors(faults).into()) }
    }
}

/// The question that the objects of a live cluster ask, and which of the objects cannot be read.
///
/// # Errors
/// The region of `offers` has no catalog.
pub fn cluster_question(
    objects: &Objects,
    offers: &Offers,
    reprice: &dyn Fn(&mut Catalog),
    now: Timestamp,
) -> Result<(Question, Vec<Problem>), UnknownRegion> {
    let (catalogs, by_class) = offers.catalogs(&objects.node_classes, reprice)?;
    let extra = Extra { source: Source::Cluster, now, catalogs: by_class, ..Extra::default() };
    let (snapshot, problems) = plimsoll_snapshot::build(objects, &extra);
    Ok((question(snapshot, catalogs), problems))
}

/// Leaves the catalogs that pools of the snapshot buy from.
fn question(snapshot: Snapshot, mut catalogs: BTreeMap<CatalogId, Catalog>) -> Question {
    let used: BTreeSet<&CatalogId> = snapshot.node_pools.iter().filter_map(|pool| pool.catalog.as_ref()).collect();
    catalogs.retain(|id, _| used.contains(id));
    Question { snapshot, catalogs }
}
