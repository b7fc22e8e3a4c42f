//! Tests of watches: order, resumption, selection, streamed lists.

use super::{Check, Failure, PATIENCE, TestContext, ensure, object};
use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};
use std::pin::pin;
use tokio::time::timeout;

/// A watched change: event type, name and `data.a`.
type Seen = (&'static str, String, Option<String>);

fn seen(event: &WatchEvent<ConfigMap>) -> Option<Seen> {
    let (kind, map) = match event {
        WatchEvent::Added(map) => ("added", map),
        WatchEvent::Modified(map) => ("modified", map),
        WatchEvent::Deleted(map) => ("deleted", map),
        WatchEvent::Bookmark(_) | WatchEvent::Error(_) => return None,
    };
    Some((kind, map.name_any(), map.data.as_ref().and_then(|data| data.get("a").cloned())))
}

/// Collects the next `count` changes without bookmarks.
async fn take(stream: impl Stream<Item = kube::Result<WatchEvent<ConfigMap>>>, count: usize) -> Check<Vec<Seen>> {
    let mut stream = pin!(stream);
    let mut all = Vec::new();
    while all.len() < count {
        let event = timeout(PATIENCE, stream.try_next())
            .await
            .map_err(|_| Failure(format!("the watch fell silent after {all:?}")))??;
        let event = event.ok_or_else(|| Failure(format!("the watch ended after {all:?}")))?;
        if let WatchEvent::Error(status) = &event {
            return Err(Failure(format!("{status:?}")));
        }
        all.extend(seen(&event));
    }
    Ok(all)
}

async fn labelled(context: &TestContext, name: &str, test: &str, a: &str) -> Check<ConfigMap> {
    let map: ConfigMap = object(json!({"metadata": {"name": name, "labels": {"test": test}}, "data": {"a": a}}))?;
    Ok(context.api().create(&PostParams::default(), &map).await?)
}

async fn patch(context: &TestContext, name: &str, patch: &Value) -> Check<ConfigMap> {
    Ok(context.api().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?)
}

fn change(kind: &'static str, name: &str, a: &str) -> Seen {
    (kind, name.to_owned(), Some(a.to_owned()))
}

pub(super) async fn follows_from_a_list(context: &TestContext) -> Check {
    let maps: Api<ConfigMap> = context.api();
    labelled(context, "follow-old", "follow", "0").await?;
    let version =
        maps.list(&ListParams::default().labels("test=follow")).await?.metadata.resource_version.unwrap_or_default();
    let stream = maps.watch(&WatchParams::default().labels("test=follow"), &version).await?;
    labelled(context, "follow-new", "follow", "1").await?;
    patch(context, "follow-new", &json!({"data": {"a": "2"}})).await?;
    patch(context, "follow-old", &json!({"data": {"a": "3"}})).await?;
    maps.delete("follow-new", &DeleteParams::default()).await?;
    let all = take(stream, 4).await?;
    let expected = [
        change("added", "follow-new", "1"),
        change("modified", "follow-new", "2"),
        change("modified", "follow-old", "3"),
        change("deleted", "follow-new", "2"),
    ];
    ensure!(all == expected, "{all:?}");
    Ok(())
}

pub(super) async fn resumes_where_it_was_cut(context: &TestContext) -> Check {
    let maps: Api<ConfigMap> = context.api();
    labelled(context, "resume", "resume", "1").await?;
    let middle = patch(context, "resume", &json!({"data": {"a": "2"}})).await?;
    patch(context, "resume", &json!({"data": {"a": "3"}})).await?;
    patch(context, "resume", &json!({"data": {"a": "4"}})).await?;
    let version = middle.resource_version().unwrap_or_default();
    let stream = maps.watch(&WatchParams::default().labels("test=resume"), &version).await?;
    let all = take(stream, 2).await?;
    ensure!(all == [change("modified", "resume", "3"), change("modified", "resume", "4")], "{all:?}");
    Ok(())
}

pub(super) async fn shows_what_enters_and_leaves_a_selection(context: &TestContext) -> Check {
    let maps: Api<ConfigMap> = context.api();
    let version = labelled(context, "enter", "out", "1").await?.resource_version().unwrap_or_default();
    let stream = maps.watch(&WatchParams::default().labels("test=in"), &version).await?;
    patch(context, "enter", &json!({"metadata": {"labels": {"test": "in"}}, "data": {"a": "2"}})).await?;
    patch(context, "enter", &json!({"data": {"a": "3"}})).await?;
    patch(context, "enter", &json!({"metadata": {"labels": {"test": "out"}}, "data": {"a": "4"}})).await?;
    let all = take(stream, 3).await?;
    // An object that leaves the selection is reported in its last selected state.
    let expected = [change("added", "enter", "2"), change("modified", "enter", "3"), change("deleted", "enter", "3")];
    ensure!(all == expected, "{all:?}");
    Ok(())
}

pub(super) async fn streams_a_list(context: &TestContext) -> Check {
    let maps: Api<ConfigMap> = context.api();
    labelled(context, "stream-a", "stream", "1").await?;
    labelled(context, "stream-b", "stream", "1").await?;
    let parameters = WatchParams::streaming_lists().labels("test=stream");
    let mut stream = pin!(maps.watch(&parameters, "0").await?);
    let mut names = Vec::new();
    let version = loop {
        let event =
            timeout(PATIENCE, stream.try_next()).await??.ok_or_else(|| Failure("the watch ended".to_owned()))?;
        match event {
            WatchEvent::Added(map) => names.push(map.name_any()),
            WatchEvent::Bookmark(bookmark) => {
                let ends = bookmark.metadata.annotations.get("k8s.io/initial-events-end");
                ensure!(ends.is_some_and(|value| value == "true"), "a bookmark in the middle of the list");
                break bookmark.metadata.resource_version;
            }
            other => ensure!(false, "{other:?} in a streamed list"),
        }
    };
    names.sort();
    ensure!(names == ["stream-a", "stream-b"], "{names:?}");
    labelled(context, "stream-c", "stream", "1").await?;
    let all = take(stream, 1).await?;
    ensure!(all == [change("added", "stream-c", "1")], "{all:?}");
    // A watch can resume from the bookmark.
    let resumed = maps.watch(&WatchParams::default().labels("test=stream"), &version).await?;
    let all = take(resumed, 1).await?;
    ensure!(all == [change("added", "stream-c", "1")], "{all:?}");
    Ok(())
}

pub(super) async fn feeds_the_watcher_of_kube(context: &TestContext) -> Check {
    let maps: Api<ConfigMap> = context.api();
    labelled(context, "kube-a", "kube", "1").await?;
    let plain = watcher::Config::default().labels("test=kube").page_size(1);
    for (config, late) in [(plain.clone(), "kube-b"), (plain.streaming_lists(), "kube-c")] {
        let mut stream = pin!(watcher(maps.clone(), config).applied_objects());
        let first = timeout(PATIENCE, stream.try_next()).await??;
        ensure!(first.is_some_and(|map| map.name_any() == "kube-a"), "the list does not begin with what is there");
        labelled(context, late, "kube", "2").await?;
        let found = async {
            while let Some(map) = stream.next().await {
                if map?.name_any() == late {
                    return Ok(());
                }
            }
            Err(Failure("the watcher ended".to_owned()))
        };
        timeout(PATIENCE, found).await??;
    }
    Ok(())
}
