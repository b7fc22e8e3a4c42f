//! The list of pods in a snapshot. It is most of a snapshot, so copies of a snapshot share its pods.

use super::Pod;
use serde::{Deserialize, Serialize};
use std::borrow::Borrow;
use std::fmt;
use std::iter::Map;
use std::ops::{Deref, DerefMut};
use std::slice;
use std::sync::Arc;

/// A pod that lists share. A change copies the pod if another list has it too.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SharedPod(Arc<Pod>);

impl fmt::Debug for SharedPod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl From<Pod> for SharedPod {
    fn from(pod: Pod) -> Self {
        Self(Arc::new(pod))
    }
}

impl Deref for SharedPod {
    type Target = Pod;

    fn deref(&self) -> &Pod {
        &self.0
    }
}

impl Borrow<Pod> for SharedPod {
    fn borrow(&self) -> &Pod {
        self
    }
}

impl DerefMut for SharedPod {
    fn deref_mut(&mut self) -> &mut Pod {
        Arc::make_mut(&mut self.0)
    }
}

/// Pods of a snapshot. A copy of the list costs a few bytes per pod.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PodList(Vec<SharedPod>);

/// Iterator over the pods of a list.
type Iter<'a> = Map<slice::Iter<'a, SharedPod>, fn(&SharedPod) -> &Pod>;

impl PodList {
    /// Returns the pods in order.
    pub fn iter(&self) -> Iter<'_> {
        let pod: fn(&SharedPod) -> &Pod = SharedPod::deref;
        self.0.iter().map(pod)
    }

    /// Returns the pod at this position.
    #[must_use]
    pub fn get(&self, position: usize) -> Option<&Pod> {
        self.0.get(position).map(SharedPod::deref)
    }

    /// Returns the first pod.
    #[must_use]
    pub fn first(&self) -> Option<&Pod> {
        self.get(0)
    }

    /// Appends a pod.
    pub fn push(&mut self, pod: impl Into<SharedPod>) {
        self.0.push(pod.into());
    }
}

impl fmt::Debug for PodList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Deref for PodList {
    type Target = Vec<SharedPod>;

    fn deref(&self) -> &Vec<SharedPod> {
        &self.0
    }
}

impl DerefMut for PodList {
    fn deref_mut(&mut self) -> &mut Vec<SharedPod> {
        &mut self.0
    }
}

impl<P: Into<SharedPod>> From<Vec<P>> for PodList {
    fn from(pods: Vec<P>) -> Self {
        pods.into_iter().collect()
    }
}

impl<P: Into<SharedPod>> FromIterator<P> for PodList {
    fn from_iter<I: IntoIterator<Item = P>>(pods: I) -> Self {
        Self(pods.into_iter().map(Into::into).collect())
    }
}

impl<P: Into<SharedPod>> Extend<P> for PodList {
    fn extend<I: IntoIterator<Item = P>>(&mut self, pods: I) {
        self.0.extend(pods.into_iter().map(Into::into));
    }
}

impl IntoIterator for PodList {
    type Item = SharedPod;
    type IntoIter = std::vec::IntoIter<SharedPod>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a PodList {
    type Item = &'a Pod;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a> IntoIterator for &'a mut PodList {
    type Item = &'a mut SharedPod;
    type IntoIter = slice::IterMut<'a, SharedPod>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str) -> Pod {
        Pod { uid: name.into(), name: name.to_owned(), ..Pod::default() }
    }

    #[test]
    fn copies_share_the_pods_that_they_do_not_change() {
        let pods = PodList::from(vec![pod("a"), pod("b")]);
        let mut other = pods.clone();
        for pod in &mut other {
            if pod.name == "b" {
                pod.terminating = true;
            }
        }
        let is_shared: Vec<bool> = pods.iter().zip(&other).map(|(one, other)| std::ptr::eq(one, other)).collect();
        assert_eq!(is_shared, [true, false]);
        assert_eq!((pods[1].terminating, other[1].terminating), (false, true));
    }
}
