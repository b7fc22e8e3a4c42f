//! Manifests: files, folders and stdin become the objects that a snapshot is made from.

mod documents;
mod errors;
mod files;
mod kinds;
mod origins;
mod pod_checks;
mod strict;
mod typed;
mod workloads;

pub use errors::{ManifestError, ManifestErrors, Place};

use origins::{Origin, Origins};

use k8s_openapi::api::core::v1::{Pod, PodTemplate, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plimsoll_snapshot::{Objects, Problem};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Read;
use std::path::PathBuf;

/// The most that is read from all files together: well above what a large cluster's objects come to.
pub const MAX_INPUT_BYTES: u64 = 1 << 30;
/// What the name of a PodTemplate's sample ends with, as no pod's does.
const SAMPLE: &str = ":template";
/// The most pods that workloads are expanded into: more than Kubernetes supports in one cluster.
pub const MAX_PODS: usize = 1_000_000;

/// What the manifests hold.
#[derive(Debug, Default)]
pub struct Manifests {
    /// Objects, workloads expanded into pods.
    pub objects: Objects,
    /// One pod of each workload that makes none now, and of each PodTemplate: to be checked like others, not to be placed.
    pub samples: Vec<Pod>,
    /// Kinds that mean nothing here, and how many objects of each there are.
    pub ignored: BTreeMap<String, usize>,
    origins: Origins,
}

impl Manifests {
    /// What is wrong with an object, with the place in the input that it comes from.
    #[must_use]
    pub fn locate(&self, problem: &Problem) -> ManifestError {
        let known = kinds::of_name(&problem.kind).and_then(|kind| self.origins.get(&(kind, problem.name.clone())));
        let origin = known.cloned().unwrap_or_else(|| Origin {
            place: Place::default(),
            object: format!("{} {}", problem.kind, problem.name),
            below: "",
        });
        ManifestError::Field {
            place: origin.place,
            object: origin.object,
            field: format!("{}{}", origin.below, problem.field),
            problem: problem.message.clone(),
        }
    }
}

/// Kind and name.
type Id = (kinds::Kind, String);

/// One object of the input.
pub(crate) struct Manifest {
    place: Place,
    kind: kinds::Kind,
    /// `namespace/name`, or the name alone.
    name: String,
    value: Value,
}

impl Manifest {
    /// Kind and name, as errors have it.
    fn object(&self) -> String {
        format!("{} {}", self.kind.name(), self.name)
    }

    fn fault(&self, field: impl Into<String>, problem: impl fmt::Display) -> ManifestError {
        ManifestError::Field {
            place: self.place.clone(),
            object: self.object(),
            field: field.into(),
            problem: problem.to_string(),
        }
    }

    fn origin(&self, below: &'static str) -> Origin {
        Origin { place: self.place.clone(), object: self.object(), below }
    }
}

/// Reads all of `paths`; `-` is `stdin`.
///
/// # Errors
///
/// Every file, document and field that cannot be used. Nothing is read from the input then.
pub fn read(paths: &[PathBuf], stdin: &mut dyn Read) -> Result<Manifests, ManifestErrors> {
    let mut errors = Vec::new();
    let mut manifests = Manifests::default();
    let mut found = Vec::new();
    let mut generated = BTreeMap::new();
    for file in files::read(paths, stdin)? {
        for document in documents::split(&file, &mut errors) {
            for object in documents::objects(document, &mut errors) {
                match kinds::classify(object, &mut generated) {
                    Ok(Ok(manifest)) => found.push(manifest),
                    Ok(Err(kind)) => *manifests.ignored.entry(kind).or_default() += 1,
                    Err(error) => errors.push(error),
                }
            }
        }
    }
    refuse_duplicates(&found, &mut errors);
    let names: BTreeSet<Id> = found.iter().map(|it| (it.kind, it.name.clone())).collect();
    let mut workloads = Vec::new();
    for manifest in found {
        manifests.origins.add((manifest.kind, manifest.name.clone()), manifest.origin(""));
        if manifest.kind == kinds::Kind::PodTemplate {
            let id = (kinds::Kind::Pod, format!("{}{SAMPLE}", manifest.name));
            manifests.origins.add(id, manifest.origin("template."));
        }
        match typed::add(manifest, &mut manifests.objects) {
            Ok(workload) => workloads.extend(workload),
            Err(faults) => errors.extend(faults),
        }
    }
    manifests.samples.extend(manifests.objects.pod_templates.iter().filter_map(sample));
    // Pods of workloads that could not be read would be missing: errors about them would only confuse.
    if errors.is_empty() {
        workloads::expand(&workloads, &names, &mut manifests, &mut errors);
    }
    if errors.is_empty() { Ok(manifests) } else { Err(ManifestErrors(errors)) }
}

/// A pod of the template, to be checked.
fn sample(template: &PodTemplate) -> Option<Pod> {
    let (PodTemplateSpec { metadata, spec }, own) = (template.template.clone()?, &template.metadata);
    let name = format!("{}{SAMPLE}", own.name.as_deref().unwrap_or_default());
    let metadata = ObjectMeta { name: Some(name), namespace: own.namespace.clone(), ..metadata.unwrap_or_default() };
    Some(Pod { metadata, spec, status: None })
}

fn refuse_duplicates(manifests: &[Manifest], errors: &mut Vec<ManifestError>) {
    let mut places = BTreeMap::new();
    for manifest in manifests {
        if let Some(first) = places.insert((manifest.kind, manifest.name.as_str()), &manifest.place) {
            errors.push(ManifestError::Duplicate {
                object: manifest.object(),
                first: first.to_string(),
                second: manifest.place.to_string(),
            });
        }
    }
}

#[cfg(test)]
mod tests;
