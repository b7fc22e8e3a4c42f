//! Action ids of changed launches.

use plimsoll_model::identity::{ActionId, ContentHasher};

/// The action id of the launch `id` after the change `what`. `parts` distinguish launches with the same change.
pub(crate) fn renamed(id: &ActionId, what: &str, parts: impl IntoIterator<Item = impl AsRef<str>>) -> ActionId {
    let mut hasher = ContentHasher::new(what);
    hasher.text(&id.0);
    parts.into_iter().for_each(|text| hasher.text(text.as_ref()));
    ActionId(hasher.hex(16))
}

/// The action id of a second launch for the same pods.
pub(crate) fn anew(id: &ActionId, what: &str) -> ActionId {
    renamed(id, what, [""; 0])
}
