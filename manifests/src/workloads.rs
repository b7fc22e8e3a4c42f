//! Workloads become the pods that their controllers would make.

use super::admission::Admission;
use super::kinds::{self, Kind};
use super::{Bounds, Id, Known, Manifest, ManifestError, Manifests, pod_labels, typed, validation};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod as KubePod, PodTemplateSpec, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use plimsoll_api::{Pod, PodPhase};
use plimsoll_snapshot::{Objects, Replicas, full_name};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The label by which a Deployment's pods and ReplicaSets are told apart.
const TEMPLATE_HASH: &str = "pod-template-hash";
/// Where a workload has its pod.
pub(super) const TEMPLATE: &str = "spec.template.";
/// Number of the pod that stands for a workload without pods. No replica has it: the first number is below 2³¹, and
/// there are at most a million pods.
const SAMPLE_NUMBER: usize = 1 << 32;

/// A workload and how many pods it wants.
pub(super) struct Workload {
    manifest: Manifest,
    metadata: ObjectMeta,
    count: PodCount,
    /// Number of its first pod.
    start: usize,
    template: PodTemplateSpec,
    claims: Vec<PersistentVolumeClaim>,
}

/// How many pods.
#[derive(Debug, Clone, Copy)]
enum PodCount {
    /// So many that run.
    Running(usize),
    /// Until so many have succeeded, at most `parallelism` at once.
    Job { parallelism: usize, completions: Option<usize>, succeeded: usize },
}

impl PodCount {
    /// How many are to run while `succeeded` of the input have.
    fn wanted(self, in_input: usize) -> usize {
        match self {
            Self::Running(count) => count,
            Self::Job { parallelism, completions, succeeded } => {
                let succeeded = succeeded.max(in_input);
                match completions {
                    Some(all) => all.saturating_sub(succeeded).min(parallelism),
                    // The controller makes no more pods once one has found the queue empty.
                    None if succeeded > 0 => 0,
                    None => parallelism,
                }
            }
        }
    }
}

impl Workload {
    /// What its pods say of it.
    fn reference(&self) -> OwnerReference {
        let api_version = self.manifest.value.get("apiVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
        OwnerReference {
            api_version,
            kind: self.manifest.kind.name().to_owned(),
            name: self.metadata.name.clone().unwrap_or_default(),
            uid: self.metadata.uid.clone().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: None,
        }
    }

    /// Those that a CapacityBuffer may name stay among the objects as well.
    pub(super) fn read(
        manifest: Manifest,
        admission: &Admission,
        objects: &mut Objects,
    ) -> Result<Self, Vec<ManifestError>> {
        let (mut claims, mut start) = (Vec::new(), 0);
        let count = |field: &str, value: Option<i32>, default: usize| match value {
            None => Ok(default),
            Some(value) => usize::try_from(value).map_err(|_| vec![manifest.fault(field, "must not be negative")]),
        };
        let running = |value: Option<i32>| count("spec.replicas", value, 1).map(PodCount::Running);
        let (metadata, pods, selector, mut template) = match manifest.kind {
            Kind::Deployment => {
                let it: Deployment = typed::read(&manifest)?;
                objects.deployments.push(it.clone());
                let spec = it.spec.unwrap_or_default();
                (it.metadata, running(spec.replicas)?, Some(spec.selector), spec.template)
            }
            Kind::ReplicaSet => {
                let it: ReplicaSet = typed::read(&manifest)?;
                objects.replica_sets.push(it.clone());
                let spec = it.spec.unwrap_or_default();
                (it.metadata, running(spec.replicas)?, Some(spec.selector), spec.template.unwrap_or_default())
            }
            Kind::StatefulSet => {
                let it: StatefulSet = typed::read(&manifest)?;
                objects.stateful_sets.push(it.clone());
                let spec = it.spec.unwrap_or_default();
                claims = spec.volume_claim_templates.unwrap_or_default();
                start = count("spec.ordinals.start", spec.ordinals.and_then(|ordinals| ordinals.start), 0)?;
                (it.metadata, running(spec.replicas)?, Some(spec.selector), spec.template)
            }
            _ => {
                let it: Job = typed::read(&manifest)?;
                let parallelism = it.spec.as_ref().and_then(|spec| spec.parallelism);
                let completions = it.spec.as_ref().and_then(|spec| spec.completions);
                let pods = PodCount::Job {
                    parallelism: if has_ended(&it) { 0 } else { count("spec.parallelism", parallelism, 1)? },
                    completions: completions.map(|it| count("spec.completions", Some(it), 0)).transpose()?,
                    succeeded: count("status.succeeded", it.status.as_ref().and_then(|it| it.succeeded), 0)?,
                };
                (it.metadata, pods, None, it.spec.unwrap_or_default().template)
            }
        };
        match &selector {
            Some(selector) => validation::replicated(&manifest, selector, &template)?,
            None => validation::job(&manifest, &template)?,
        }
        validation::claim_templates(&manifest, &claims)?;
        admission.template(&manifest, &mut template)?;
        Ok(Self { manifest, metadata, count: pods, start, template, claims })
    }

    pub(super) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub(super) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    fn id(&self) -> Id {
        (self.manifest.kind, self.manifest.name.clone())
    }

    /// The object of the input that owns it.
    fn owner(&self, known: &Known) -> Option<&OwnerReference> {
        self.metadata.owner_references.iter().flatten().find(|owner| known.has(owner, self.namespace()))
    }

    fn too_many(&self, problem: String) -> ManifestError {
        let field = if self.manifest.kind == Kind::Job { "spec.parallelism" } else { "spec.replicas" };
        self.manifest.fault(field, problem)
    }

    /// Estimated memory of one pod and its claims.
    fn copy_size(&self) -> usize {
        let spec = |field: &str| self.manifest.value.get("spec")?.get(field);
        let templates = [spec("template"), spec("volumeClaimTemplates")];
        size_of::<Pod>() + templates.into_iter().flatten().map(size).sum::<usize>()
    }

    /// Why it makes no pods.
    fn why_idle(&self, known: &Known) -> String {
        if let Some(owner) = self.owner(known) {
            return format!("it belongs to {} {}, so it is not expanded", owner.kind, owner.name);
        }
        let spec = |field: &str| self.manifest.value.get("spec")?.get(field);
        match self.count {
            PodCount::Running(_) => "spec.replicas is 0".to_owned(),
            PodCount::Job { .. } if spec("suspend").and_then(Value::as_bool) == Some(true) => {
                "it is suspended".to_owned()
            }
            PodCount::Job { .. } if spec("parallelism").and_then(Value::as_i64) == Some(0) => {
                "spec.parallelism is 0".to_owned()
            }
            PodCount::Job { parallelism: 1.., completions: None, succeeded: 1.. } => "a pod has succeeded".to_owned(),
            PodCount::Job { .. } => "it has ended".to_owned(),
        }
    }
}

/// Estimated memory of a value as an object of Kubernetes: 256 bytes for each struct, which has many optional fields.
fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => size_of::<String>() + text.len(),
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(fields) => 256 + fields.iter().map(|(key, value)| key.len() + size(value)).sum::<usize>(),
        Value::Null | Value::Bool(_) | Value::Number(_) => size_of::<Value>(),
    }
}

