//! Unreadable objects of a watch: they are left out of the cache, or in it with what is readable, and reported once.

use super::trim::Trim;
use super::view::{Key, key_of};
use crate::guarded::Guarded;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::runtime::watcher::Event;
use std::collections::BTreeMap;

/// What a watch event changes in the cache.
#[derive(Debug)]
pub(super) enum Change<K> {
    /// Nothing: the object is not cached.
    Nothing,
    /// The event as it is.
    Event(Event<K>),
    /// The object leaves the cache: it was deleted, or its new version is unreadable. The watcher service leaves it out
    /// too, and a former version would say what no longer holds.
    Forget(Key),
}

/// The unreadable objects of a kind, each with its error. As many as the cluster has.
#[derive(Debug, Default)]
pub(super) struct UnreadableObjects {
    known: BTreeMap<Key, String>,
    /// Those of an incomplete list.
    listed: BTreeMap<Key, String>,
}

impl UnreadableObjects {
    /// Separates what is cached from what is not. Objects of other providers are not.
    pub(super) fn sort<K: Trim>(&mut self, kind: &str, event: Event<Guarded<K>>) -> Change<K> {
        let event = match event {
            Event::Init => {
                self.listed.clear();
                Event::Init
            }
            Event::InitApply(object) => match self.cached(kind, object, true) {
                Some(object) => Event::InitApply(object),
                None => return Change::Nothing,
            },
            Event::InitDone => {
                self.known = std::mem::take(&mut self.listed);
                Event::InitDone
            }
            Event::Apply(object) => {
                let is_unreadable = object.0.is_err();
                let key = key_of(object.meta());
                match self.cached(kind, object, false) {
                    Some(object) => Event::Apply(object),
                    None if is_unreadable => return Change::Forget(key),
                    None => return Change::Nothing,
                }
            }
            Event::Delete(object) => {
                let key = key_of(object.meta());
                self.known.remove(&key);
                return Change::Forget(key);
            }
        };
        Change::Event(event)
    }

    /// The object, if it is cached. Reports it if it is unreadable.
    fn cached<K: Trim>(&mut self, kind: &str, object: Guarded<K>, is_listed: bool) -> Option<K> {
        match object.0 {
            Ok(object) if object.is_foreign() => None,
            Ok(object) => {
                match object.unreadable() {
                    Some(error) => self.report(kind, object.meta(), error, is_listed),
                    None => drop(self.known.remove(&key_of(object.meta()))),
                }
                Some(object)
            }
            Err(invalid) => {
                self.report(kind, &invalid.metadata, &invalid.error, is_listed);
                None
            }
        }
    }

    /// Whether this error of the object was not logged before.
    fn is_new(&self, key: &Key, error: &str) -> bool {
        self.known.get(key).is_none_or(|known| known != error)
    }

    /// Logs an unreadable object, unless the same error of the object was logged before.
    fn report(&mut self, kind: &str, metadata: &ObjectMeta, error: &str, is_listed: bool) {
        let key = key_of(metadata);
        if self.is_new(&key, error) {
            let (namespace, name) = (&key.0, &key.1);
            tracing::error!(
                kind,
                namespace,
                name,
                error,
                "object cannot be read, so it is left out, or counts without being managed if it is a NodeClaim"
            );
        }
        if is_listed {
            self.listed.insert(key.clone(), error.to_owned());
        }
        self.known.insert(key, error.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::view::{CachedObjects, Writer};
    use plimsoll_api::{NodeClaim, NodePool};
    use serde_json::{Value, json};

    const UNREADABLE: &str = "2562048h";

    fn spec(expires: &str) -> Value {
        let class = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
        json!({"nodeClassRef": class, "requirements": [], "expireAfter": expires})
    }

    fn pool(name: &str, expires: &str) -> Guarded<NodePool> {
        let pool = json!({"metadata": {"name": name}, "spec": {"template": {"spec": spec(expires)}}});
        serde_json::from_value(pool).unwrap()
    }

    fn claim(name: &str, expires: &str) -> Guarded<NodeClaim> {
        let status = json!({"providerID": format!("aws:///zone-a/i-{name}")});
        let claim = json!({"metadata": {"name": name}, "spec": spec(expires), "status": status});
        serde_json::from_value(claim).unwrap()
    }

    /// Applies events to a cache, whose names it returns.
    struct Watch<K> {
        unreadable: UnreadableObjects,
        writer: Writer<K>,
        view: CachedObjects<K>,
    }

    impl<K: Trim> Watch<K> {
        fn new() -> Self {
            let view = CachedObjects::default();
            Self { unreadable: UnreadableObjects::default(), writer: Writer::new(view.clone()), view }
        }

        fn take(&mut self, event: Event<Guarded<K>>) -> Vec<String> {
            match self.unreadable.sort("kind", event) {
                Change::Nothing => {}
                Change::Event(event) => self.writer.take(event),
                Change::Forget(key) => self.writer.forget(key),
            }
            self.view.state().iter().map(|object| object.meta().name.clone().unwrap()).collect()
        }

        fn list(&mut self, objects: impl IntoIterator<Item = Guarded<K>>) -> Vec<String> {
            self.take(Event::Init);
            for object in objects {
                self.take(Event::InitApply(object));
            }
            self.take(Event::InitDone)
        }
    }

    #[test]
    fn an_unreadable_pool_is_left_out_until_it_is_readable() {
        let mut watch = Watch::new();
        assert_eq!(watch.list([pool("a", "720h"), pool("b", UNREADABLE), pool("c", "720h")]), ["a", "c"]);
        assert_eq!(watch.take(Event::Apply(pool("c", UNREADABLE))), ["a"], "what it said no longer holds");
        assert_eq!(watch.unreadable.known.len(), 2);
        assert_eq!(watch.take(Event::Apply(pool("b", "720h"))), ["a", "b"]);
        assert_eq!(watch.list([pool("c", UNREADABLE), pool("b", "720h")]), ["b"]);
        assert_eq!(watch.take(Event::Delete(pool("c", UNREADABLE))), ["b"]);
        assert!(watch.unreadable.known.is_empty());
    }

    #[test]
    fn an_unreadable_claim_stays_with_its_instance() {
        let mut watch = Watch::new();
        assert_eq!(watch.list([claim("a", "720h"), claim("b", UNREADABLE)]), ["a", "b"]);
        assert_eq!(watch.view.with_provider_id("aws:///zone-a/i-b").len(), 1);
        assert_eq!(watch.take(Event::Apply(claim("a", UNREADABLE))), ["a", "b"]);
        assert_eq!(watch.view.with_provider_id("aws:///zone-a/i-a").len(), 1);
        assert_eq!(watch.take(Event::Delete(claim("b", UNREADABLE))), ["a"]);
    }

    #[test]
    fn the_same_error_is_reported_once_however_often_it_is_listed() {
        let metadata = ObjectMeta { name: Some("a".to_owned()), ..ObjectMeta::default() };
        let mut unreadable = UnreadableObjects::default();
        let list = |unreadable: &mut UnreadableObjects, error: Option<&str>| {
            unreadable.sort::<NodePool>("kind", Event::Init);
            let is_new = error.map(|error| unreadable.is_new(&key_of(&metadata), error));
            if let Some(error) = error {
                unreadable.report("kind", &metadata, error, true);
            }
            unreadable.sort::<NodePool>("kind", Event::InitDone);
            is_new
        };
        let reported = [Some("x"), Some("x"), Some("y"), None, Some("y")].map(|error| list(&mut unreadable, error));
        assert_eq!(reported, [Some(true), Some(false), Some(true), None, Some(true)]);
    }
}
