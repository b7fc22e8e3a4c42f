//! The NodePools of `--with`, at each moment of a recording.

use crate::manifests::Manifests;
use crate::{CommandError, hints, output};
use parking_lot::Mutex;
use plimsoll_api::{EC2NodeClass, NodePool as ApiPool};
use plimsoll_model::identity::{CatalogId, NodePoolName};
use plimsoll_model::snapshot::{NodePool, Snapshot};
use plimsoll_replay::simulate::PoolNodes;
use plimsoll_snapshot::{Extra, Objects, Problem, Source};
use std::collections::{BTreeMap, BTreeSet};

/// NodePools, and the EC2NodeClasses and NodeOverlays of the same files.
pub(super) struct OtherPools {
    objects: Objects,
    manifests: Manifests,
    /// The last recorded catalog of each node class. A class has none for a moment after each change of the class.
    catalogs: Mutex<BTreeMap<String, CatalogId>>,
    /// What is wrong at some moment.
    errors: Mutex<BTreeSet<String>>,
}

impl OtherPools {
    /// # Errors
    /// If there is no NodePool with an EC2NodeClass.
    pub(super) fn new(mut manifests: Manifests) -> Result<Self, CommandError> {
        let mut objects = std::mem::take(&mut manifests.objects);
        if objects.node_pools.is_empty() {
            return Err(CommandError::BadInput("--with: the manifests have no NodePool".to_owned()));
        }
        hints::of_other_providers(&objects.node_pools).iter().for_each(|hint| output::hint(hint));
        if !objects.node_pools.iter().any(|pool| pool.spec.template.spec.node_class_ref.is_ec2()) {
            return Err(CommandError::BadInput("--with: no NodePool of the manifests has an EC2NodeClass".to_owned()));
        }
        let known: BTreeSet<&str> =
            objects.node_classes.iter().filter_map(|class| class.metadata.name.as_deref()).collect();
        let named = objects.node_pools.iter().map(|pool| pool.spec.template.spec.node_class_ref.name.as_str());
        // The recording has the catalogs of node classes, not the classes.
        let classes = named.filter(|name| !known.contains(name)).collect::<BTreeSet<_>>();
        let classes: Vec<EC2NodeClass> =
            classes.into_iter().map(|name| EC2NodeClass::new(name, Default::default())).collect();
        objects.node_classes.extend(classes);
        let objects = Objects {
            node_pools: objects.node_pools,
            node_classes: objects.node_classes,
            node_overlays: objects.node_overlays,
            ..Objects::default()
        };
        Ok(Self { objects, manifests, catalogs: Mutex::default(), errors: Mutex::default() })
    }

    /// The NodePools at the time of a recorded snapshot, with the catalogs of its node classes.
    pub(super) fn at(&self, recorded: &Snapshot, nodes: &BTreeMap<NodePoolName, PoolNodes>) -> Vec<NodePool> {
        let current = recorded.node_pools.iter();
        let current = current.filter_map(|pool| Some((pool.node_class.clone(), pool.catalog.clone()?)));
        let catalogs = {
            let mut last = self.catalogs.lock();
            last.extend(current);
            last.clone()
        };
        let extra = Extra { source: Source::Files, now: recorded.now, catalogs, ..Extra::default() };
        let (snapshot, problems) = plimsoll_snapshot::build(&self.objects, &extra);
        let mut errors: Vec<String> = problems.iter().map(|one| self.manifests.locate(one).to_string()).collect();
        let mut pools = snapshot.node_pools;
        for pool in &mut pools {
            // While the recording has no catalog of the class yet, the pool launches nothing.
            let is_later = |known: &NodePool| known.node_class == pool.node_class && known.catalog.is_none();
            let problem = pool.not_ready.as_ref().filter(|_| !recorded.node_pools.iter().any(is_later));
            if let Some(problem) = problem {
                let problem = Problem {
                    kind: "NodePool".to_owned(),
                    name: pool.name.0.clone(),
                    field: "spec.template.spec.nodeClassRef".to_owned(),
                    message: problem.message.clone(),
                    left_out: false,
                };
                errors.push(self.manifests.locate(&problem).to_string());
            }
            let named = |one: &&ApiPool| one.metadata.name.as_deref() == Some(pool.name.as_str());
            let Some(own) = self.objects.node_pools.iter().find(named) else { continue };
            let PoolNodes { in_service, leaving } = nodes.get(&pool.name).copied().unwrap_or_default();
            pool.disruption.allowed = plimsoll_snapshot::allowed_disruptions(own, recorded.now, (in_service, leaving));
        }
        self.errors.lock().extend(errors);
        pools
    }

    /// Whether something was wrong with the NodePools.
    pub(super) fn are_wrong(&self) -> bool {
        !self.errors.lock().is_empty()
    }

    /// # Errors
    /// What was wrong with the NodePools.
    pub(super) fn problems(&self) -> Result<(), CommandError> {
        let errors: Vec<String> = self.errors.lock().iter().cloned().collect();
        if errors.is_empty() { Ok(()) } else { Err(CommandError::BadInput(errors.join("\n"))) }
    }
}
