//! Workloads become the pods that their controllers would make.

use super::kinds::Kind;
use super::{MAX_PODS, Manifest, ManifestError, typed};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use plimsoll_snapshot::Objects;
use std::collections::{BTreeMap, BTreeSet};

/// A workload and how many pods it wants.
pub(super) struct Workload {
    manifest: Manifest,
    metadata: ObjectMeta,
    replicas: i32,
    template: PodTemplateSpec,
    claims: Vec<PersistentVolumeClaim>,
}

impl Workload {
    pub(super) fn read(manifest: Manifest) -> Result<Self, ManifestError> {
        let mut claims = Vec::new();
        let (metadata, replicas, template) = match manifest.kind {
            Kind::Deployment => {
                let it: Deployment = typed::read(&manifest)?;
                let spec = it.spec.unwrap_or_default();
                (it.metadata, spec.replicas, Some(spec.template))
            }
            Kind::ReplicaSet => {
                let it: ReplicaSet = typed::read(&manifest)?;
                let spec = it.spec.unwrap_or_default();
                (it.metadata, spec.replicas, spec.template)
            }
            Kind::StatefulSet => {
                let it: StatefulSet = typed::read(&manifest)?;
                let spec = it.spec.unwrap_or_default();
                claims = spec.volume_claim_templates.unwrap_or_default();
                (it.metadata, spec.replicas, Some(spec.template))
            }
            _ => {
                let it: Job = typed::read(&manifest)?;
                let spec = it.spec.unwrap_or_default();
                let parallelism = spec.parallelism.unwrap_or(1);
                let replicas = spec.completions.map_or(parallelism, |completions| completions.min(parallelism));
                (it.metadata, Some(replicas), Some(spec.template))
            }
        };
        let replicas = replicas.unwrap_or(1);
        if replicas < 0 {
            return Err(manifest.fault("spec.replicas", "must not be negative"));
        }
        let template = template.ok_or_else(|| manifest.fault("spec.template", "is required"))?;
        Ok(Self { manifest, metadata, replicas, template, claims })
    }

    fn is_owned(&self, known: &BTreeSet<(Kind, String)>) -> bool {
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        self.metadata.owner_references.iter().flatten().any(|owner| {
            known.iter().any(|(kind, name)| {
                kind.name() == owner.kind && (*name == owner.name || *name == format!("{namespace}/{}", owner.name))
            })
        })
    }
}

/// Adds the pods that workloads want beyond those that are in the input already.
pub(super) fn expand(
    workloads: Vec<Workload>,
    known: &BTreeSet<(Kind, String)>,
    objects: &mut Objects,
) -> Result<(), ManifestError> {
    let present = present(&workloads, objects);
    let mut sources: BTreeMap<String, String> =
        objects.pods.iter().map(|pod| (full_name(&pod.metadata), "a Pod of the input".to_owned())).collect();
    for workload in &workloads {
        if workload.is_owned(known) {
            continue;
        }
        let owned = present.get(&key(workload)).map_or(&[][..], Vec::as_slice);
        let wanted = usize::try_from(workload.replicas).unwrap_or(0);
        let mut missing = wanted.saturating_sub(owned.len());
        if objects.pods.len().saturating_add(missing) > MAX_PODS {
            return Err(workload.manifest.fault("spec.replicas", format!("makes more than {MAX_PODS} pods")));
        }
        for index in 0.. {
            if missing == 0 {
                break;
            }
            let name = format!("{}-{index}", workload.metadata.name.as_deref().unwrap_or_default());
            if owned.contains(&name) {
                continue;
            }
            let pod = pod(workload, name);
            let full_name = full_name(&pod.metadata);
            if let Some(other) = sources.insert(full_name.clone(), workload.manifest.object()) {
                let problem = format!("its pod {full_name} has the name of one of {other}");
                return Err(workload.manifest.fault("metadata.name", problem));
            }
            add_claims(workload, &pod, objects);
            objects.pods.push(pod);
            missing -= 1;
        }
    }
    Ok(())
}

type Key = (Kind, String);

fn key(workload: &Workload) -> Key {
    (workload.manifest.kind, workload.manifest.name.clone())
}

/// Names of the pods that each workload has in the input, also through a workload between.
fn present(workloads: &[Workload], objects: &Objects) -> BTreeMap<Key, Vec<String>> {
    let by_key: BTreeMap<Key, &Workload> = workloads.iter().map(|it| (key(it), it)).collect();
    let owner_of = |metadata: &ObjectMeta| {
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        metadata.owner_references.iter().flatten().find_map(|owner: &OwnerReference| {
            let name = format!("{namespace}/{}", owner.name);
            by_key.iter().find(|((kind, it), _)| kind.name() == owner.kind && *it == name).map(|(key, _)| key.clone())
        })
    };
    let mut present: BTreeMap<Key, Vec<String>> = BTreeMap::new();
    for pod in &objects.pods {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if matches!(phase, Some("Succeeded" | "Failed")) {
            continue;
        }
        let mut owner = owner_of(&pod.metadata);
        // A pod's ReplicaSet and its Deployment: owners are at most two deep.
        for _ in 0..2 {
            let Some(key) = owner else { break };
            present.entry(key.clone()).or_default().push(pod.metadata.name.clone().unwrap_or_default());
            owner = by_key.get(&key).and_then(|workload| owner_of(&workload.metadata));
        }
    }
    present
}

fn pod(workload: &Workload, name: String) -> Pod {
    let template = workload.template.metadata.clone().unwrap_or_default();
    let mut spec = workload.template.spec.clone().unwrap_or_default();
    for claim in &workload.claims {
        let volume = claim.metadata.name.clone().unwrap_or_default();
        let volumes = spec.volumes.get_or_insert_default();
        volumes.retain(|it| it.name != volume);
        volumes.push(Volume {
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: format!("{volume}-{name}"),
                read_only: None,
            }),
            name: volume,
            ..Volume::default()
        });
    }
    Pod {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: workload.metadata.namespace.clone(),
            labels: template.labels,
            annotations: template.annotations,
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    }
}

/// The volume claims that the controller would make, where the input has none of the name.
fn add_claims(workload: &Workload, pod: &Pod, objects: &mut Objects) {
    for template in &workload.claims {
        let volume = template.metadata.name.as_deref().unwrap_or_default();
        let name = format!("{volume}-{}", pod.metadata.name.as_deref().unwrap_or_default());
        let exists = objects.persistent_volume_claims.iter().any(|it| {
            it.metadata.name.as_deref() == Some(name.as_str()) && it.metadata.namespace == pod.metadata.namespace
        });
        if !exists {
            let mut claim = template.clone();
            claim.metadata.name = Some(name);
            claim.metadata.namespace.clone_from(&pod.metadata.namespace);
            objects.persistent_volume_claims.push(claim);
        }
    }
}

fn full_name(metadata: &ObjectMeta) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    format!("{}/{}", text(&metadata.namespace), text(&metadata.name))
}
