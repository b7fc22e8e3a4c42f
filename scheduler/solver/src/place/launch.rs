//! Converts a planned node to a launch: listed offerings, requirements of the NodeClaim, and the reason.

use crate::input::context::SolveContext;
use crate::input::custom_labels::Narrowed;
use crate::input::intern::{Amounts, Bits, add};
use crate::input::offerings::PoolView;
use crate::input::pool_requirements::one_of;
use plimsoll_model::catalog::Offering;
use plimsoll_model::identity::{ActionId, ContentHasher, NodePoolName};
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::names::label;
use plimsoll_model::plan::{Launch, OfferingChoice, PodRef};
use plimsoll_model::requirements::NodeSelectorRequirement;
use plimsoll_model::snapshot::Pod;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum number of instance types that a launch lists, as in Karpenter. CreateFleet requests are limited in size.
pub(crate) const MAX_TYPES: usize = 60;

/// The offerings of `accept` that a launch lists, cheapest first. `None` if there is none, or if strict `minValues` of
/// the pool are not met. Types beyond [`MAX_TYPES`] are listed only if `minValues` needs them, and exotic ones only if
/// there are no others.
pub(crate) fn acceptable(view: &PoolView<'_>, accept: &Bits<Offering>) -> Option<Vec<Id<Offering>>> {
    let goals = view.pool.requirements.iter().filter_map(|requirement| {
        let wanted = usize::try_from(requirement.min_values?).unwrap_or(usize::MAX);
        Some((label::normalized(&requirement.key), wanted, BTreeSet::new()))
    });
    let mut goals: Vec<(&str, usize, BTreeSet<&str>)> = goals.collect();
    let (mut known, mut types) = (IndexVec::filled(false, view.types.len()), 0);
    let mut listed = Vec::new();
    let has_ordinary = view.has_ordinary(accept);
    for offering in accept.iter().filter(|one| !(has_ordinary && view.is_exotic(*one))) {
        let kind = view.offerings[offering].type_index;
        let useful = |(key, wanted, known): &(&str, usize, BTreeSet<&str>)| {
            known.len() < *wanted && view.label(offering, key).is_some_and(|value| !known.contains(value))
        };
        if types >= MAX_TYPES && !known[kind] && !goals.iter().any(useful) {
            continue;
        }
        types += usize::from(!std::mem::replace(&mut known[kind], true));
        listed.push(offering);
        for (key, _, known) in &mut goals {
            known.extend(view.label(offering, key));
        }
    }
    let met = view.min_values_best_effort || goals.iter().all(|(_, wanted, known)| known.len() >= *wanted);
    (met && !listed.is_empty()).then_some(listed)
}

pub(crate) fn pod_ref(pod: &Pod) -> PodRef {
    PodRef { name: pod.full_name(), uid: pod.uid.clone() }
}

/// References to pods in a plan, sorted by name.
pub(crate) fn pod_refs(pods: &[&Pod]) -> Vec<PodRef> {
    let mut refs: Vec<PodRef> = pods.iter().map(|pod| pod_ref(pod)).collect();
    refs.sort();
    refs
}

pub(crate) struct NewNode<'n> {
    pub(crate) view: &'n PoolView<'n>,
    /// Distinguishes launches without pods.
    pub(crate) number: u64,
    /// Total requests of the pods.
    pub(crate) load: &'n Amounts,
    pub(crate) custom: &'n Narrowed,
    /// Result of [`acceptable`]. Not empty.
    pub(crate) offerings: &'n [Id<Offering>],
}

/// Common data of launches that list the same offerings, computed once and shared.
#[derive(Debug)]
struct Listing {
    choices: Arc<Vec<OfferingChoice>>,
    /// Hash of the choices.
    digest: String,
    /// Without requirements on custom labels.
    requirements: Arc<Vec<NodeSelectorRequirement>>,
    daemons: Amounts,
}

/// Listings of the launches of one plan, by pool and offerings.
#[derive(Debug, Default)]
pub(crate) struct Listings(BTreeMap<(NodePoolName, Vec<Id<Offering>>), Listing>);

impl Listing {
    fn new(view: &PoolView<'_>, offerings: &[Id<Offering>]) -> Self {
        let choice = |index: &Id<Offering>| OfferingChoice {
            instance_type: view.type_name(*index).to_owned(),
            zone: view.offering(*index).zone.clone(),
            capacity_type: view.offering(*index).capacity_type,
            price: view.offering(*index).price,
            reservation: view.offering(*index).reservation_id().map(str::to_owned),
        };
        let choices: Vec<OfferingChoice> = offerings.iter().map(choice).collect();
        let mut hasher = ContentHasher::new("offerings");
        for choice in &choices {
            hasher.text(&format!("{}/{}/{}", choice.instance_type, choice.zone, choice.capacity_type));
            choice.reservation.iter().for_each(|id| hasher.text(id));
        }
        let requirements = sorted(requirements(view, offerings, &choices));
        Self {
            choices: Arc::new(choices),
            digest: hasher.hex(16),
            requirements: Arc::new(requirements),
            daemons: of_daemons(view, offerings),
        }
    }
}

