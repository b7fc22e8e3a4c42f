//! Kubernetes manifests to the objects that a snapshot is made from, and to the question that a scheduler answers.
//!
//! Objects are read strictly: an unknown field or a value that an API server would refuse is an error with object and
//! field. Workloads are expanded into pods. Reading files is left to the caller.
//!
//! ```
//! use plimsoll_manifests::{MAX_PODS, Text, read};
//!
//! let text = r#"{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": -1,
//!     "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
//!     "spec": {"containers": [{"name": "app"}]}}}}"#;
//! let text = Text { name: "web.json".to_owned(), content: text.to_owned() };
//! let errors = read(&[text], MAX_PODS).unwrap_err();
//! assert_eq!(errors.to_string(), "web.json: document 1: Deployment default/web: spec.replicas: must not be negative");
//! ```

mod admission;
mod collect;
mod documents;
mod errors;
mod json;
mod kinds;
mod offers;
mod origins;
mod pod_labels;
mod question;
mod strict;
mod typed;
mod validation;
mod workloads;

pub use documents::Text;
pub use errors::{ManifestError, ManifestErrors, Place};
pub use kinds::known_kind;
pub use offers::{DEFAULT_REGION, Offers};
pub use question::{Question, QuestionError, cluster_question};

use documents::Object;
use origins::{Origin, Origins};

