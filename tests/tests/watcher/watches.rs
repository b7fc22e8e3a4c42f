//! Watches of an API server that fails.

use crate::fixture::Fixture;
use plimsoll_sim::apiserver::faults::{Effect, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_again_and_again_is_asked_for_with_growing_pauses() {
    let fixture = Fixture::new();
    let rule = fixture.server.faults().always(Matcher::of(Verb::List, "daemonsets"), Effect::internal_error());
    let watcher = fixture.watcher("watcher-0", &["actuator-0"]);
    fixture.pass(60).await;
    // The pauses double from 0.1 s on: the seventh attempt is after 6.3 s, then there is one every 5 s.
    let errors = |count: u32| format!("plimsoll_watcher_watch_errors_total{{kind=\"daemonsets\"}} {count}\n");
    assert!((15..=18).any(|count| watcher.metrics_say(&errors(count))), "{}", watcher.metrics.encode().unwrap());
    fixture.server.faults().remove(rule);
    let took = fixture.until("it is ready", || watcher.readiness.is_ready()).await;
    assert!(took < Duration::from_secs(6), "{took:?}");
}
