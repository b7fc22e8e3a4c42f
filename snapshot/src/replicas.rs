//! Stores the pods of a workload as one template and a list of numbers, so that a large workload is stored and read
//! once.

use plimsoll_api::{Pod, needs_claim};

/// Pods named `<prefix>-<number>` that are equal in everything else.
#[derive(Debug, Clone)]
pub struct Replicas {
    template: Pod,
    prefix: String,
    numbers: Vec<usize>,
}

impl Replicas {
    /// Creates the pods of the workload `prefix`, one per number.
    ///
    /// ```
    /// use plimsoll_snapshot::Replicas;
    /// use serde_json::json;
    ///
    /// let template = serde_json::from_value(json!({
    ///     "metadata": {"namespace": "shop",
    ///         "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u"}]},
    ///     "spec": {"containers": [{"name": "app"}]},
    /// }))?;
    /// let replicas = Replicas::new(template, "web".to_owned(), vec![0, 1, 4]).map_err(|_| "pods differ")?;
    /// let names: Vec<_> = replicas.pods().filter_map(|pod| pod.metadata.name).collect();
    /// assert_eq!(names, ["web-0", "web-1", "web-4"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the numbers if the pods differ in more than their names, for example because each has its own volume
    /// claims or is its own workload.
    pub fn new(template: Pod, prefix: String, numbers: Vec<usize>) -> Result<Self, Vec<usize>> {
        if depends_on_name(&template) {
            return Err(numbers);
        }
        Ok(Self { template, prefix, numbers })
    }

    /// Number of pods.
    #[must_use]
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Whether there are no pods.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Returns each pod as an object.
    pub fn pods(&self) -> impl Iterator<Item = Pod> + '_ {
        self.names().map(|name| {
            let mut pod = self.template.clone();
            pod.metadata.name = Some(name);
            pod
        })
    }

    /// The pod without its name.
    pub(crate) fn template(&self) -> &Pod {
        &self.template
    }

    /// Names of the pods.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> + '_ {
        self.numbers.iter().map(|number| format!("{}-{number}", self.prefix))
    }
}

/// Whether the name determines other properties of the pod: volume claims, UID or workload.
fn depends_on_name(template: &Pod) -> bool {
    let claims = template.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).any(needs_claim);
    claims || template.owners.is_empty() || template.metadata.uid.is_some() || template.is_terminal()
}

#[cfg(test)]
mod tests;
