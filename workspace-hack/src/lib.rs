//! Makes cargo compile every dependency once.
//!
//! Cargo compiles a dependency with the features that the packages of one command need. `cargo test` (all packages
//! without the EC2 SDK), `cargo test --package plimsoll-actuator-aws` and `cargo build --package plimsoll-watcher`
//! differ in a few features of dependencies that almost all other crates depend on, so that almost everything would be
//! compiled three times. Every package that such a command names depends on this crate, which enables these features.
//! The test `xtask/tests/features.rs` names the features that are missing here.
