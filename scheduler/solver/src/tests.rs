//! Scenarios, one small cluster each, built by [`builder`].

mod bounds;
pub(crate) mod builder;
mod fixed;
mod followers;
mod market;
mod mix;
mod offers;
mod placing;
mod planner;
mod pools;
mod preferences;
mod priority;
mod properties;
mod reasons;
mod refit;
mod rehearsal;
mod removal;
mod rooms;
mod share;
mod spread;
mod topology;
mod uneven;
mod vanguard;
mod volumes;
