//! Images of a node class, and the instance types that can run them.

use super::alias;
use crate::io::CloudReads;
use crate::ports::{CloudError, Image, ImageQuery, SelectorTerm};
use futures::future::join_all;
use plimsoll_api::ec2_node_class::{Ami, AmiAlias, AmiSelectorTerm};
use plimsoll_api::{EC2NodeClassSpec, Operator, Requirement};
use plimsoll_model::names::label;
use std::collections::{BTreeMap, BTreeSet};

/// Image owners searched if a term with a name has no owner.
const DEFAULT_OWNERS: [&str; 2] = ["self", "amazon"];

/// Why images cannot be resolved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ImagesError {
    /// This Kubernetes version has no such images.
    #[error("{0}")]
    UnsupportedAlias(String),
    /// AWS has not published the alias for this Kubernetes version.
    #[error("AWS publishes no images of this alias for Kubernetes {0}")]
    NotPublished(String),
    /// The cloud returned an error.
    #[error(transparent)]
    Cloud(#[from] CloudError),
}

/// Requirements of an image, sorted.
type Needs = Vec<Requirement>;

/// The images that a class selects, the newest first; empty if nothing matches.
pub(super) async fn resolve(
    cloud: &CloudReads,
    spec: &EC2NodeClassSpec,
    kubernetes: &str,
) -> Result<Vec<Ami>, ImagesError> {
    let terms = spec.effective_ami_selector_terms();
    let images = match terms.iter().find_map(|term| AmiAlias::parse(term.alias.as_deref()?).ok()) {
        Some(alias) => of_alias(cloud, &alias, kubernetes).await?,
        None => of_terms(cloud, &terms).await?,
    };
    Ok(status(images))
}

/// Images that an alias names through SSM parameters. One parameter may stand for several variants.
async fn of_alias(cloud: &CloudReads, alias: &AmiAlias, kubernetes: &str) -> Result<Vec<(Image, Needs)>, ImagesError> {
    let parameters = alias::parameters(alias, kubernetes).map_err(ImagesError::UnsupportedAlias)?;
    let mut variants: BTreeMap<String, Vec<Needs>> = BTreeMap::new();
    let values = join_all(parameters.iter().map(|parameter| cloud.parameter(&parameter.path))).await;
    for (parameter, value) in parameters.into_iter().zip(values) {
        match value {
            Ok(id) => variants.entry(id.trim().to_owned()).or_default().extend(parameter.needs),
            // Not every family has every variant. Any other failure must not be ignored: a variant would disappear, and
            // its nodes drift.
            Err(CloudError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if variants.is_empty() {
        return Err(ImagesError::NotPublished(kubernetes.to_owned()));
    }
    let ids = variants.keys().cloned().collect();
    let images = cloud.images(&ImageQuery::Ids(ids)).await?;
    let mut selected = Vec::new();
    for image in images {
        for needs in variants.remove(&image.id).unwrap_or_default() {
            selected.push((image.clone(), needs));
        }
    }
    Ok(selected)
}

/// Those of the images of a status that EC2 still has, with their deprecation.
pub(super) async fn still_there(cloud: &CloudReads, amis: &[Ami]) -> Result<Vec<Ami>, CloudError> {
    let ids: BTreeSet<&String> = amis.iter().map(|ami| &ami.id).collect();
    let images = cloud.images(&ImageQuery::Ids(ids.into_iter().cloned().collect())).await?;
    let kept = amis.iter().filter_map(|ami| {
        let image = images.iter().find(|image| image.id == ami.id)?;
        Some(Ami { deprecated: image.deprecated.then_some(true), ..ami.clone() })
    });
    Ok(kept.collect())
}

async fn of_terms(cloud: &CloudReads, terms: &[AmiSelectorTerm]) -> Result<Vec<(Image, Needs)>, ImagesError> {
    let mut ids = Vec::new();
    let mut selectors = Vec::new();
    for term in terms {
        if let Some(id) = &term.id {
            ids.push(id.clone());
        } else if let Some(path) = &term.ssm_parameter {
            match cloud.parameter(path).await {
                Ok(id) if id.starts_with("ami-") => ids.push(id),
                Ok(value) => {
                    tracing::warn!(%path, %value, "spec.amiSelectorTerms: the parameter does not name an image");
                }
                Err(CloudError::NotFound { message }) => tracing::warn!(%path, %message, "spec.amiSelectorTerms"),
                Err(error) => return Err(error.into()),
            }
        } else if term.name.is_some() || !term.tags.is_empty() {
            let owners: Vec<Option<String>> = match (&term.owner, &term.name) {
                (Some(owner), _) => vec![Some(owner.clone())],
                (None, Some(_)) => DEFAULT_OWNERS.map(|owner| Some(owner.to_owned())).into(),
                (None, None) => vec![None],
            };
            selectors.extend(owners.into_iter().map(|owner| SelectorTerm {
                id: None,
                name: term.name.clone(),
                tags: term.tags.clone(),
                owner,
            }));
        }
    }
    let mut images = Vec::new();
    if !ids.is_empty() {
        images.extend(cloud.images(&ImageQuery::Ids(ids)).await?);
    }
    if !selectors.is_empty() {
        images.extend(cloud.images(&ImageQuery::Terms(selectors)).await?);
    }
    let candidates = images.into_iter().filter_map(|image| {
        let needs = vec![architecture(&image)?];
        Some((image, needs))
    });
    Ok(best(candidates))
}

/// Keeps one image per set of requirements: not deprecated, then the newest, then the last by name.
fn best(images: impl Iterator<Item = (Image, Needs)>) -> Vec<(Image, Needs)> {
    let mut selected: Vec<(Image, Needs)> = Vec::new();
    let rank = |image: &Image| (!image.deprecated, image.created, image.name.clone());
    for (image, needs) in images {
        match selected.iter_mut().find(|(_, existing)| *existing == needs) {
            Some((existing, _)) if rank(&image) > rank(existing) => *existing = image,
            Some(_) => {}
            None => selected.push((image, needs)),
        }
    }
    selected
}

/// `None` for architectures that cannot run a node.
fn architecture(image: &Image) -> Option<Requirement> {
    let word = match image.architecture.as_str() {
        "x86_64" => "amd64",
        "arm64" => "arm64",
        _ => return None,
    };
    Some(Requirement::new(label::ARCH, Operator::In, [word]))
}

/// Images as the status lists them: the newest first, each with its architecture and other requirements.
fn status(mut images: Vec<(Image, Needs)>) -> Vec<Ami> {
    images.sort_by(|(left, left_needs), (right, right_needs)| {
        let order = |needs: &Needs| needs.iter().map(|it| (it.key.clone(), it.operator.as_str())).collect::<Vec<_>>();
        (right.created, &left.id, order(left_needs)).cmp(&(left.created, &right.id, order(right_needs)))
    });
    let amis = images.into_iter().filter_map(|(image, mut requirements)| {
        let architecture = architecture(&image)?;
        requirements.retain(|it| it.key != label::ARCH);
        requirements.push(architecture);
        requirements.sort_by(|left, right| (left.key.len(), &left.key).cmp(&(right.key.len(), &right.key)));
        Some(Ami {
            id: image.id,
            name: Some(image.name).filter(|name| !name.is_empty()),
            deprecated: image.deprecated.then_some(true),
            requirements,
        })
    });
    amis.collect()
}

#[cfg(test)]
mod tests;
