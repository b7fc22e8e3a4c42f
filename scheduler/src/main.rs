//! The `plimsoll-scheduler` program.

fn main() {}
