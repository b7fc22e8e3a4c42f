//! Cancels a solve whose caller no longer waits for the plan, or whose time is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ends a solve early. The plan of a cancelled solve is valid, but may place fewer pods and cost more.
#[derive(Debug, Clone, Default)]
pub struct Cancel {
    flag: Arc<AtomicBool>,
    parent: Option<Arc<Self>>,
}

impl Cancel {
    /// A flag that is also set once this one is. Setting it does not set this one.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { flag: Arc::default(), parent: Some(Arc::new(self.clone())) }
    }

    /// Ends the solve soon. A cancellation cannot be undone.
    pub fn cancel(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }

    /// Whether the solve must end.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.flag.load(Ordering::Relaxed) || self.parent.as_ref().is_some_and(|parent| parent.is_cancelled())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_ends_with_its_parent_but_not_the_parent_with_its_child() {
        let parent = Cancel::default();
        let (first, second) = (parent.child(), parent.child());
        first.cancel();
        assert!(first.is_cancelled() && !second.is_cancelled() && !parent.is_cancelled());
        parent.cancel();
        assert!(second.is_cancelled() && second.child().is_cancelled());
    }
}
