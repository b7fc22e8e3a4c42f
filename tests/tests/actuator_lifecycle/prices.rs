//! Prices of claims that have none recorded.

use plimsoll_model::names::annotation;
use plimsoll_sim::apiserver::faults::{Effect, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::{ApiError, ResourceId, object};
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, wanted};
use plimsoll_tests::{MINUTE, Setup};
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn a_claim_that_cannot_be_written_keeps_no_other_from_its_price() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let mut claims = [watcher.node(&wanted("a-1")).await.0, watcher.node(&wanted("a-2")).await.0];
    // They are written in this order.
    claims.sort();
    let [refused, other] = claims;
    let matcher =
        Matcher { subresource: Some(""), name: Some(refused.clone()), ..Matcher::of(Verb::Patch, "nodeclaims") };
    let denied = Effect::Refuse(ApiError::new(403, "Forbidden", "a policy denies it"));
    watcher.world.server().faults().always(matcher, denied);
    for claim in [&refused, &other] {
        let none = json!({"metadata": {"annotations": {annotation::USD_PER_HOUR: null}}});
        watcher.world.patch(ResourceId::NODE_CLAIMS, claim, none).unwrap();
    }
    let has_price = |world: &World, claim: &str| {
        let claim = world.get(ResourceId::NODE_CLAIMS, claim).unwrap();
        !object::text(&claim, &["metadata", "annotations", annotation::USD_PER_HOUR]).is_empty()
    };
    assert!(!has_price(&watcher.world, &other));
    watcher.until("the other claim has its price", MINUTE, |world| has_price(world, &other)).await;
    assert!(!has_price(&watcher.world, &refused));
}
