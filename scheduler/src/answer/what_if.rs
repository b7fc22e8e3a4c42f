//! Compares the plan for the present state with the plan under suppositions.

use super::explain::{find_node, find_pod};
use super::solve_input::SolveInput;
use super::{AnswerError, to_wire};
use crate::solve::{PlanFailure, solve};
use plimsoll_model::identity::{NodeName, PodUid};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::snapshot::{Pod, PodState, Snapshot};
use plimsoll_proto::scheduler::v1::{MorePods, PriceChange, WhatIfRequest, WhatIfResponse, supposition::Change};
use plimsoll_solver::Cancel;
use std::collections::BTreeSet;
use std::ops::Range;

/// Maximum pods added by one request: as many as a large cluster has.
pub const MAX_ADDED_PODS: u32 = 100_000;

/// Maximum size of the pods that one request adds: 100,000 with 670 bytes each. A pod has about 400, but its name and
/// its PodDisruptionBudgets are as long as the caller likes.
const MAX_ADDED_BYTES: usize = 64 << 20;

/// Maximum suppositions of one request. Each may copy a catalog.
pub(crate) const MAX_SUPPOSITIONS: usize = 100;

pub(crate) fn what_if_of(request: WhatIfRequest, cancel: &Cancel) -> Result<WhatIfResponse, AnswerError> {
    let input = SolveInput::new(request.snapshot, request.catalogs, request.options)?;
    let count = request.suppositions.len();
    if count == 0 {
        return Err(AnswerError::request("suppositions", "is empty"));
    }
    if count > MAX_SUPPOSITIONS {
        return Err(AnswerError::request("suppositions", format!("{count} of them, more than {MAX_SUPPOSITIONS}")));
    }
    let mut supposed = input.clone();
    let mut added = AddedPods::default();
    for (index, supposition) in request.suppositions.into_iter().enumerate() {
        if cancel.is_cancelled() {
            return Err(PlanFailure::Cancelled.into());
        }
        let path = format!("suppositions[{index}]");
        match supposition.change {
            None => return Err(AnswerError::request(format!("{path}.change"), "is not set")),
            Some(Change::NodeGone(name)) => {
                let node = find_node(&supposed.snapshot, &name, &format!("{path}.node_gone"))?.name.clone();
                without_nodes(&mut supposed.snapshot, &BTreeSet::from([node]));
            }
            Some(Change::PriceChange(change)) => with_prices(&mut supposed, &change, &format!("{path}.price_change"))?,
            Some(Change::MorePods(pods)) => {
                with_pods(&mut supposed, &pods, &mut added, &format!("{path}.more_pods"))?;
            }
        }
    }
    supposed.snapshot.sort();
    let plan = |input: &SolveInput| solve(&input.snapshot, &input.catalogs, &input.options, cancel);
    let (baseline, supposed) = (plan(&input)?, plan(&supposed)?);
    Ok(WhatIfResponse {
        baseline: Some(to_wire(&baseline, request.shared_lists)?),
        supposed: Some(to_wire(&supposed, request.shared_lists)?),
    })
}

/// Removes nodes. Their movable pods become pending; other pods are removed with them.
pub fn without_nodes(snapshot: &mut Snapshot, names: &BTreeSet<NodeName>) {
    snapshot.nodes.retain(|node| !names.contains(&node.name));
    let on_node =
        |state: &PodState| matches!(state, PodState::Bound(node) | PodState::Reserved(node) if names.contains(node));
    snapshot.pods.retain(|pod| !on_node(&pod.state) || pod.moves());
    snapshot.pods.iter_mut().filter(|pod| on_node(&pod.state)).for_each(|pod| {
        // A terminating pod stands for its replacement.
        (pod.state, pod.terminating) = (PodState::Pending, false);
    });
}

