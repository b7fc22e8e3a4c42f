//! `WatchSnapshot`: clients can follow the snapshots that schedulers get.

use crate::fixture::Fixture;
use plimsoll_model::snapshot::PodState;
use plimsoll_proto::delta::Mirror;
use plimsoll_proto::watcher::v1::WatchSnapshotRequest;
use plimsoll_proto::watcher::v1::watch_snapshot_response::Message;
use plimsoll_proto::watcher::v1::watcher_service_client::WatcherServiceClient;

#[tokio::test(start_paused = true)]
async fn a_full_snapshot_is_followed_by_changes() {
    let (fixture, _watcher) = Fixture::with_watcher().await;
    let (_, channel) = fixture.network.pool("someone", &["watcher-0".to_owned()]).channel().await.unwrap();
    let mut client = WatcherServiceClient::new(channel);
    let mut stream = client.watch_snapshot(WatchSnapshotRequest { once: false }).await.unwrap().into_inner();
    let mut mirror = Mirror::default();
    let mut full = 0;
    fixture.pending_pod("web", None);
    loop {
        match stream.message().await.unwrap().unwrap().message.unwrap() {
            Message::SnapshotChunk(chunk) => full += usize::from(mirror.apply_chunk(chunk).unwrap()),
            Message::Delta(delta) => mirror.apply_delta(delta).unwrap(),
        }
        let reserved = |pod: &plimsoll_model::snapshot::Pod| matches!(pod.state, PodState::Reserved(_));
        if mirror.snapshot().is_some_and(|snapshot| snapshot.pods.iter().any(reserved)) {
            break;
        }
    }
    assert_eq!(full, 1);
    let last = fixture.schedulers[0].with(|state| state.planned.last().cloned().unwrap());
    assert_eq!(mirror.snapshot().unwrap().nodes, last.nodes, "all see the same");
}

/// Reads one snapshot of a watcher.
pub(crate) async fn read_once(fixture: &Fixture, watcher: &str) -> Mirror {
    let (_, channel) = fixture.network.pool("someone", &[watcher.to_owned()]).channel().await.unwrap();
    let mut client = WatcherServiceClient::new(channel);
    let mut stream = client.watch_snapshot(WatchSnapshotRequest { once: true }).await.unwrap().into_inner();
    let mut mirror = Mirror::default();
    while let Some(response) = stream.message().await.unwrap() {
        let Some(Message::SnapshotChunk(chunk)) = response.message else { unreachable!("only pieces") };
        mirror.apply_chunk(chunk).unwrap();
    }
    mirror
}

#[tokio::test(start_paused = true)]
async fn once_ends_after_the_first() {
    let (fixture, _watcher) = Fixture::with_watcher().await;
    let mirror = read_once(&fixture, "watcher-0").await;
    assert_eq!(mirror.snapshot().unwrap().node_pools.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_bounded_number_of_clients_follows_snapshots() {
    let (fixture, watcher) = Fixture::with_watcher().await;
    let (_, channel) = fixture.network.pool("someone", &["watcher-0".to_owned()]).channel().await.unwrap();
    let mut client = WatcherServiceClient::new(channel);
    let mut streams = Vec::new();
    for _ in 0..16 {
        streams.push(client.watch_snapshot(WatchSnapshotRequest { once: false }).await.unwrap());
    }
    let follow = |clients: usize| watcher.metrics_say(&format!("plimsoll_watcher_subscribers {clients}\n"));
    fixture.until("all follow", || follow(16)).await;
    let refused = client.watch_snapshot(WatchSnapshotRequest { once: true }).await;
    assert_eq!(refused.err().map(|status| status.code()), Some(tonic::Code::ResourceExhausted));
    streams.pop();
    fixture.until("one has left", || follow(15)).await;
    assert!(client.watch_snapshot(WatchSnapshotRequest { once: true }).await.is_ok());
}
