//! EC2NodeClass: what its selectors come to, what its status says, and what a launch takes from there.

pub mod resolve;
