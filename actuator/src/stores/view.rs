//! The watch cache of one kind. Objects are ordered by namespace and name, so that iteration is deterministic. Indices
//! and a log of changes serve controllers that must not read all objects of a large cluster at each change.

use super::index::Indexed;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::Event;
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
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
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}

/// UID and resourceVersion, which together name one state of one object.
fn version<K: Indexed>(object: &K) -> Option<(&str, &str)> {
    let metadata = object.meta();
    metadata.uid.as_deref().zip(metadata.resource_version.as_deref())
}

#[cfg(test)]
mod tests;
