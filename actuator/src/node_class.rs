//! EC2NodeClass: what its selectors come to, what its status says, and what a launch takes from there.

mod alias;
mod controller;
mod finalize;
mod hash;
mod images;
mod profile;
mod selectors;
mod status;
mod validation;

pub use controller::{NodeClasses, run};
