//! What the API server's admission adds to new pods: default requests of LimitRanges, what RuntimeClasses require, and
//! tolerations of extended resources.

use super::kinds::Kind;
use super::typed::checked;
use super::{Id, Manifest, ManifestError, validation as checks};
use k8s_openapi::api::core::v1::{LimitRange, PodSpec, PodTemplateSpec, ResourceRequirements};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as KubeQuantity;
use plimsoll_api::Pod;
use plimsoll_model::quantity::Quantity;
use plimsoll_snapshot::tolerate_extended_resources;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// PriorityClasses that every cluster has.
const SYSTEM_PRIORITIES: [&str; 2] = ["system-cluster-critical", "system-node-critical"];

type Amounts = BTreeMap<String, KubeQuantity>;

/// The LimitRanges and RuntimeClasses of the input.
#[derive(Debug, Default)]
pub(super) struct Admission {
    /// Default requests of containers, by namespace.
    requests: BTreeMap<String, Amounts>,
    classes: BTreeMap<String, RuntimeClass>,
    /// PriorityClasses and RuntimeClasses, valid or not.
    known: BTreeSet<Id>,
    /// Those that new pods name and that are not known.
    missing: RefCell<BTreeSet<Id>>,
}

impl Admission {
    pub(super) fn read(manifests: &[Manifest], errors: &mut Vec<ManifestError>) -> Self {
        let mut found: Vec<&Manifest> =
            manifests.iter().filter(|it| matches!(it.kind, Kind::LimitRange | Kind::RuntimeClass)).collect();
        // Of two defaults in a namespace the first counts. The order of the input must not matter.
        found.sort_by(|one, other| one.name.cmp(&other.name));
        let is_class = |it: &&Manifest| matches!(it.kind, Kind::PriorityClass | Kind::RuntimeClass);
        let known = manifests.iter().filter(is_class).map(|it| (it.kind, it.name.clone())).collect();
        let mut admission = Self { known, ..Self::default() };
        for manifest in found {
            errors.extend(admission.add(manifest).err().into_iter().flatten());
        }
        admission
    }

    fn add(&mut self, manifest: &Manifest) -> Result<(), Vec<ManifestError>> {
        if manifest.kind == Kind::RuntimeClass {
            self.classes.insert(manifest.name.clone(), checked(manifest, checks::runtime_class)?);
            return Ok(());
        }
        let range: LimitRange = checked(manifest, checks::limit_range)?;
        let requests = self.requests.entry(namespace(manifest).to_owned()).or_default();
        for (name, quantity) in default_requests(range) {
            requests.entry(name).or_insert(quantity);
        }
        Ok(())
    }

    /// Admits a pod that is still to be made. One with a UID or a node has been admitted by its API server.
    pub(super) fn pod(&self, manifest: &Manifest, mut pod: Pod) -> Result<Pod, Vec<ManifestError>> {
        let is_new = pod.metadata.uid.is_none() && pod.node_name.is_none();
        if let Some(spec) = pod.spec.as_mut().filter(|_| is_new) {
            self.admit(manifest, "spec", Arc::make_mut(spec))?;
        }
        Ok(pod)
    }

    /// Admits the pods of a workload.
    pub(super) fn template(
        &self,
        manifest: &Manifest,
        template: &mut PodTemplateSpec,
    ) -> Result<(), Vec<ManifestError>> {
        template.spec.as_mut().map_or(Ok(()), |spec| self.admit(manifest, "spec.template.spec", spec))
    }

    /// PriorityClasses and RuntimeClasses that new pods name and that are not in the input.
    pub(super) fn into_missing(self) -> BTreeSet<Id> {
        self.missing.into_inner()
    }

    fn note_missing(&self, spec: &PodSpec) {
        let priority = spec.priority_class_name.as_ref().filter(|name| !SYSTEM_PRIORITIES.contains(&name.as_str()));
        let named = [(Kind::PriorityClass, priority), (Kind::RuntimeClass, spec.runtime_class_name.as_ref())];
        for (kind, name) in named {
            let id = name.filter(|name| !name.is_empty()).map(|name| (kind, name.clone()));
            self.missing.borrow_mut().extend(id.filter(|id| !self.known.contains(id)));
        }
    }

