//! What must hold of any input, however odd: one property for each place where Plimsoll reads what others wrote.
//!
//! `run.sh` looks for inputs that break one, `cargo test` replays those that were found or that reach far (`corpus/`).

mod cursor;
pub mod manifests;
pub mod quantity;
pub mod requirements;
pub mod wire;

/// A property: panics where it does not hold.
pub type Property = fn(&[u8]);

/// All of them by name.
pub const TARGETS: [(&str, Property); 4] = [
    ("quantity", quantity::holds),
    ("requirements", requirements::holds),
    ("manifests", manifests::holds),
    ("wire", wire::holds),
];
