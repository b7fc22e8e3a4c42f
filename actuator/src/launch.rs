//! Launching nodes: a launch group is a set of claims that a single CreateFleet call launches (safety rules 1 to 4).

pub mod admit;
pub mod attempt;
pub mod build;
pub mod create;
pub mod launcher;
pub mod matching;
pub mod preview;
pub mod record;
pub mod replacement;
pub mod request;
pub mod results;
pub mod run;
mod stored;
pub mod tagging;
pub mod write;

pub use launcher::{Groups, LaunchQueue};
pub use replacement::{ReplacementResult, request_replacement};