/// Whether a Job makes no more pods: done, given up or suspended.
fn has_ended(job: &Job) -> bool {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    let ended = |kind: &str, status: &str| matches!(kind, "Complete" | "Failed") && status == "True";
    job.spec.as_ref().is_some_and(|spec| spec.suspend == Some(true))
        || conditions.into_iter().any(|condition| ended(&condition.type_, &condition.status))
}

/// Adds the pods that workloads want beyond those that are in the input already.
pub(super) fn expand(
    workloads: &[Workload],
    known: &Known,
    bounds: Bounds,
    manifests: &mut Manifests,
    errors: &mut Vec<ManifestError>,
) {
    let present = present(workloads, &manifests.objects);
    let claims = manifests.objects.persistent_volume_claims.iter();
    let mut claims: BTreeSet<String> = claims.map(|it| full_name(&it.metadata)).collect();
    let none = Present::default();
    let specs = workloads.iter().filter_map(|workload| workload.template.spec.as_ref());
    let apart = pod_labels::tell_pods_apart(specs, &manifests.objects);
    let (mut count, mut room) = (manifests.objects.pods.len(), bounds.bytes);
    for workload in workloads {
        if workload.owner(known).is_some() {
            note_idle(workload, known, manifests);
            continue;
        }
        let owned = present.get(&workload.id()).unwrap_or(&none);
        let missing = workload.count.wanted(owned.succeeded).saturating_sub(owned.active);
        if count.saturating_add(missing) > bounds.pods {
            errors.push(workload.too_many(format!("makes more than {} pods", bounds.pods)));
            return;
        }
        if missing == 0 {
            note_idle(workload, known, manifests);
            add_sample(workload, manifests);
            continue;
        }
        let numbers = (workload.start..).filter(|number| !owned.names.contains(&name(workload, *number)));
        let made = manifests.origins.add_replicas(workload, numbers.take(missing), errors);
        count += made.len();
        if !add_pods(workload, made, apart, (&mut claims, &mut room), &mut manifests.objects) {
            let problem = format!("the copies of the templates of all workloads take more than {} bytes", bounds.bytes);
            errors.push(workload.too_many(problem));
            return;
        }
    }
}

fn note_idle(workload: &Workload, known: &Known, manifests: &mut Manifests) {
    let id = (workload.manifest.kind.name(), workload.manifest.name.clone());
    manifests.idle.insert(id, workload.why_idle(known));
}

/// Adds one pod of the workload, to be checked and not to be placed.
pub(super) fn add_sample(workload: &Workload, manifests: &mut Manifests) {
    let sample = pod(workload, SAMPLE_NUMBER);
    manifests.origins.add_sample(full_name(&sample.metadata), workload.manifest.origin(TEMPLATE));
    manifests.samples.push(sample);
}

