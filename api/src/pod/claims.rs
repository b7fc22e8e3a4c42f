//! PersistentVolumeClaims that pods use.

use k8s_openapi::api::core::v1::{EphemeralVolumeSource, PodSpec, Volume};

/// Whether the volume needs a claim.
#[must_use]
pub fn needs_claim(volume: &Volume) -> bool {
    volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some()
}

/// Names of the claims of the volumes of a pod with this spec and name. A claim that is made for an ephemeral volume
/// comes with the volume's source.
///
/// ```
/// use k8s_openapi::api::core::v1::PodSpec;
/// use plimsoll_api::volume_claims;
/// use serde_json::json;
///
/// let spec: PodSpec = serde_json::from_value(json!({"containers": [], "volumes": [
///     {"name": "data", "persistentVolumeClaim": {"claimName": "shared"}},
///     {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
///     {"name": "tmp", "emptyDir": {}},
/// ]}))?;
/// let names: Vec<String> = volume_claims(&spec, "web").map(|(name, _)| name).collect();
/// assert_eq!(names, ["shared", "web-scratch"]);
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn volume_claims<'spec>(
    spec: &'spec PodSpec,
    pod: &'spec str,
) -> impl Iterator<Item = (String, Option<&'spec EphemeralVolumeSource>)> {
    spec.volumes.iter().flatten().filter_map(move |volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(source), _) => Some((source.claim_name.clone(), None)),
        (None, Some(source)) => Some((format!("{pod}-{}", volume.name), Some(source))),
        (None, None) => None,
    })
}
