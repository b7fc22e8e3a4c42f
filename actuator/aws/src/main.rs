//! The `plimsoll-actuator` program.

fn main() {}
