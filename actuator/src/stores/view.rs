//! The watch cache of one kind. Objects are ordered by namespace and name, so that iteration is deterministic.

use kube::Resource;
use kube::runtime::watcher::Event;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Namespace (empty for cluster-scoped kinds) and name.
type Key = (String, String);
type Objects<K> = BTreeMap<Key, Arc<K>>;

/// The cached objects of one kind. Clones share them.
#[derive(Debug)]
pub struct CachedObjects<K> {
    objects: Arc<RwLock<Objects<K>>>,
}

impl<K> Clone for CachedObjects<K> {
    fn clone(&self) -> Self {
        Self { objects: Arc::clone(&self.objects) }
    }
}

impl<K> Default for CachedObjects<K> {
    fn default() -> Self {
        Self { objects: Arc::new(RwLock::new(Objects::new())) }
    }
}

impl<K> CachedObjects<K> {
    /// All objects, by namespace and name.
    #[must_use]
    pub fn state(&self) -> Vec<Arc<K>> {
        self.objects.read().values().map(Arc::clone).collect()
    }

    /// The first object that matches `wanted`.
    pub fn find(&self, wanted: impl Fn(&K) -> bool) -> Option<Arc<K>> {
        self.objects.read().values().find(|object| wanted(object)).map(Arc::clone)
    }

    /// The object with that name, of a cluster-scoped kind.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<K>> {
        self.objects.read().get(&(String::new(), name.to_owned())).map(Arc::clone)
    }
}

/// Applies watch events to a view.
#[derive(Debug, Default)]
pub(super) struct Writer<K> {
    view: CachedObjects<K>,
    /// An incomplete list.
    list: Objects<K>,
}

impl<K: Resource> Writer<K> {
    /// Creates a writer for a view.
    pub(super) fn new(view: CachedObjects<K>) -> Self {
        Self { view, list: Objects::new() }
    }

    /// Applies an event. A relist becomes visible in one step, at its end.
    pub(super) fn take(&mut self, event: Event<K>) {
        match event {
            Event::Init => self.list.clear(),
            Event::InitApply(object) => drop(self.list.insert(key(&object), Arc::new(object))),
            Event::InitDone => *self.view.objects.write() = std::mem::take(&mut self.list),
            Event::Apply(object) => drop(self.view.objects.write().insert(key(&object), Arc::new(object))),
            Event::Delete(object) => drop(self.view.objects.write().remove(&key(&object))),
        }
    }
}

fn key<K: Resource>(object: &K) -> Key {
    let metadata = object.meta();
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Node;

    fn node(name: &str, uid: &str) -> Node {
        let mut node = Node::default();
        node.metadata.name = Some(name.to_owned());
        node.metadata.uid = Some(uid.to_owned());
        node
    }

    fn seen(view: &CachedObjects<Node>) -> Vec<String> {
        let text = |node: &Arc<Node>| {
            format!("{}{}", node.metadata.name.as_deref().unwrap(), node.metadata.uid.as_deref().unwrap())
        };
        view.state().iter().map(text).collect()
    }

    #[test]
    fn relist_becomes_visible_in_one_step_and_objects_are_ordered() {
        let view = CachedObjects::default();
        let mut writer = Writer::new(view.clone());
        writer.take(Event::Init);
        writer.take(Event::InitApply(node("b", "1")));
        writer.take(Event::InitApply(node("a", "1")));
        assert_eq!(seen(&view), [""; 0], "half a list is none");
        writer.take(Event::InitDone);
        writer.take(Event::Apply(node("c", "1")));
        writer.take(Event::Apply(node("a", "2")));
        assert_eq!(seen(&view), ["a2", "b1", "c1"]);
        writer.take(Event::Delete(node("b", "1")));
        assert_eq!((seen(&view), view.get("b")), (vec!["a2".to_owned(), "c1".to_owned()], None));
        writer.take(Event::Init);
        writer.take(Event::InitApply(node("d", "1")));
        assert_eq!(seen(&view).len(), 2, "what was known stays until the new list is complete");
        writer.take(Event::InitDone);
        assert_eq!(seen(&view), ["d1"]);
        assert!(view.find(|node| node.metadata.uid.as_deref() == Some("1")).is_some());
    }
}
