//! The plan as things are, and as they would be.

use super::AnswerError;
use super::explain::{find_node, find_pod};
use super::question::Question;
use crate::solve::solve;
use plimsoll_model::identity::{NodeName, PodUid};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::snapshot::PodState;
use plimsoll_proto::scheduler::v1::{MorePods, PriceChange, WhatIfRequest, WhatIfResponse, supposition::Change};
use plimsoll_solver::Cancel;

/// Pods that may be supposed in one request: as many as a large cluster has.
pub(crate) const MAX_MORE_PODS: u32 = 100_000;

/// Suppositions in one request; each may copy a catalog.
pub(crate) const MAX_SUPPOSITIONS: usize = 100;

pub(crate) fn what_if_of(request: WhatIfRequest, cancel: &Cancel) -> Result<WhatIfResponse, AnswerError> {
    let question = Question::new(request.snapshot, request.catalogs, request.options)?;
    let count = request.suppositions.len();
    if count == 0 {
        return Err(AnswerError::request("suppositions", "is empty"));
    }
    if count > MAX_SUPPOSITIONS {
        return Err(AnswerError::request("suppositions", format!("{count} of them, more than {MAX_SUPPOSITIONS}")));
    }
    let mut supposed = question.clone();
    let mut more = 0_u32;
    for (index, supposition) in request.suppositions.into_iter().enumerate() {
        let path = format!("suppositions[{index}]");
        match supposition.change {
            None => return Err(AnswerError::request(format!("{path}.change"), "is not set")),
            Some(Change::NodeGone(name)) => without_node(&mut supposed, &name, &format!("{path}.node_gone"))?,
            Some(Change::PriceChange(change)) => with_prices(&mut supposed, &change, &format!("{path}.price_change"))?,
            Some(Change::MorePods(pods)) => {
                let path = format!("{path}.more_pods");
                let first = more;
                more = more.saturating_add(pods.count);
                if more > MAX_MORE_PODS {
                    let message = format!("makes {more} more pods in all, more than {MAX_MORE_PODS}");
                    return Err(AnswerError::request(format!("{path}.count"), message));
                }
                with_pods(&mut supposed, &pods, first, &path)?;
            }
        }
    }
    supposed.snapshot.sort();
    let plan = |question: &Question| solve(&question.snapshot, &question.catalogs, &question.options, cancel);
    let (baseline, supposed) = (plan(&question)?, plan(&supposed)?);
    Ok(WhatIfResponse { baseline: Some((&baseline).into()), supposed: Some((&supposed).into()) })
}

/// Its pods are to be placed again; those that stay with their node are gone with it.
fn without_node(question: &mut Question, name: &str, path: &str) -> Result<(), AnswerError> {
    find_node(&question.snapshot, name, path)?;
    let name = NodeName::from(name);
    let snapshot = &mut question.snapshot;
    snapshot.nodes.retain(|node| node.name != name);
    let there = |state: &PodState| matches!(state, PodState::Bound(node) | PodState::Reserved(node) if *node == name);
    snapshot.pods.retain(|pod| !there(&pod.state) || pod.moves());
    snapshot.pods.iter_mut().filter(|pod| there(&pod.state)).for_each(|pod| {
        // Of one that is being deleted, the pod that follows it.
        (pod.state, pod.terminating) = (PodState::Pending, false);
    });
    Ok(())
}

fn with_prices(question: &mut Question, change: &PriceChange, path: &str) -> Result<(), AnswerError> {
    let error = |field: &str, message: String| AnswerError::request(format!("{path}.{field}"), message);
    let factor = u64::try_from(change.factor_milli)
        .map_err(|_negative| error("factor_milli", format!("is negative: {}", change.factor_milli)))?;
    let pools = &mut question.snapshot.node_pools;
    let pool = pools
        .iter_mut()
        .find(|pool| pool.name.as_str() == change.node_pool)
        .ok_or_else(|| error("node_pool", format!("no NodePool {:?} in the snapshot", change.node_pool)))?;
    // A pool that can buy nothing has no prices.
    let Some(mut catalog) = pool.catalog.as_ref().and_then(|id| question.catalogs.get(id)).cloned() else {
        return Ok(());
    };
    for offering in catalog.instance_types.iter_mut().flat_map(|one| &mut one.offerings) {
        let scaled = i128::from(offering.price.0) * i128::from(factor) / 1000;
        // No price is larger than the model's largest.
        offering.price = MicroUsdPerHour(i64::try_from(scaled).unwrap_or(i64::MAX).min(MAX_PRICE));
    }
    let id = catalog.id();
    pool.catalog = Some(id.clone());
    question.catalogs.insert(id, catalog);
    Ok(())
}

/// A million dollars an hour, beyond which the model takes no price either: sums stay far from overflow.
const MAX_PRICE: i64 = 1_000_000_000_000;

fn with_pods(question: &mut Question, more: &MorePods, first: u32, path: &str) -> Result<(), AnswerError> {
    let like = find_pod(&question.snapshot, &more.like, &format!("{path}.like"))?.clone();
    if like.terminating || !like.moves() {
        let message =
            format!("{:?} stays with its node or is being deleted: more of them are not to be placed", more.like);
        return Err(AnswerError::request(format!("{path}.like"), message));
    }
    question.snapshot.pods.extend((first..first.saturating_add(more.count)).map(|number| {
        let mut pod = like.clone();
        // No UID or name of the API server has a colon.
        pod.uid = PodUid(format!("{}:more-{number}", like.uid));
        pod.name = format!("{}:more-{number}", like.name);
        pod.state = PodState::Pending;
        pod
    }));
    Ok(())
}
