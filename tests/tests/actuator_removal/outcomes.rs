//! How removals end, as the watcher sees it.

use crate::{has_command, of_node, wanted};
use plimsoll_model::execution::{OutcomeReason, OutcomeStatus};
use plimsoll_model::plan::Termination;
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_sim::apiserver::error::ApiError;
use plimsoll_sim::apiserver::faults::{Effect, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_tests::director::Director;
use plimsoll_tests::{MINUTE, Setup};
use serde_json::json;

fn of_empty(node: &str) -> Termination {
    Termination { reason: DisruptionReason::Empty, ..of_node("r-1", node) }
}

#[tokio::test(start_paused = true)]
async fn a_removal_ends_with_its_node() {
    let director = Director::begin(Setup::default()).await;
    let (claim, node) = director.node(&wanted("a-1")).await;
    let plan = director.plan(&[], vec![of_empty(&node)]).await;
    let outcome = director.final_outcome(plan).await;
    assert_eq!((outcome.status, outcome.reason), (OutcomeStatus::Removed, None), "{outcome:?}");
    assert_eq!(outcome.node_claim, Some(claim));
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_is_undone_has_failed() {
    let director = Director::begin(Setup::default()).await;
    let (claim, node) = director.node(&wanted("a-1")).await;
    let taint = Matcher::of(Verb::Patch, "nodes");
    let rule = director.world.server().faults().always(taint, Effect::internal_error());
    let plan = director.plan(&[], vec![of_empty(&node)]).await;
    let pod_comes = async {
        director.until("the command is written", MINUTE, |world| has_command(world, &claim)).await;
        director.world.deploy("web", 1, &json!({"cpu": "100m"}), &json!({})).unwrap();
        director.until("the pod runs", MINUTE, |world| world.running_pods() == 1).await;
        director.world.server().faults().remove(rule);
    };
    let (outcome, ()) = tokio::join!(director.final_outcome(plan), pod_comes);
    let expected = (OutcomeStatus::Failed, Some(OutcomeReason::NodeChanged));
    assert_eq!((outcome.status, outcome.reason), expected, "{outcome:?}");
    assert_eq!(outcome.node_claim, Some(claim.clone()));
}

/// Nothing was written, so the removal counts towards no budget.
#[tokio::test(start_paused = true)]
async fn a_removal_whose_command_is_refused_is_rejected() {
    let spec = json!({"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "1"}]}});
    let director = Director::begin(Setup::with_pool(spec)).await;
    let (claim, first) = director.node(&wanted("a-1")).await;
    let (_, second) = director.node(&wanted("a-2")).await;
    let command =
        Matcher { subresource: Some(""), name: Some(claim.clone()), ..Matcher::of(Verb::Patch, "nodeclaims") };
    let denied = Effect::Refuse(ApiError::new(403, "Forbidden", "a policy denies it"));
    director.world.server().faults().next(1, command, denied);
    let outcome = director.remove("r-1", &first, DisruptionReason::Empty, None).await;
    let expected = (OutcomeStatus::Rejected, Some(OutcomeReason::ClusterRefused));
    assert_eq!((outcome.status, outcome.reason), expected, "{outcome:?}");
    let outcome = director.remove("r-2", &second, DisruptionReason::Empty, None).await;
    assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
    assert!(!has_command(&director.world, &claim));
}