pub(crate) fn launch(context: &SolveContext<'_>, node: &NewNode<'_>, pods: &[&Pod], listings: &mut Listings) -> Launch {
    let NewNode { view, number, load: asked, custom, offerings } = *node;
    let key = (view.pool.name.clone(), offerings.to_vec());
    let listing: &Listing = listings.0.entry(key).or_insert_with(|| Listing::new(view, offerings));
    let Listing { choices, digest, requirements, daemons } = listing;
    let pods = pod_refs(pods);
    let mut hasher = ContentHasher::new("launch");
    hasher.text(&format!("{:?}", context.snapshot.ledger));
    hasher.text(view.pool.name.as_str());
    pods.iter().for_each(|pod| hasher.text(pod.uid.as_str()));
    if pods.is_empty() {
        hasher.text(&number.to_string());
    }
    hasher.text(digest);
    let mut load = asked.clone();
    add(&mut load, daemons, 1);
    let why = crate::explain::launch_reason::text(view.pool, choices, pods.len());
    let pinned = view.custom.pinned(custom);
    let requirements = if pinned.is_empty() {
        Arc::clone(requirements)
    } else {
        Arc::new(sorted(requirements.iter().cloned().chain(pinned).collect()))
    };
    Launch {
        action_id: ActionId(hasher.hex(16)),
        node_pool: view.pool.name.clone(),
        node_class: view.pool.node_class.clone(),
        requirements,
        offerings: Arc::clone(choices),
        requests: context.table.resources(&load),
        taints: view.pool.taints.clone(),
        labels: view.pool.labels.clone(),
        pods,
        prioritized: false,
        why,
    }
}

/// The least of each resource that DaemonSets use on the listed offerings. They may use less on one offering than on
/// another, and a launch must not request more than each of its instance types has.
fn of_daemons(view: &PoolView<'_>, offerings: &[Id<Offering>]) -> Amounts {
    let used = offerings.iter().map(|index| &view.offerings[*index]).map(|offering| -> Amounts {
        let allocatable = &view.types[offering.type_index].allocatable;
        allocatable.iter().zip(&offering.room).map(|(all, room)| all.saturating_sub(*room)).collect()
    });
    let least = |a: Amounts, b: Amounts| -> Amounts { a.into_iter().zip(b).map(|(a, b)| a.min(b)).collect() };
    used.reduce(least).unwrap_or_default()
}

fn sorted(mut requirements: Vec<NodeSelectorRequirement>) -> Vec<NodeSelectorRequirement> {
    requirements.sort();
    requirements.dedup();
    requirements
}

/// Requirements of the pool, and the listed types, architectures, zones and capacity types.
fn requirements(
    view: &PoolView<'_>,
    offerings: &[Id<Offering>],
    choices: &[OfferingChoice],
) -> Vec<NodeSelectorRequirement> {
    let mut all = view.pool.requirements.clone();
    if view.min_values_best_effort {
        all.iter_mut().for_each(|one| lower(view, offerings, one));
    }
    let distinct = |value: fn(&OfferingChoice) -> &str| {
        let values: BTreeSet<&str> = choices.iter().map(value).collect();
        values.into_iter().map(str::to_owned).collect::<Vec<String>>()
    };
    let architectures: BTreeSet<&str> = offerings.iter().filter_map(|one| view.label(*one, label::ARCH)).collect();
    all.push(one_of(label::ARCH, architectures.into_iter().map(str::to_owned).collect()));
    all.push(one_of(label::INSTANCE_TYPE, distinct(|choice| &choice.instance_type)));
    all.push(one_of(label::ZONE, distinct(|choice| &choice.zone)));
    all.push(one_of(label::CAPACITY_TYPE, distinct(|choice| choice.capacity_type.as_str())));
    all
}

/// Lowers `minValues` to the number of values of the listed offerings.
fn lower(view: &PoolView<'_>, offerings: &[Id<Offering>], requirement: &mut NodeSelectorRequirement) {
    let key = label::normalized(&requirement.key);
    if let Some(wanted) = &mut requirement.min_values {
        let values: BTreeSet<&str> = offerings.iter().filter_map(|offering| view.label(*offering, key)).collect();
        *wanted = u32::try_from(values.len()).map_or(*wanted, |have| have.min(*wanted));
    }
}
