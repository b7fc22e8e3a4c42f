//! The watch cache of one kind. Objects are ordered by namespace and name, so that iteration is deterministic. Indices
//! and a log of changes serve controllers that must not read all objects of a large cluster at each change.

use super::index::Indexed;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::Event;
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

/// Namespace (empty for cluster-scoped kinds) and name. Shared, because indices and log contain it too.
pub(crate) type Key = Arc<(String, String)>;
type Objects<K> = BTreeMap<Key, Arc<K>>;

/// Changes remembered: a reader that is further behind reads all objects, which costs about as much.
const LOG: usize = 10_000;

/// The objects of one kind, with indices.
#[derive(Debug)]
struct Cache<K> {
    objects: Objects<K>,
    /// Keys of the objects by the value of [`Indexed::group`].
    groups: BTreeMap<String, BTreeSet<Key>>,
    /// Keys by the hash of [`Indexed::unique`]. With a copy of the value it would take 70 bytes more per pod.
    unique: BTreeSet<(u64, Key)>,
    /// The last changes, the oldest first: the object, and its group before.
    log: VecDeque<(Key, Option<String>)>,
    /// Number of changes before the log.
    before: u64,
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        let (objects, groups, unique) = (Objects::new(), BTreeMap::new(), BTreeSet::new());
        Self { objects, groups, unique, log: VecDeque::new(), before: 0 }
    }
}

impl<K: Indexed> Cache<K> {
    /// Inserts or replaces an object. Returns its group before.
    fn insert(&mut self, object: Arc<K>) -> Option<String> {
        let key = key(&*object);
        let previous_group = self.forget(&key);
        if let Some(group) = object.group() {
            self.groups.entry(group.to_owned()).or_default().insert(key.clone());
        }
        if let Some(unique) = object.unique() {
            self.unique.insert((hash(unique), key.clone()));
        }
        self.objects.insert(key, object);
        previous_group
    }

    /// The cached version of `object`, if it is the same version.
    fn same(&self, object: &K) -> Option<Arc<K>> {
        let wanted = version(object)?;
        self.objects.get(&key(object)).filter(|cached| version(&***cached) == Some(wanted)).map(Arc::clone)
    }

    /// Changes after `cursor`, which is advanced; `None` if not all of them are known.
    fn read(&self, cursor: &mut Cursor) -> Option<impl Iterator<Item = &(Key, Option<String>)>> {
        let end = self.before + self.log.len() as u64;
        let read = cursor.0.replace(end)?.checked_sub(self.before)?;
        Some(self.log.iter().skip(usize::try_from(read).ok()?))
    }

    /// Removes an object from the cache. Returns its group.
    fn forget(&mut self, key: &Key) -> Option<String> {
        let previous = self.objects.remove(key)?;
        let group = previous.group().map(str::to_owned);
        if let Some(group) = &group
            && let Some(keys) = self.groups.get_mut(group)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.groups.remove(group);
            }
        }
        if let Some(unique) = previous.unique() {
            self.unique.remove(&(hash(unique), key.clone()));
        }
        group
    }

    /// The object with this unique value.
    fn unique(&self, value: &str) -> Option<&Arc<K>> {
        let hash = hash(value);
        let same_hash = self.unique.range((hash, Key::default())..).take_while(|(other, _)| *other == hash);
        let mut objects = same_hash.filter_map(|(_, key)| self.objects.get(key));
        objects.find(|object| object.unique() == Some(value))
    }

    fn record(&mut self, key: Key, previous_group: Option<String>) {
        self.log.push_back((key, previous_group));
        if self.log.len() > LOG {
            self.log.pop_front();
            self.before += 1;
        }
    }
}

/// The cached objects of one kind. Clones share them.
#[derive(Debug)]
pub struct CachedObjects<K> {
    cache: Arc<RwLock<Cache<K>>>,
}

impl<K> Clone for CachedObjects<K> {
    fn clone(&self) -> Self {
        Self { cache: Arc::clone(&self.cache) }
    }
}

impl<K> Default for CachedObjects<K> {
    fn default() -> Self {
        Self { cache: Arc::default() }
    }
}

/// How far a reader has read the changes of a kind. The default has read nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cursor(Option<u64>);

/// Changes of a kind since a reader's last look.
#[derive(Debug)]
pub enum Delta<K> {
    /// All objects: the reader has read nothing yet, is too far behind, or the kind was listed again.
    All(Vec<Arc<K>>),
    /// Changed objects by name, `None` if deleted.
    Changed(Vec<(Key, Option<Arc<K>>)>),
}

impl<K> CachedObjects<K> {
    /// All objects, by namespace and name.
    #[must_use]
    pub fn state(&self) -> Vec<Arc<K>> {
        self.cache.read().objects.values().map(Arc::clone).collect()
    }