/// Adds the pods with these numbers, as replicas of one template where only their names differ. `apart` is whether a
/// selector tells pods of one workload apart. Otherwise labels that only one pod has are left out. Returns `false` if
/// there is no room for the copies of the template.
fn add_pods(
    workload: &Workload,
    numbers: Vec<usize>,
    apart: bool,
    (claims, room): (&mut BTreeSet<String>, &mut usize),
    objects: &mut Objects,
) -> bool {
    let mut each = |numbers: &[usize], objects: &mut Objects| {
        let Some(left) = room.checked_sub(workload.copy_size().saturating_mul(numbers.len())) else { return false };
        *room = left;
        for number in numbers {
            let pod = pod(workload, *number);
            add_claims(workload, &pod, claims, objects);
            objects.pods.push(Arc::new(pod));
        }
        true
    };
    let own_labels = pod_labels::of_one(&workload.manifest, "", 0);
    if !workload.claims.is_empty() || (apart && !own_labels.is_empty()) {
        return each(&numbers, objects);
    }
    let mut template = pod(workload, 0);
    template.metadata.name = None;
    Arc::make_mut(&mut template.labels).retain(|key, _| own_labels.iter().all(|(own, _)| own != key));
    match Replicas::new(template, workload.name().to_owned(), numbers) {
        Ok(replicas) => {
            objects.replicas.push(replicas);
            true
        }
        Err(numbers) => each(&numbers, objects),
    }
}

/// Pods of the input that a workload owns.
#[derive(Debug, Default)]
struct Present {
    names: BTreeSet<String>,
    active: usize,
    succeeded: usize,
}

/// The pods that each workload has in the input, also through a workload between.
fn present(workloads: &[Workload], objects: &Objects) -> BTreeMap<Id, Present> {
    let by_id: BTreeMap<Id, &Workload> = workloads.iter().map(|it| (it.id(), it)).collect();
    let owner_of = |metadata: &ObjectMeta, owners: &[OwnerReference], hash: Option<&String>| {
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let owners: Vec<Id> = owners.iter().filter_map(|owner| kinds::owner(owner, namespace)).collect();
        let known = owners.iter().find(|owner| by_id.contains_key(owner)).cloned();
        known.or_else(|| owners.iter().find_map(|owner| deployment(hash?, owner)).filter(|it| by_id.contains_key(it)))
    };
    let owner_of_workload = |metadata: &ObjectMeta| {
        let hash = metadata.labels.as_ref().and_then(|labels| labels.get(TEMPLATE_HASH));
        owner_of(metadata, metadata.owner_references.as_deref().unwrap_or_default(), hash)
    };
    let mut present: BTreeMap<Id, Present> = BTreeMap::new();
    for pod in &objects.pods {
        let mut owner = owner_of(&pod.metadata, &pod.owners, pod.labels.get(TEMPLATE_HASH));
        // A pod's ReplicaSet and its Deployment: owners are at most two deep.
        for _ in 0..2 {
            let Some(id) = owner else { break };
            owner = by_id.get(&id).and_then(|workload| owner_of_workload(&workload.metadata));
            let present = present.entry(id).or_default();
            present.names.insert(pod.metadata.name.clone().unwrap_or_default());
            present.succeeded += usize::from(pod.status.phase == Some(PodPhase::Succeeded));
            present.active += usize::from(!pod.is_terminal());
        }
    }
    present
}

/// The Deployment of a pod whose ReplicaSet is not in the input: the ReplicaSet has its name and the pod's `hash`.
fn deployment(hash: &str, owner: &Id) -> Option<Id> {
    let name = owner.1.strip_suffix(hash)?.strip_suffix('-')?;
    (owner.0 == Kind::ReplicaSet).then(|| (Kind::Deployment, name.to_owned()))
}

fn name(workload: &Workload, number: usize) -> String {
    format!("{}-{number}", workload.name())
}

fn pod(workload: &Workload, number: usize) -> Pod {
    let name = name(workload, number);
    let template = workload.template.metadata.clone().unwrap_or_default();
    let mut labels = template.labels.unwrap_or_default();
    for (key, value) in pod_labels::of_all(&workload.manifest, workload.name()) {
        labels.entry(key).or_insert(value);
    }
    labels.extend(pod_labels::of_one(&workload.manifest, &name, number));
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
    KubePod {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: workload.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: template.annotations,
            owner_references: Some(vec![workload.reference()]),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    }
    .into()
}

/// The volume claims that the controller would make, where there is none of the name.
fn add_claims(workload: &Workload, pod: &Pod, known: &mut BTreeSet<String>, objects: &mut Objects) {
    for template in &workload.claims {
        let volume = template.metadata.name.as_deref().unwrap_or_default();
        let mut claim = template.clone();
        claim.metadata.name = Some(format!("{volume}-{}", pod.metadata.name.as_deref().unwrap_or_default()));
        claim.metadata.namespace.clone_from(&pod.metadata.namespace);
        if known.insert(full_name(&claim.metadata)) {
            objects.persistent_volume_claims.push(claim);
        }
    }
}
