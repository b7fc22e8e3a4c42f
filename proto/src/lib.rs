//! The wire between Plimsoll's services: generated messages and services, and their conversion from and to the model.
//!
//! Modules follow the packages, `plimsoll.plan.v1` is [`plan::v1`]. What is in `gen/` is written by `cargo xtask proto`.

pub mod convert;
pub mod delta;

/// Encoded `FileDescriptorSet` of all packages, for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("gen/descriptors.bin");

macro_rules! package {
    ($(#[$doc:meta])* $area:ident, $file:literal) => {
        $(#[$doc])*
        pub mod $area {
            /// Version 1.
            #[allow(missing_docs, unused_qualifications, unreachable_pub, clippy::all, reason = "generated: the .proto files carry the documentation")]
            #[allow(clippy::allow_attributes_without_reason, clippy::needless_pass_by_value, clippy::semicolon_if_nothing_returned, reason = "generated")]
            pub mod v1 {
                include!(concat!("gen/", $file));
            }
        }
    };
}

package!(
    /// What can be bought.
    catalog,
    "plimsoll.catalog.v1.rs"
);
package!(
    /// A cluster at one moment, and changes from one to the next.
    snapshot,
    "plimsoll.snapshot.v1.rs"
);
package!(
    /// What a scheduler proposes.
    plan,
    "plimsoll.plan.v1.rs"
);
package!(
    /// The scheduler's service.
    scheduler,
    "plimsoll.scheduler.v1.rs"
);
package!(
    /// The actuator's service.
    actuator,
    "plimsoll.actuator.v1.rs"
);
package!(
    /// The watcher's service.
    watcher,
    "plimsoll.watcher.v1.rs"
);