/// Adds pending copies of a pod. `numbers` distinguish the copies.
pub fn add_pods(snapshot: &mut Snapshot, template: &Pod, numbers: Range<u32>) {
    snapshot.pods.extend(numbers.map(|number| {
        let mut pod = template.clone();
        // UIDs and names of the API server contain no colon, so these cannot collide.
        pod.uid = PodUid(format!("{}:more-{number}", template.uid));
        pod.name = format!("{}:more-{number}", template.name);
        pod.state = PodState::Pending;
        pod
    }));
}

pub(super) fn with_prices(input: &mut SolveInput, change: &PriceChange, path: &str) -> Result<(), AnswerError> {
    let error = |field: &str, message: String| AnswerError::request(format!("{path}.{field}"), message);
    let factor = u64::try_from(change.factor_milli)
        .map_err(|_negative| error("factor_milli", format!("is negative: {}", change.factor_milli)))?;
    let pools = &mut input.snapshot.node_pools;
    let pool = pools
        .iter_mut()
        .find(|pool| pool.name.as_str() == change.node_pool)
        .ok_or_else(|| error("node_pool", format!("no NodePool {:?} in the snapshot", change.node_pool)))?;
    // A pool without catalog has no prices.
    let Some(mut catalog) = pool.catalog.as_ref().and_then(|id| input.catalogs.get(id)).cloned() else {
        return Ok(());
    };
    for offering in catalog.instance_types.iter_mut().flat_map(|instance_type| &mut instance_type.offerings) {
        let scaled = i128::from(offering.price.0) * i128::from(factor) / 1000;
        // Prices are capped at the model's maximum.
        offering.price = MicroUsdPerHour(i64::try_from(scaled).unwrap_or(i64::MAX).min(MAX_PRICE));
    }
    let id = catalog.id();
    pool.catalog = Some(id.clone());
    input.catalogs.insert(id, catalog);
    // The former catalog of the pool, unless another pool has it: a request may change prices many times.
    input.catalogs.retain(|id, _| input.snapshot.node_pools.iter().any(|pool| pool.catalog.as_ref() == Some(id)));
    Ok(())
}

/// Maximum price, as in the model: a million dollars per hour. Sums stay far from overflow.
const MAX_PRICE: i64 = 1_000_000_000_000;

/// Pods that the suppositions so far have added.
#[derive(Debug, Default)]
struct AddedPods {
    count: u32,
    bytes: usize,
}

fn with_pods(input: &mut SolveInput, more: &MorePods, added: &mut AddedPods, path: &str) -> Result<(), AnswerError> {
    let first = added.count;
    added.count = first.saturating_add(more.count);
    let refused = |message: String| Err(AnswerError::request(format!("{path}.count"), message));
    if added.count > MAX_ADDED_PODS {
        return refused(format!("makes {} more pods in all, more than {MAX_ADDED_PODS}", added.count));
    }
    let template = find_pod(&input.snapshot, &more.like, &format!("{path}.like"))?.clone();
    if template.terminating || !template.moves() {
        let message =
            format!("{:?} stays with its node or is being deleted: more of them are not to be placed", more.like);
        return Err(AnswerError::request(format!("{path}.like"), message));
    }
    let count = usize::try_from(more.count).unwrap_or(usize::MAX);
    added.bytes = added.bytes.saturating_add(size(&template).saturating_mul(count));
    if added.bytes > MAX_ADDED_BYTES {
        let message = format!("makes more pods of {} bytes in all, more than {MAX_ADDED_BYTES}", added.bytes);
        return refused(message);
    }
    add_pods(&mut input.snapshot, &template, first..added.count);
    Ok(())
}

/// Memory of a copy of a pod.
fn size(pod: &Pod) -> usize {
    let buffer = pod.buffer.iter().map(|it| it.buffer.len() + it.node.as_ref().map_or(0, |node| node.as_str().len()));
    let budgets = pod.pod_disruption_budgets.iter().map(|name| size_of::<String>() + name.len());
    let texts = [pod.uid.as_str(), &pod.namespace, &pod.name, &pod.shape.0];
    size_of::<Pod>() + texts.map(str::len).iter().sum::<usize>() + budgets.chain(buffer).sum::<usize>()
}
