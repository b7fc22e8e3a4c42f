//! Notices that capacity is about to be taken back.

pub mod messages;
