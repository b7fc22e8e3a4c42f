//! EC2NodeClass controller: resolves selectors, writes the status, and provides what a launch needs.

mod alias;
mod controller;
mod dry_run;
mod finalize;
mod hash;
mod images;
mod look_up;
mod placement;
mod profile;
mod reservations;
mod selectors;
mod status;
mod validation;

pub use controller::{NodeClasses, run};
