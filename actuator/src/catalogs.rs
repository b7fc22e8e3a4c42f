//! Keeps the catalog of each node class up to date: reads EC2, builds the catalog, replaces it.

mod build;
mod facts;
mod refresh;

pub use refresh::{Refresh, run};
