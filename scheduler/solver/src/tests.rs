//! Scenarios, one small cluster each, built by [`builder`].

mod bounds;
mod builder;
mod followers;
mod offers;
mod placing;
mod pools;
mod preferences;
mod properties;
mod reasons;
mod removal;
mod topology;
