//! Hints about probable mistakes in the input.

mod misspelt;
mod protection;
mod volumes;

pub(crate) use misspelt::{misspelt, tiny_memory};
pub(crate) use protection::of_idle_protection;
pub(crate) use volumes::volume_conflicts;

use k8s_openapi::api::core::v1::Node;
use misspelt::MAX_HINTS;
use plimsoll_api::NodePool as ApiPool;
use plimsoll_api::ec2_node_class::EC2NodeClass;
use plimsoll_catalog::builtin;
use plimsoll_manifests::known_kind;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::execution::BufferReady;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::names::{annotation, label};
use plimsoll_model::requirements::Requirements;
use plimsoll_model::similar;
use plimsoll_model::snapshot::{NodePool, Snapshot};
use plimsoll_snapshot::{Objects, buffers};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Hints about pools that require zones outside of their catalog.
pub(crate) fn hints(snapshot: &Snapshot, catalogs: &BTreeMap<CatalogId, Catalog>, from_file: bool) -> Vec<String> {
    let of_pool = |pool: &NodePool| zone_hint(pool, catalogs.get(pool.catalog.as_ref()?)?, from_file);
    snapshot.node_pools.iter().filter_map(of_pool).collect()
}

/// Hints about paths without objects. `files` are those with objects.
pub(crate) fn of_empty_paths(paths: &[PathBuf], files: &BTreeSet<Arc<str>>) -> Vec<String> {
    let is_file = |path: &PathBuf| path.to_str().is_some_and(|path| files.contains(path));
    let is_folder = |path: &PathBuf| files.iter().any(|file| Path::new(&**file).starts_with(path));
    // A shell may expand a pattern to thousands of files. There are few folders.
    let has_objects = |path: &PathBuf| is_file(path) || is_folder(path);
    let empty = paths.iter().filter(|path| !has_objects(path));
    empty.map(|path| format!("no objects in {}", path.display())).collect()
}

/// Hints about fields that a newer server has written.
pub(crate) fn of_unknown_fields(fields: &BTreeMap<String, usize>) -> Vec<String> {
    fields.iter().map(|(field, count)| format!("{field} is ignored, since no such field is known ({count})")).collect()
}

/// Hints about classes that pods name and that are not in the input.
pub(crate) fn of_missing_classes(classes: &BTreeSet<(&'static str, String)>) -> Vec<String> {
    let of_class = |(kind, name): &(&'static str, String)| {
        let without = match *kind {
            "PriorityClass" => "the default priority",
            _ => "none of its overhead, node selector and tolerations",
        };
        format!("{kind} {name} is not in the input: the pods that name it get {without}")
    };
    classes.iter().map(of_class).take(MAX_HINTS).collect()
}

/// Kinds of Karpenter's APIs before v1, and those that replace them.
const FORMER_KINDS: [(&str, &str); 3] = [
    ("karpenter.sh/v1alpha5 Provisioner", "NodePool"),
    ("karpenter.sh/v1alpha5 Machine", "NodeClaim"),
    ("karpenter.k8s.aws/v1alpha1 AWSNodeTemplate", "EC2NodeClass"),
];

/// Hints about kinds that are ignored because Karpenter v1 has others instead, or because their group or case is wrong.
pub(crate) fn of_ignored_kinds(ignored: &BTreeMap<String, usize>) -> Vec<String> {
    let of_kind = |kind: &String| {
        if let Some((_, now)) = FORMER_KINDS.iter().find(|(former, _)| former == kind) {
            return Some(format!("{kind} is ignored; Karpenter v1 has {now} instead"));
        }
        let (_, name) = kind.rsplit_once(' ')?;
        let (name, version) = known_kind(name)?;
        Some(format!("{kind} is ignored; {name} is {version}"))
    };
    ignored.keys().filter_map(of_kind).collect()
}

/// Hints about CapacityBuffers that reserve no capacity, or less than requested.
pub(crate) fn of_buffers(objects: &Objects) -> Vec<String> {
    let of_buffer = |buffer: &buffers::Buffer<'_>| {
        let why = match &buffer.room {
            Ok(room) => room.bounded.clone()?,
            Err(unresolved) => {
                let reason = unresolved.reason.map_or("UnknownStrategy", BufferReady::as_str);
                format!("no room is kept: {reason}: {}", unresolved.message)
            }
        };
        let metadata = &buffer.object.metadata;
        let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
        Some(format!("CapacityBuffer {}/{}: {why}", namespace.unwrap_or_default(), name.unwrap_or_default()))
    };
    buffers::resolve(objects).iter().filter_map(of_buffer).collect()
}