use k8s_openapi::api::core::v1::{Pod as KubePod, PodTemplate, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use plimsoll_api::Pod;
use plimsoll_snapshot::{Extra, Objects, Problem, Source};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

/// What the name of a PodTemplate's sample ends with, as no pod's does.
const SAMPLE: &str = ":template";
/// Maximum pods after the expansion of workloads: more than Kubernetes supports in one cluster.
pub const MAX_PODS: usize = 1_000_000;

/// What the manifests hold.
#[derive(Debug, Default)]
pub struct Manifests {
    /// Objects, workloads expanded into pods.
    pub objects: Objects,
    /// One pod of each workload that makes none now, and of each PodTemplate: to be checked like others, not to be
    /// placed.
    pub samples: Vec<Pod>,
    /// Why workloads make no pods beyond those of the input, by kind and `namespace/name`.
    pub idle: BTreeMap<(&'static str, String), String>,
    /// Kinds that mean nothing here, and how many objects of each there are.
    pub ignored: BTreeMap<String, usize>,
    /// Fields that are unknown here of objects that a server wrote, as `Pod spec.containers[].image`, and how often
    /// there are such.
    pub unknown_fields: BTreeMap<String, usize>,
    /// PriorityClasses and RuntimeClasses that pods name and that are not in the input, by kind and name. An API server
    /// refuses such pods.
    pub missing_classes: BTreeSet<(&'static str, String)>,
    /// Files that hold objects, of any kind.
    pub files: BTreeSet<Arc<str>>,
    origins: Origins,
}

impl Manifests {
    /// Errors for `problems` of the snapshot and for those of the samples. Pods of one workload share an error.
    fn faults(&self, problems: &[Problem], extra: &Extra) -> Vec<ManifestError> {
        let samples = Objects { pods: self.samples.iter().cloned().map(Arc::new).collect(), ..Objects::default() };
        let of_samples = plimsoll_snapshot::build(&samples, extra).1;
        let mut faults: Vec<_> = problems.iter().chain(&of_samples).map(|problem| self.locate(problem)).collect();
        faults.dedup();
        faults
    }

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

/// Maximum memory of the copies of templates for texts from outside: as much as a decoded request of the scheduler.
const MAX_COPIED_BYTES: usize = 256 << 20;

/// What workloads may be expanded into.
#[derive(Clone, Copy)]
struct Bounds {
    pods: usize,
    /// Estimated memory of pods and claims that are copies of a template. Replicas of one template are none.
    bytes: usize,
}

/// Kind and name.
type Id = (kinds::Kind, String);

/// What the input holds, to find the owners of objects.
#[derive(Default)]
struct Known {
    objects: BTreeSet<Id>,
    /// By name.
    ignored: BTreeMap<String, Vec<kinds::Ignored>>,
}

impl Known {
    /// Whether the owner of an object in `namespace` is in the input.
    fn has(&self, owner: &OwnerReference, namespace: &str) -> bool {
        kinds::owner(owner, namespace).is_some_and(|id| self.objects.contains(&id))
            || self.ignored.get(&owner.name).into_iter().flatten().any(|one| one.owns(owner, namespace))
    }
}

/// Kind and field, and how often there are such.
type UnknownFields = Rc<RefCell<BTreeMap<String, usize>>>;

/// One object of the input.
pub(crate) struct Manifest {
    place: Place,
    kind: kinds::Kind,
    /// `namespace/name`, or the name alone.
    name: String,
    value: Value,
    /// Unknown fields of all objects of the input.
    unknown_fields: UnknownFields,
}

impl Manifest {
    /// Kind and name, as errors have it.
    fn object(&self) -> String {
        format!("{} {}", self.kind.name(), self.name)
    }

    /// Whether a server wrote the object.
    fn has_uid(&self) -> bool {
        self.value.pointer("/metadata/uid").and_then(Value::as_str).is_some_and(|uid| !uid.is_empty())
    }

    fn note_unknown(&self, field: &str) {
        let field = format!("{} {field}", self.kind.name());
        *self.unknown_fields.borrow_mut().entry(field).or_default() += 1;
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

/// Reads YAML or JSON documents. Workloads are expanded into at most `max_pods` pods.
///
/// # Errors
///
/// Every document and field that cannot be used. Nothing is read from the input then.
pub fn read(texts: &[Text], max_pods: usize) -> Result<Manifests, ManifestErrors> {
    let mut errors = Vec::new();
    let documents: Vec<_> = texts.iter().flat_map(|text| documents::split(text, &mut errors)).collect();
    let objects = documents.into_iter().flat_map(|document| documents::objects(document, &mut errors)).collect();
    assemble(objects, errors, Bounds { pods: max_pods, bytes: usize::MAX })
}

/// Like [`read`], for texts that are one JSON value each: an object or a List. They come from outside, so the copies of
/// the templates of workloads may take at most 256 MiB.
///
/// # Errors
///
/// As [`read`].
pub fn read_json(texts: &[Text], max_pods: usize) -> Result<Manifests, ManifestErrors> {
    let mut errors = Vec::new();
    let documents: Vec<_> = texts.iter().filter_map(|text| documents::json_document(text, &mut errors)).collect();
    let objects = documents.into_iter().flat_map(|document| documents::objects(document, &mut errors)).collect();
    assemble(objects, errors, Bounds { pods: max_pods, bytes: MAX_COPIED_BYTES })
}

fn assemble(objects: Vec<Object>, mut errors: Vec<ManifestError>, bounds: Bounds) -> Result<Manifests, ManifestErrors> {
    let files = objects.iter().map(|object| Arc::clone(&object.place.file)).collect();
    let mut manifests = Manifests { files, ..Manifests::default() };
    let (mut found, mut known) = (Vec::new(), Known::default());
    let mut generated = BTreeMap::new();
    let unknown_fields = UnknownFields::default();
    for object in objects {
        match kinds::classify(object, &mut generated) {
            Ok(Ok(manifest)) => found.push(Manifest { unknown_fields: Rc::clone(&unknown_fields), ..manifest }),
            Ok(Err(ignored)) => {
                *manifests.ignored.entry(ignored.full_kind()).or_default() += 1;
                known.ignored.entry(ignored.name.clone()).or_default().push(ignored);
            }
            Err(error) => errors.push(error),
        }
    }
    refuse_duplicates(&found, &mut errors);
    known.objects = found.iter().map(|it| (it.kind, it.name.clone())).collect();
    let admission = admission::Admission::read(&found, &mut errors);
    let mut workloads = Vec::new();
    let mut first_of_name: BTreeSet<Id> = BTreeSet::new();
    for manifest in found {
        if !first_of_name.insert((manifest.kind, manifest.name.clone())) {
            // Its own faults are reported; as an object it would be mistaken for the first one of the name.
            errors.extend(collect::add(manifest, &admission, &mut Objects::default()).err().into_iter().flatten());
            continue;
        }
        manifests.origins.add((manifest.kind, manifest.name.clone()), manifest.origin(""));
        if manifest.kind == kinds::Kind::PodTemplate {
            let id = (kinds::Kind::Pod, format!("{}{SAMPLE}", manifest.name));
            manifests.origins.add(id, manifest.origin("template."));
        }
        match collect::add(manifest, &admission, &mut manifests.objects) {
            Ok(workload) => workloads.extend(workload),
            Err(faults) => errors.extend(faults),
        }
    }
    manifests.samples.extend(manifests.objects.pod_templates.iter().filter_map(sample));
    if errors.is_empty() {
        workloads::expand(&workloads, &known, bounds, &mut manifests, &mut errors);
    } else {
        // Pods of objects that could not be read are missing, so that an expansion would only cause more errors.
        workloads.iter().for_each(|workload| workloads::add_sample(workload, &mut manifests));
    }
    if errors.is_empty() {
        manifests.unknown_fields = unknown_fields.take();
        let missing = admission.into_missing().into_iter();
        manifests.missing_classes = missing.map(|(kind, name)| (kind.name(), name)).collect();
        return Ok(manifests);
    }
    // Some faults show only in a snapshot. All are reported at once.
    let extra = Extra { source: Source::Files, ..Extra::default() };
    let (_, problems) = plimsoll_snapshot::build(&manifests.objects, &extra);
    errors.extend(manifests.faults(&problems, &extra));
    Err(ManifestErrors(errors))
}

/// A pod of the template, to be checked.
fn sample(template: &PodTemplate) -> Option<Pod> {
    let (PodTemplateSpec { metadata, spec }, own) = (template.template.clone()?, &template.metadata);
    let name = format!("{}{SAMPLE}", own.name.as_deref().unwrap_or_default());
    let metadata = ObjectMeta { name: Some(name), namespace: own.namespace.clone(), ..metadata.unwrap_or_default() };
    Some(Pod::from(KubePod { metadata, spec, status: None }))
}

fn refuse_duplicates(manifests: &[Manifest], errors: &mut Vec<ManifestError>) {
    let mut places = BTreeMap::new();
    for manifest in manifests {
        if let Some(first) = places.insert((manifest.kind, manifest.name.as_str()), &manifest.place) {
            errors.push(ManifestError::Duplicate {
                object: manifest.object(),
                first: first.clone(),
                second: manifest.place.clone(),
            });
        }
    }
}

#[cfg(test)]
mod tests;