    /// The object with that name, of a cluster-scoped kind.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<K>> {
        self.cache.read().objects.get(&(String::new(), name.to_owned())).map(Arc::clone)
    }

    /// The changes since `cursor`, which is advanced. Each object is there once, in its current state.
    pub fn changes(&self, cursor: &mut Cursor) -> Delta<K>
    where
        K: Indexed,
    {
        let cache = self.cache.read();
        let Some(read) = cache.read(cursor) else {
            return Delta::All(cache.objects.values().map(Arc::clone).collect());
        };
        let keys: BTreeSet<&Key> = read.map(|(key, _)| key).collect();
        Delta::Changed(keys.into_iter().map(|key| (Arc::clone(key), cache.objects.get(key).map(Arc::clone))).collect())
    }

    /// Groups with objects that changed, came or left since `cursor`, which is advanced; `None` for all groups.
    pub(super) fn changed_groups(&self, cursor: &mut Cursor) -> Option<BTreeSet<String>>
    where
        K: Indexed,
    {
        let cache = self.cache.read();
        let mut changed = BTreeSet::new();
        for (key, previous) in cache.read(cursor)? {
            changed.extend(previous.clone());
            changed.extend(cache.objects.get(key).and_then(|object| object.group()).map(str::to_owned));
        }
        Some(changed)
    }

    /// The objects of a group, by namespace and name: see [`Indexed`].
    pub(super) fn group(&self, group: &str) -> Vec<Arc<K>> {
        let cache = self.cache.read();
        let keys = cache.groups.get(group).into_iter().flatten();
        keys.filter_map(|key| cache.objects.get(key).map(Arc::clone)).collect()
    }

    /// All groups.
    pub(super) fn groups(&self) -> BTreeSet<String> {
        self.cache.read().groups.keys().cloned().collect()
    }

    /// The object with this unique value: see [`Indexed`].
    pub(super) fn unique(&self, value: &str) -> Option<Arc<K>>
    where
        K: Indexed,
    {
        self.cache.read().unique(value).map(Arc::clone)
    }
}

/// Applies watch events to a view.
#[derive(Debug)]
pub(super) struct Writer<K> {
    view: CachedObjects<K>,
    /// An incomplete list.
    list: Cache<K>,
}

impl<K: Indexed> Writer<K> {
    /// Creates a writer for a view.
    pub(super) fn new(view: CachedObjects<K>) -> Self {
        Self { view, list: Cache::default() }
    }

    /// Applies an event. A relist becomes visible in one step, at its end.
    pub(super) fn take(&mut self, event: Event<K>) {
        match event {
            Event::Init => self.list = Cache::default(),
            // A list of a large cluster would otherwise double the memory of the cache.
            Event::InitApply(object) => {
                let cached = self.view.cache.read().same(&object);
                drop(self.list.insert(cached.unwrap_or_else(|| Arc::new(object))));
            }
            Event::InitDone => {
                let mut cache = self.view.cache.write();
                // No reader has read as far as this, so each reads all objects.
                self.list.before = cache.before + cache.log.len() as u64 + 1;
                *cache = std::mem::take(&mut self.list);
            }
            Event::Apply(object) => {
                let (key, mut cache) = (key(&object), self.view.cache.write());
                let previous_group = cache.insert(Arc::new(object));
                cache.record(key, previous_group);
            }
            Event::Delete(object) => self.forget(key(&object)),
        }
    }

    /// Removes an object.
    pub(super) fn forget(&mut self, key: Key) {
        let mut cache = self.view.cache.write();
        let previous_group = cache.forget(&key);
        cache.record(key, previous_group);
    }
}

fn key<K: Indexed>(object: &K) -> Key {
    key_of(object.meta())
}

/// The key of the object with this metadata.
pub(super) fn key_of(metadata: &ObjectMeta) -> Key {
    Arc::new((metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default()))
}

