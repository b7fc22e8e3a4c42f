//! What runs against real programs share: processes that end with the run, and waiting.

pub(crate) mod controlplane;
pub(crate) mod process;
pub(crate) mod wait;
