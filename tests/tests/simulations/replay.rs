//! A seed reproduces a run exactly, with all faults: every request and every call, in order and with its time.

use plimsoll_sim::apiserver::faults::{Effect, Matcher};
use plimsoll_sim::cloud::Effect as CloudEffect;
use plimsoll_sim::plimsoll::Role;
use plimsoll_tests::{MINUTE, Setup, TestCluster};
use std::fmt::Write as _;
use std::time::Duration;

/// A scale-up with faults everywhere, a crash of a leader, and a scale-down. Returns all requests to the API server and
/// the cloud.
async fn history(seed: u64) -> Vec<String> {
    let mut cluster = TestCluster::begin(Setup::seeded(seed)).await;
    let faults = cluster.world.server().faults();
    faults.sometimes(30, Matcher::default(), Effect::LoseAnswer);
    faults.sometimes(30, Matcher::default(), Effect::Drop);
    faults.sometimes(30, Matcher::default(), Effect::internal_error());
    faults.sometimes(50, Matcher::default(), Effect::Delay(Duration::from_millis(300)));
    cluster.world.ec2.faults(|faults| {
        faults.sometimes(80, None, CloudEffect::LoseAnswer);
        faults.sometimes(50, None, CloudEffect::Delay(Duration::from_secs(2)));
    });
    cluster.deploy("web", 9, 900);
    cluster.pass(MINUTE).await;
    if let Some(leader) = cluster.plimsoll.leader(Role::Actuator) {
        cluster.plimsoll.replace(&leader).unwrap();
    }
    cluster.pass(2 * MINUTE).await;
    cluster.scale("web", 2);
    cluster.pass(3 * MINUTE).await;
    let mut lines = Vec::new();
    for entry in cluster.world.server().audit() {
        let mut line = String::new();
        write!(line, "{} {} {:?} {}/{}", entry.at, entry.client, entry.verb, entry.resource.get().plural, entry.name)
            .unwrap();
        write!(line, " {} {}", entry.subresource, entry.code).unwrap();
        lines.push(line);
    }
    let calls = cluster.world.ec2.read(|cloud, _| cloud.log.clone());
    lines.extend(
        calls
            .iter()
            .map(|call| format!("{:?} {} {:?} {} {:?}", call.at, call.client, call.action, call.about, call.outcome)),
    );
    lines
}

#[tokio::test(start_paused = true)]
async fn a_seed_reproduces_every_request() {
    let (first, second) = (history(7).await, history(7).await);
    let differs = first.iter().zip(&second).position(|(one, other)| one != other);
    if let Some(at) = differs {
        let from = at.saturating_sub(5);
        panic!("line {at}:\n{:#?}\n{:#?}", &first[from..=at], &second[from..=at]);
    }
    assert_eq!(first.len(), second.len());
    assert!(first.len() > 500, "{} lines", first.len());
}