    /// `at` is where the manifest has the spec.
    fn admit(&self, manifest: &Manifest, at: &str, spec: &mut PodSpec) -> Result<(), Vec<ManifestError>> {
        self.note_missing(spec);
        if let Some(requests) = self.requests.get(namespace(manifest)) {
            set_requests(requests, spec);
        }
        // The controller of a DaemonSet compares taints with its template, before its pods are admitted.
        if manifest.kind != Kind::DaemonSet {
            tolerate_extended_resources(spec);
        }
        let class = spec.runtime_class_name.as_ref().and_then(|name| self.classes.get_key_value(name));
        let Some((name, class)) = class else { return Ok(()) };
        let mut faults = Vec::new();
        if let Some(fixed) = class.overhead.as_ref().and_then(|overhead| overhead.pod_fixed.as_ref()) {
            if spec.overhead.as_ref().is_some_and(|own| parsed(own) != parsed(fixed)) {
                let problem = format!("differs from overhead.podFixed of RuntimeClass {name}");
                faults.push(manifest.fault(format!("{at}.overhead"), problem));
            }
            spec.overhead = Some(fixed.clone());
        } else if spec.overhead.as_ref().is_some_and(|own| !own.is_empty()) {
            let problem = format!("RuntimeClass {name} has none");
            faults.push(manifest.fault(format!("{at}.overhead"), problem));
        }
        let scheduling = class.scheduling.clone().unwrap_or_default();
        for (key, value) in scheduling.node_selector.into_iter().flatten() {
            let selector = spec.node_selector.get_or_insert_default();
            let own = selector.entry(key.clone()).or_insert_with(|| value.clone());
            if *own != value {
                let problem = format!("{key}: {own} contradicts RuntimeClass {name}, which has {value}");
                faults.push(manifest.fault(format!("{at}.nodeSelector"), problem));
            }
        }
        for toleration in scheduling.tolerations.into_iter().flatten() {
            let tolerations = spec.tolerations.get_or_insert_default();
            if !tolerations.contains(&toleration) {
                tolerations.push(toleration);
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }
}

/// The namespace of an object that is in one.
fn namespace(manifest: &Manifest) -> &str {
    manifest.name.split_once('/').map_or("", |(namespace, _)| namespace)
}

/// Default requests of containers. Later lists replace earlier ones: `defaultRequest` is `default` if it is not given,
/// and that is `max`. Without any of these, `min` is requested.
fn default_requests(range: LimitRange) -> Amounts {
    let items = range.spec.map(|spec| spec.limits).unwrap_or_default();
    let of_containers = items.into_iter().filter(|item| item.type_ == checks::CONTAINER);
    let lists = of_containers.flat_map(|item| [item.min, item.max, item.default, item.default_request]);
    lists.flatten().flatten().collect()
}

/// A limit counts as a request: the API server has made it one before it applies LimitRanges. Default limits are not
/// set, since each of them has a default request.
fn set_requests(defaults: &Amounts, spec: &mut PodSpec) {
    let PodSpec { containers, init_containers, resources: of_pod, .. } = spec;
    for container in containers.iter_mut().chain(init_containers.iter_mut().flatten()) {
        for (name, quantity) in defaults {
            if !has(of_pod.as_ref(), name) && !has(container.resources.as_ref(), name) {
                let resources = container.resources.get_or_insert_default();
                resources.requests.get_or_insert_default().insert(name.clone(), quantity.clone());
            }
        }
    }
}

fn has(resources: Option<&ResourceRequirements>, name: &str) -> bool {
    let mut lists = resources.into_iter().flat_map(|it| [&it.limits, &it.requests]).flatten();
    lists.any(|list| list.contains_key(name))
}

fn parsed(amounts: &Amounts) -> Vec<(&String, Option<Quantity>)> {
    amounts.iter().map(|(name, quantity)| (name, Quantity::parse(&quantity.0).ok())).collect()
}

#[cfg(test)]
mod tests;
