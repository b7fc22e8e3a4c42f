use super::faults::{Effect, Gate, Matcher, Partition};
use super::request::Verb;
use super::store::Store;
use super::{ApiServer, ResourceId};
use crate::clock;
use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, ObjectMeta, PostParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt};
use std::pin::pin;
use std::time::Duration;
use tokio::time::{Instant, timeout};

fn server() -> ApiServer {
    ApiServer::new(7, clock::usual())
}

fn maps(client: Client) -> Api<ConfigMap> {
    Api::default_namespaced(client)
}

async fn create(maps: &Api<ConfigMap>, name: &str) -> kube::Result<ConfigMap> {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    maps.create(&PostParams::default(), &ConfigMap { metadata, ..ConfigMap::default() }).await
}

async fn exists(maps: &Api<ConfigMap>, name: &str) -> bool {
    maps.get_opt(name).await.unwrap().is_some()
}

async fn next_name(stream: impl Stream<Item = kube::Result<WatchEvent<ConfigMap>>>) -> String {
    let mut stream = pin!(stream);
    loop {
        match stream.try_next().await.unwrap().unwrap() {
            WatchEvent::Added(map) => return map.name_any(),
            WatchEvent::Bookmark(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_request_does_nothing_and_a_lost_answer_does_all() {
    let server = server();
    let (mine, other) = (maps(server.client("mine")), maps(server.client("other")));
    server.faults().next(1, Matcher::client("mine"), Effect::Drop);
    assert!(matches!(create(&mine, "dropped").await, Err(kube::Error::Service(_))));
    assert!(!exists(&other, "dropped").await);
    server.faults().next(1, Matcher::of(Verb::Create, "configmaps"), Effect::LoseAnswer);
    assert!(matches!(create(&mine, "lost").await, Err(kube::Error::Service(_))));
    assert!(exists(&other, "lost").await);
    // Both rules are used up.
    create(&mine, "dropped").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refusal_looks_as_the_servers_own() {
    let server = server();
    let maps = maps(server.client("mine"));
    let rule = server.faults().always(Matcher::default(), Effect::throttle(3));
    match maps.list(&ListParams::default()).await {
        Err(kube::Error::Api(status)) => {
            assert_eq!((status.code, status.reason.as_str()), (429, "TooManyRequests"));
            assert_eq!(status.details.unwrap().retry_after_seconds, 3);
        }
        other => panic!("{other:?}"),
    }
    server.faults().remove(rule);
    maps.list(&ListParams::default()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_delay_takes_virtual_time() {
    let server = server();
    let maps = maps(server.client("mine"));
    server.faults().next(1, Matcher::default(), Effect::Delay(Duration::from_secs(7)));
    let start = Instant::now();
    maps.list(&ListParams::default()).await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_list_whose_answer_is_delayed_is_old() {
    let server = server();
    let (mine, other) = (maps(server.client("mine")), maps(server.client("other")));
    let lists = Matcher { verb: Some(Verb::List), ..Matcher::client("mine") };
    server.faults().always(lists, Effect::DelayAnswer(Duration::from_secs(7)));
    create(&other, "first").await.unwrap();
    let start = Instant::now();
    let all = ListParams::default();
    let (listed, created) = tokio::join!(mine.list(&all), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        create(&other, "second").await
    });
    created.unwrap();
    let names: Vec<String> = listed.unwrap().iter().map(ResourceExt::name_any).collect();
    assert_eq!((names, start.elapsed().as_secs()), (vec!["first".to_owned()], 7));
}

#[tokio::test(start_paused = true)]
async fn a_gate_holds_a_request_before_or_after_it_happens() {
    let server = server();
    let (mine, other) = (maps(server.client("mine")), maps(server.client("other")));
    for (name, happened) in [("before", false), ("after", true)] {
        let gate = Gate::default();
        let effect = if happened { Effect::HoldAfter(gate.clone()) } else { Effect::HoldBefore(gate.clone()) };
        server.faults().next(
            1,
            Matcher { name: Some(name.to_owned()), ..Matcher::of(Verb::Create, "configmaps") },
            effect,
        );
        let held = tokio::spawn({
            let mine = mine.clone();
            async move { create(&mine, name).await }
        });
        gate.reached(1).await;
        assert_eq!(exists(&other, name).await, happened, "{name}");
        gate.open();
        held.await.unwrap().unwrap();
        assert!(exists(&other, name).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_client_fails_and_its_watches_break_while_others_go_on() {
    let server = server();
    let (mine, other) = (maps(server.client("mine")), maps(server.client("other")));
    let mut broken = pin!(mine.watch(&WatchParams::default(), "0").await.unwrap());
    let whole = other.watch(&WatchParams::default(), "0").await.unwrap();
    server.faults().partition("mine", Partition::Refused);
    assert!(broken.next().await.unwrap().is_err());
    assert!(mine.list(&ListParams::default()).await.is_err());
    create(&other, "a").await.unwrap();
    assert_eq!(next_name(whole).await, "a");
    server.faults().heal("mine");
    mine.list(&ListParams::default()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_silent_client_hangs_and_misses_nothing() {
    let server = server();
    let (mine, other) = (maps(server.client("mine")), maps(server.client("other")));
    let mut stream = pin!(mine.watch(&WatchParams::default(), "0").await.unwrap());
    server.faults().partition("mine", Partition::Silent);
    create(&other, "a").await.unwrap();
    let hung = timeout(Duration::from_secs(3600), stream.next()).await;
    assert!(hung.is_err(), "a silent watch sent an event");
    assert!(timeout(Duration::from_secs(60), mine.list(&ListParams::default())).await.is_err());
    server.faults().heal("mine");
    assert_eq!(next_name(stream).await, "a");
}

#[tokio::test(start_paused = true)]
async fn cut_watches_break_once() {
    let server = server();
    let maps = maps(server.client("mine"));
    let mut first = pin!(maps.watch(&WatchParams::default(), "0").await.unwrap());
    server.faults().cut_watches(["mine"]);
    assert!(first.next().await.unwrap().is_err());
    let again = maps.watch(&WatchParams::default(), "0").await.unwrap();
    create(&maps, "a").await.unwrap();
    assert_eq!(next_name(again).await, "a");
}

#[tokio::test(start_paused = true)]
async fn a_late_watch_is_late_by_that_much() {
    let server = server();
    let maps = maps(server.client("mine"));
    server.faults().lag_watches("mine", Duration::from_secs(5));
    let stream = maps.watch(&WatchParams::default(), "0").await.unwrap();
    create(&maps, "a").await.unwrap();
    let start = Instant::now();
    assert_eq!(next_name(stream).await, "a");
    assert_eq!(start.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn an_event_is_not_later_if_its_watch_is_opened_again() {
    let server = server();
    let maps = maps(server.client("mine"));
    let version = create(&maps, "a").await.unwrap().resource_version().unwrap();
    server.faults().lag_watches("mine", Duration::from_secs(20));
    create(&maps, "b").await.unwrap();
    let start = Instant::now();
    let first = maps.watch(&WatchParams::default(), &version).await.unwrap();
    assert!(timeout(Duration::from_secs(15), next_name(first)).await.is_err());
    let again = maps.watch(&WatchParams::default(), &version).await.unwrap();
    assert_eq!(next_name(again).await, "b");
    assert_eq!(start.elapsed().as_secs(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_forgotten_version_ends_with_gone() {
    let server = server();
    let maps = maps(server.client("mine"));
    server.write(|store| store.set_history_limit(1));
    let old = create(&maps, "a").await.unwrap().resource_version().unwrap();
    for name in ["b", "c"] {
        create(&maps, name).await.unwrap();
    }
    let mut stream = pin!(maps.watch(&WatchParams::default(), &old).await.unwrap());
    match stream.next().await.unwrap().unwrap() {
        WatchEvent::Error(status) => assert_eq!((status.code, status.reason.as_str()), (410, "Expired")),
        other => panic!("{other:?}"),
    }
    assert!(stream.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_idle_watch_gets_bookmarks_and_ends_in_time() {
    let server = server();
    let maps = maps(server.client("mine"));
    let version = create(&maps, "a").await.unwrap().resource_version().unwrap();
    let start = Instant::now();
    let stream = maps.watch(&WatchParams::default().timeout(150), &version).await.unwrap();
    let events: Vec<_> = stream.map(Result::unwrap).collect().await;
    // Bookmarks at 60 s, 120 s, and at the end after 150 s.
    assert_eq!(start.elapsed().as_secs(), 150);
    assert_eq!(events.len(), 3);
    for event in events {
        match event {
            WatchEvent::Bookmark(bookmark) => assert_eq!(bookmark.metadata.resource_version, version),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_audit_says_who_did_what() {
    let server = server();
    let maps = maps(server.client("mine"));
    create(&maps, "a").await.unwrap();
    create(&maps, "a").await.unwrap_err();
    maps.get("b").await.unwrap_err();
    let seen: Vec<_> = server
        .audit()
        .into_iter()
        .map(|entry| (entry.client, entry.verb, entry.resource, entry.name, entry.code))
        .collect();
    let entry = |verb, name: &str, code| ("mine".to_owned(), verb, ResourceId::CONFIG_MAPS, name.to_owned(), code);
    assert_eq!(seen, [entry(Verb::Create, "a", 201), entry(Verb::Create, "a", 409), entry(Verb::Get, "b", 404)]);
    // Only the first request changed something.
    let (since, count) = server.audit_since(1, |entry| entry.verb == Verb::Create);
    assert_eq!((since.len(), count), (1, 3));
    let revisions: Vec<_> = server.audit().into_iter().map(|entry| entry.revision).collect();
    assert_eq!(revisions, [Some(server.read(Store::revision)), None, None]);
}

#[tokio::test(start_paused = true)]
async fn it_says_what_it_is() {
    let client = server().client("mine");
    assert_eq!(client.apiserver_version().await.unwrap().minor, "36");
    let groups: Vec<_> = client.list_api_groups().await.unwrap().groups.into_iter().map(|group| group.name).collect();
    assert!(groups.contains(&"karpenter.sh".to_owned()) && groups.contains(&"apps".to_owned()), "{groups:?}");
    let pools = client.list_api_group_resources("karpenter.sh/v1").await.unwrap();
    assert!(pools.resources.iter().any(|resource| resource.name == "nodeclaims/status"), "{pools:?}");
    let kind = kube::core::GroupVersionKind::gvk("karpenter.sh", "v1alpha1", "NodeOverlay");
    let (found, _) = kube::discovery::pinned_kind(&client, &kind).await.unwrap();
    assert_eq!(found.plural, "nodeoverlays");
}
