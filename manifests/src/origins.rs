//! Where objects come from: the document of each, and for pods of workloads the workload.

use super::kinds::Kind;
use super::workloads::{TEMPLATE, Workload};
use super::{Id, ManifestError, Place};
use std::collections::{BTreeMap, BTreeSet};

/// Where an object comes from.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    pub(super) place: Place,
    /// The object of the input: for a pod that a workload makes, the workload.
    pub(super) object: String,
    /// What comes before a field of the object in `object`.
    pub(super) below: &'static str,
}

/// Origins of all objects.
#[derive(Debug, Default)]
pub(super) struct Origins {
    objects: BTreeMap<Id, Origin>,
    /// Pods of workloads by `namespace/name` of the workload. Several workloads of one name are of different kinds.
    replicas: BTreeMap<String, Vec<(Vec<usize>, Origin)>>,
}

impl Origins {
    pub(super) fn add(&mut self, id: Id, origin: Origin) {
        self.objects.insert(id, origin);
    }

    /// Adds a pod that stands for a workload without pods, unless there is a pod of its name.
    pub(super) fn add_sample(&mut self, pod: String, origin: Origin) {
        self.objects.entry((Kind::Pod, pod)).or_insert(origin);
    }

    pub(super) fn get(&self, id: &Id) -> Option<&Origin> {
        self.objects.get(id).or_else(|| {
            let (workload, number) = id.1.rsplit_once('-').filter(|_| id.0 == Kind::Pod)?;
            self.replica(workload, number_of(number)?)
        })
    }

    fn replica(&self, workload: &str, number: usize) -> Option<&Origin> {
        let made = self.replicas.get(workload)?.iter();
        made.filter(|(numbers, _)| numbers.binary_search(&number).is_ok()).map(|(_, origin)| origin).next()
    }

    /// Adds pods of a workload, with ascending numbers, up to the first whose name is taken. Returns the numbers that
    /// were added.
    pub(super) fn add_replicas(
        &mut self,
        workload: &Workload,
        numbers: impl Iterator<Item = usize>,
        errors: &mut Vec<ManifestError>,
    ) -> Vec<usize> {
        let name = format!("{}/{}", workload.namespace(), workload.name());
        let taken = self.numbered_pods(&name);
        let mut added = Vec::new();
        for number in numbers {
            let pod = || (Kind::Pod, format!("{name}-{number}"));
            let other = if taken.contains(&number) { self.objects.get(&pod()) } else { self.replica(&name, number) };
            if let Some(other) = other {
                let whose = if other.below.is_empty() { "is also" } else { "is also one of" };
                let problem = format!("its pod {} {whose} {} in {}", pod().1, other.object, other.place);
                errors.push(workload.manifest().fault("metadata.name", problem));
                break;
            }
            added.push(number);
        }
        self.replicas.entry(name).or_default().push((added.clone(), workload.manifest().origin(TEMPLATE)));
        added
    }

    /// Numbers of the pods of the input that are named as a workload of this name would name its own.
    fn numbered_pods(&self, workload: &str) -> BTreeSet<usize> {
        let prefix = format!("{workload}-");
        let pods = self.objects.range((Kind::Pod, prefix.clone())..);
        let names = pods.map_while(|((kind, name), _)| name.strip_prefix(&prefix).filter(|_| *kind == Kind::Pod));
        names.filter_map(number_of).collect()
    }
}

/// The number, if `text` is how it is written in a name.
fn number_of(text: &str) -> Option<usize> {
    let number: usize = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}
