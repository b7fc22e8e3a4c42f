//! Lookups by node or shape index. An index outside the list has no domain and is not selected.

/// Whether the flag of that index is set.
pub(crate) fn is_set(flags: &[bool], index: usize) -> bool {
    flags.get(index).copied().unwrap_or(false)
}

/// The domain of a node.
pub(crate) fn domain_of(domains: &[Option<usize>], node: usize) -> Option<usize> {
    domains.get(node).copied().flatten()
}
