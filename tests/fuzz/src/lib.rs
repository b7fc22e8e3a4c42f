//! Properties of any input: one for each component that parses external input.
//!
//! `run.sh` searches for inputs that violate a property. `cargo test` replays earlier findings and the inputs with the
//! highest coverage (`corpus/`).

mod cursor;
pub mod manifests;
pub mod quantity;
pub mod requirements;
pub mod wire;

/// A property; panics if the input violates it.
pub type Property = fn(&[u8]);

/// All properties by name.
pub const TARGETS: [(&str, Property); 4] = [
    ("quantity", quantity::holds),
    ("requirements", requirements::holds),
    ("manifests", manifests::holds),
    ("wire", wire::holds),
];
