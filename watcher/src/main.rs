//! The `plimsoll-watcher` program.

fn main() {}
