//! The watcher: reads the cluster into an index, tells schedulers and others what it sees, and drives the loop from
//! snapshot to plan to execution.
//!
//! It only reads (its own Lease aside), decides nothing about nodes and spends nothing. What it knows can be read again:
//! a new leader needs nothing from an old one.

pub mod args;
pub mod catalogs;
pub mod drive;
pub mod facts;
mod feed;
mod follow;
pub mod index;
pub mod ledger;
pub mod metrics;
pub mod program;
mod scheduler;
pub mod service;
pub mod snapshots;