/// Hints about NodePools of other providers, which are left out.
pub(crate) fn of_other_providers(pools: &[ApiPool]) -> Vec<String> {
    let of_pool = |pool: &ApiPool| {
        let reference = &pool.spec.template.spec.node_class_ref;
        let name = pool.metadata.name.as_deref().filter(|_| !reference.is_ec2())?;
        let (kind, group) = (&reference.kind, &reference.group);
        Some(format!(
            "NodePool {name} belongs to another provider, as its nodeClassRef names {kind} of {group}: \
             it launches nothing, and its nodes are never removed"
        ))
    };
    pools.iter().filter_map(of_pool).collect()
}

/// Hints about annotations `plimsoll.dev/*` of NodePools that do not exist.
pub(crate) fn of_unknown_annotations(pools: &[ApiPool]) -> Vec<String> {
    let is_known = |key: &str| annotation::OF_NODE_POOLS.contains(&key);
    let of_pool = |pool: &ApiPool| {
        let name = pool.metadata.name.clone().unwrap_or_default();
        let keys = pool.metadata.annotations.iter().flat_map(BTreeMap::keys);
        let unknown = keys.filter(|key| key.starts_with(annotation::PREFIX) && !is_known(key));
        let hint = |key: &String| {
            let meant = similar::nearest(key, annotation::OF_NODE_POOLS);
            let meant = meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
            format!("NodePool {name}: the annotation {key} has no effect{meant}")
        };
        let of_template = pool.spec.template.annotations().map(|(key, _)| key);
        let ignored = of_template.filter(|key| key.starts_with(annotation::PREFIX)).map(|key| {
            let advice = if is_known(key) { "; it belongs to metadata.annotations" } else { "" };
            format!("NodePool {name}: the annotation {key} has no effect in spec.template{advice}")
        });
        unknown.map(hint).chain(ignored).collect::<Vec<_>>()
    };
    pools.iter().flat_map(of_pool).take(MAX_HINTS).collect()
}

/// Hints about variables of a shell in node classes, such as `${CLUSTER_NAME}` in the guides to Karpenter.
pub(crate) fn of_variables(classes: &[EC2NodeClass]) -> Vec<String> {
    let of_class = |class: &EC2NodeClass| {
        let fields = [("role", &class.spec.role), ("instanceProfile", &class.spec.instance_profile)];
        let (field, value) = fields.into_iter().find_map(|(field, value)| Some((field, value.as_ref()?)))?;
        let name = class.metadata.name.as_deref().filter(|_| value.contains("${"))?;
        Some(format!(
            "EC2NodeClass {name}: spec.{field} is {value}, with a variable that is not replaced; pipe the file through \
             envsubst"
        ))
    };
    classes.iter().filter_map(of_class).collect()
}

/// Hints about node classes that would never be ready, since EC2 refuses all of their launches.
pub(crate) fn of_refused_classes(classes: &[EC2NodeClass]) -> Vec<String> {
    let of_class = |class: &EC2NodeClass| {
        let name = class.metadata.name.clone().unwrap_or_default();
        let refused = class.spec.refused_by_ec2().into_iter();
        refused.map(move |error| format!("EC2NodeClass {name} is not ready in a cluster: EC2 refuses {error}"))
    };
    classes.iter().flat_map(of_class).collect()
}