fn hash(value: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// UID and resourceVersion, which together name one state of one object.
fn version<K: Indexed>(object: &K) -> Option<(&str, &str)> {
    let metadata = object.meta();
    metadata.uid.as_deref().zip(metadata.resource_version.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Node;
    use plimsoll_api::Pod;

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
    }

    fn with_provider(name: &str, id: &str) -> Node {
        let mut node = node(name, "1");
        node.spec =
            Some(k8s_openapi::api::core::v1::NodeSpec { provider_id: Some(id.to_owned()), ..Default::default() });
        node
    }

    #[test]
    fn indices_follow_changes_deletions_and_relists() {
        let view = CachedObjects::<Node>::default();
        let mut writer = Writer::new(view.clone());
        let names = |id: &str| -> Vec<String> {
            view.group(id).iter().map(|node| node.metadata.name.clone().unwrap()).collect()
        };
        writer.take(Event::Apply(with_provider("b", "i-1")));
        writer.take(Event::Apply(with_provider("a", "i-1")));
        assert_eq!(names("i-1"), ["a", "b"]);
        let mut cursor = Cursor::default();
        assert_eq!(view.changed_groups(&mut cursor), None, "nothing was read");
        writer.take(Event::Apply(with_provider("a", "i-2")));
        let both = BTreeSet::from(["i-1".to_owned(), "i-2".to_owned()]);
        assert_eq!(view.changed_groups(&mut cursor), Some(both), "the group that it left and the one that it joined");
        assert_eq!(view.changed_groups(&mut cursor), Some(BTreeSet::new()));
        assert_eq!((names("i-1"), names("i-2")), (vec!["b".to_owned()], vec!["a".to_owned()]));
        writer.take(Event::Delete(with_provider("b", "i-1")));
        assert_eq!(names("i-1"), [""; 0]);
        writer.take(Event::Init);
        writer.take(Event::InitApply(with_provider("c", "i-3")));
        assert_eq!(names("i-2"), ["a"]);
        writer.take(Event::InitDone);
        assert_eq!((names("i-2"), names("i-3")), (vec![], vec!["c".to_owned()]));
    }

    #[test]
    fn of_values_with_the_same_hash_the_wanted_one_is_found() {
        let pod = |name: &str| Pod { metadata: node(name, name).metadata, ..Pod::default() };
        let view = CachedObjects::<Pod>::default();
        let mut writer = Writer::new(view.clone());
        ["a", "b"].into_iter().for_each(|name| writer.take(Event::Apply(pod(name))));
        view.cache.write().unique.insert((hash("b"), key(&pod("a"))));
        assert_eq!(view.unique("b").and_then(|found| found.metadata.name.clone()), Some("b".to_owned()));
    }

    #[test]
    fn a_relist_keeps_the_cached_objects_that_have_not_changed() {
        let version = |name: &str, uid: &str, version: &str| {
            let mut node = node(name, uid);
            node.metadata.resource_version = Some(version.to_owned());
            node
        };
        let view = CachedObjects::default();
        let mut writer = Writer::new(view.clone());
        let mut list = |objects: [Node; 4]| {
            writer.take(Event::Init);
            objects.into_iter().for_each(|object| writer.take(Event::InitApply(object)));
            writer.take(Event::InitDone);
            view.state()
        };
        let unknown = node("d", "1");
        let before = list([version("a", "1", "1"), version("b", "1", "1"), version("c", "1", "1"), unknown.clone()]);
        let after = list([version("a", "1", "1"), version("b", "1", "2"), version("c", "2", "1"), unknown]);
        let kept: Vec<bool> = before.iter().zip(&after).map(|(before, after)| Arc::ptr_eq(before, after)).collect();
        assert_eq!(kept, [true, false, false, false], "changed, replaced, and without a version");
    }

    #[test]
    fn each_reader_gets_every_change_once_and_all_objects_when_it_is_behind() {
        let view = CachedObjects::default();
        let mut writer = Writer::new(view.clone());
        let (mut cursor, mut late) = (Cursor::default(), Cursor::default());
        let read = |cursor: &mut Cursor| match view.changes(cursor) {
            Delta::All(objects) => ("all", objects.len(), 0),
            Delta::Changed(changed) => {
                ("changed", changed.len(), changed.iter().filter(|(_, object)| object.is_none()).count())
            }
        };
        writer.take(Event::Apply(node("a", "1")));
        assert_eq!((read(&mut cursor), read(&mut late)), (("all", 1, 0), ("all", 1, 0)), "nothing was read");
        assert_eq!(read(&mut cursor), ("changed", 0, 0));
        writer.take(Event::Apply(node("a", "2")));
        writer.take(Event::Apply(node("a", "3")));
        writer.take(Event::Apply(node("b", "1")));
        writer.take(Event::Delete(node("b", "1")));
        assert_eq!(read(&mut cursor), ("changed", 2, 1), "each object once, as it is now");
        writer.take(Event::Init);
        writer.take(Event::InitDone);
        assert_eq!((read(&mut cursor), read(&mut cursor)), (("all", 0, 0), ("changed", 0, 0)), "listed again");
        for number in 0..=LOG {
            writer.take(Event::Apply(node("c", &number.to_string())));
        }
        assert_eq!(read(&mut cursor), ("all", 1, 0), "the log has lost the first of the changes");
        writer.take(Event::Apply(node("d", "1")));
        assert_eq!((read(&mut cursor), read(&mut late)), (("changed", 1, 0), ("all", 2, 0)));
    }
}
