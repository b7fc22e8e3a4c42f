//! Wire format of Plimsoll's services: generated messages and services, and their conversion from and to the model.
//!
//! Modules correspond to packages: `plimsoll.plan.v1` is [`plan::v1`]. `cargo xtask proto` generates the files in
//! `gen/`.

#![deny(clippy::indexing_slicing)]

pub mod convert;
pub mod delta;
pub mod known;
pub mod protocol;

/// Encoded `FileDescriptorSet` of all packages, for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("gen/descriptors.bin");

macro_rules! package {
    ($(#[$doc:meta])* $package:ident, $file:literal) => {
        $(#[$doc])*
        pub mod $package {
            /// Version 1.
            #[allow(missing_docs, unused_qualifications, unreachable_pub, clippy::all, reason = "generated: the .proto files carry the documentation")]
            #[allow(clippy::allow_attributes_without_reason, clippy::needless_pass_by_value, clippy::too_many_lines, clippy::semicolon_if_nothing_returned, reason = "generated")]
            pub mod v1 {
                include!(concat!("gen/", $file));
            }
        }
    };
}

package!(
    /// Catalogs of instance types.
    catalog,
    "plimsoll.catalog.v1.rs"
);
package!(
    /// Snapshots of a cluster, and deltas between them.
    snapshot,
    "plimsoll.snapshot.v1.rs"
);
package!(
    /// Plans.
    plan,
    "plimsoll.plan.v1.rs"
);
package!(
    /// The scheduler's service.
    scheduler,
    "plimsoll.scheduler.v1.rs"
);
package!(
    /// The service that plans for Kubernetes objects.
    objects,
    "plimsoll.objects.v1.rs"
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
package!(
    /// Recordings of plans.
    recording,
    "plimsoll.recording.v1.rs"
);
