//! Names of launches that are not what they were.

use plimsoll_model::identity::{ActionId, ContentHasher};

/// The name of a launch that was called `id`, after `what` was done to it, with what tells it from others to which the
/// same was done.
pub(crate) fn renamed(
    id: &ActionId,
    what: &str,
    with_reports_of: impl IntoIterator<Item = impl AsRef<str>>,
) -> ActionId {
    let mut hasher = ContentHasher::new(what);
    hasher.text(&id.0);
    with_reports_of.into_iter().for_each(|text| hasher.text(text.as_ref()));
    ActionId(hasher.hex(16))
}

/// The name of one for the same pods as another in the plan.
pub(crate) fn anew(id: &ActionId, what: &str) -> ActionId {
    renamed(id, what, [""; 0])
}