fn zone_hint(pool: &NodePool, catalog: &Catalog, from_file: bool) -> Option<String> {
    let requirements = Requirements::from_api(&pool.requirements).ok()?;
    let offerings = || catalog.instance_types.iter().flat_map(|it| &it.offerings);
    let fits = requirements.get(label::REGION).has(&catalog.region)
        && offerings().any(|it| {
            requirements.get(label::ZONE).has(&it.zone)
                && (it.zone_id.is_empty() || requirements.get(label::ZONE_ID).has(&it.zone_id))
        });
    if fits || offerings().next().is_none() {
        return None;
    }
    let values = |key: &str| -> Vec<String> {
        let of_key = pool.requirements.iter().filter(|it| label::normalized(&it.key) == key);
        of_key.flat_map(|it| it.values.iter().cloned()).collect()
    };
    let zones = values(label::ZONE);
    let mut regions: BTreeSet<String> = zones.iter().filter_map(|zone| region_of_zone(zone)).collect();
    regions.extend(values(label::REGION));
    regions.remove(&catalog.region);
    let region = regions.iter().find(|region| builtin::regions().contains(&region.as_str()));
    let advice = advice(region.map(String::as_str), from_file);
    let asked = if zones.is_empty() { "its zones".to_owned() } else { zones.join(", ") };
    Some(format!(
        "NodePool {}: the catalog of region {} has no offering in {asked}; {advice}",
        pool.name, catalog.region
    ))
}

/// How to get the catalog of another region: `built_in` if there is a built-in one. A catalog file is used whatever
/// `--region` says.
fn advice(built_in: Option<&str>, from_file: bool) -> String {
    match built_in {
        Some(region) if from_file => format!("try --region {region} without --catalog"),
        Some(region) => format!("try --region {region}"),
        None => format!("there are built-in catalogs of {}; for others give --catalog", builtin::regions().join(", ")),
    }
}

/// The region of a zone: `us-west-2` for `us-west-2a` and for `us-west-2-lax-1a`.
fn region_of_zone(zone: &str) -> Option<String> {
    let ends = |part: &str| part.bytes().next().is_some_and(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = zone.split('-').collect();
    let number = parts.iter().position(|part| ends(part))?;
    let digits = parts.get(number)?.trim_end_matches(|letter: char| letter.is_ascii_lowercase());
    Some(format!("{}-{digits}", parts.get(..number)?.join("-")))
}

/// The region of most nodes.
pub(crate) fn region_of(nodes: &[Node]) -> Option<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for region in nodes.iter().filter_map(|node| node.metadata.labels.as_ref()?.get(label::REGION)) {
        *counts.entry(region).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(region, _)| region.to_owned())
}

/// Hints about nodes of another region than the catalogs, whose prices are unknown.
pub(crate) fn of_region(nodes: &[Node], catalogs: &BTreeMap<CatalogId, Catalog>, from_file: bool) -> Option<String> {
    let region = region_of(nodes)?;
    let catalog = catalogs.values().next().filter(|_| catalogs.values().all(|it| it.region != region))?;
    let advice = advice(Some(region.as_str()).filter(|region| builtin::regions().contains(region)), from_file);
    Some(format!(
        "nodes are in {region}, the catalog is of region {}: their prices are not known, and removing them saves nothing; {advice}",
        catalog.region
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_tells_its_region() {
        let table = [
            ("us-east-1a", Some("us-east-1")),
            ("ap-northeast-2b", Some("ap-northeast-2")),
            ("us-west-2-lax-1a", Some("us-west-2")),
            ("us-gov-west-1c", Some("us-gov-west-1")),
            ("nowhere", None),
        ];
        for (zone, region) in table {
            assert_eq!(region_of_zone(zone).as_deref(), region, "{zone}");
        }
    }
}
