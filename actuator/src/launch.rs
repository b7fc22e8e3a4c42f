//! Launching: groups of claims that one CreateFleet buys (safety rules 1 to 4).

pub mod attempt;
pub mod group;
pub mod matching;
