//! Input of a self-contained request.

use super::AnswerError;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::plan::PlanOptions;
use plimsoll_model::resources::PODS;
use plimsoll_model::snapshot::{NodePool, Snapshot};
use plimsoll_proto::convert::{ConvertError, check_catalogs};
use plimsoll_proto::{catalog::v1 as catalog_wire, plan::v1 as plan_wire, snapshot::v1 as wire};
use std::collections::BTreeMap;

/// Maximum work budget of a request: ten times the default, which takes minutes on one thread.
pub(crate) const MAX_WORK_BUDGET: u64 = 2_000_000_000;

/// Maximum invalid catalogs that are reported: an error has no more.
const MAX_INVALID_CATALOGS: usize = 20;

/// Protocols of ports in Kubernetes.
const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];

/// A snapshot with its catalogs and the plan options.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SolveInput {
    pub(crate) snapshot: Snapshot,
    pub(crate) catalogs: BTreeMap<CatalogId, Catalog>,
    pub(crate) options: PlanOptions,
}

impl SolveInput {
    pub(crate) fn new(
        snapshot: Option<wire::Snapshot>,
        catalogs: Vec<catalog_wire::Catalog>,
        options: Option<plan_wire::PlanOptions>,
    ) -> Result<Self, AnswerError> {
        let shape_errors = snapshot.iter().flat_map(|it| &it.shapes).enumerate().flat_map(shape_errors);
        let shape_errors = ConvertError::combined(shape_errors);
        let snapshot = snapshot.ok_or_else(|| ConvertError::new("snapshot", "is not set")).and_then(Snapshot::try_from);
        let (catalogs, options) = (catalogs_from_wire(catalogs), options_from_wire(options, "options"));
        // A caller that writes requests by hand wants to know all that is wrong at once.
        let errors = [snapshot.as_ref().err(), shape_errors.as_ref(), catalogs.as_ref().err(), options.as_ref().err()];
        if let Some(error) = ConvertError::combined(errors.into_iter().flatten().cloned()) {
            return Err(error.into());
        }
        let (mut snapshot, catalogs, options) = (snapshot?, catalogs?, options?);
        if let Some(only) = only_catalog(&snapshot, &catalogs) {
            assign_catalog(&mut snapshot, &only);
        }
        check_catalogs(&snapshot, &catalogs.keys().cloned().collect())?;
        Ok(Self { snapshot, catalogs, options })
    }
}

/// What is wrong with a field: its path in the object, and a message.
type Fault = (String, String);

/// Errors of fields that callers forget or get wrong easily, and with which a plan would be wrong: nodes would take any
/// number of pods, a spread would allow none, and ports would not conflict. The watcher always sets them. Not more are
/// computed than the caller takes: there may be millions.
fn shape_errors((index, shape): (usize, &wire::PodShape)) -> impl Iterator<Item = ConvertError> {
    let counts_pods = shape.requests.iter().any(|it| it.name == PODS && it.amount != 0);
    let no_pods = (!counts_pods).then(|| ("requests".to_owned(), "has no \"pods\", of which a pod takes 1".to_owned()));
    let ports = shape.host_ports.iter().enumerate().filter(|(_, it)| !PROTOCOLS.contains(&it.protocol.as_str()));
    let ports = ports
        .map(|(place, _)| (format!("host_ports[{place}].protocol"), format!("is not one of {}", PROTOCOLS.join(", "))));
    let spreads = shape.topology_spread.iter().enumerate().flat_map(|(place, spread)| {
        spread_faults(spread).map(move |(field, fault)| (format!("topology_spread[{place}].{field}"), fault))
    });
    let terms = shape.pod_affinity.iter().enumerate().flat_map(|(place, term)| {
        let faults = selector_faults(term.selector.as_ref());
        faults.map(move |(field, fault)| (format!("pod_affinity[{place}].{field}"), fault))
    });
    let faults = no_pods.into_iter().chain(ports).chain(spreads).chain(terms);
    faults.map(move |(field, fault)| ConvertError::new(format!("snapshot.shapes[{index}].{field}"), fault))
}

fn spread_faults(spread: &wire::TopologySpread) -> impl Iterator<Item = Fault> {
    let least = |field: &str, value: i32| (value < 1).then(|| (field.to_owned(), format!("is less than 1: {value}")));
    let skew = least("max_skew", spread.max_skew);
    let domains = spread.min_domains.and_then(|value| least("min_domains", value));
    skew.into_iter().chain(domains).chain(selector_faults(spread.selector.as_ref()))
}

/// Faults of a selector for pods that Kubernetes does not accept. Such a selector would select nothing.
fn selector_faults(selector: Option<&wire::LabelSelector>) -> impl Iterator<Item = Fault> {
    use wire::NodeSelectorOperator as Operator;
    let expressions = selector.into_iter().flat_map(|selector| &selector.match_expressions).enumerate();
    expressions.filter_map(|(place, expression)| {
        // The conversion reports operators that are unknown or not set.
        let (field, fault) = match (Operator::try_from(expression.operator).ok()?, expression.values.is_empty()) {
            (Operator::In | Operator::NotIn, true) => ("values", "must not be empty for IN and NOT_IN"),
            (Operator::Exists | Operator::DoesNotExist, false) => {
                ("values", "must be empty for EXISTS and DOES_NOT_EXIST")
            }
            (Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte, _) => {
                ("operator", "is not one of IN, NOT_IN, EXISTS, DOES_NOT_EXIST")
            }
            _ => return None,
        };
        Some((format!("selector.match_expressions[{place}].{field}"), fault.to_owned()))
    })
}

/// Returns the only catalog, if there is exactly one and some pool refers to none.
pub(super) fn only_catalog(snapshot: &Snapshot, catalogs: &BTreeMap<CatalogId, Catalog>) -> Option<CatalogId> {
    let only = catalogs.keys().next().filter(|_| catalogs.len() == 1)?;
    snapshot.node_pools.iter().any(lacks_catalog).then(|| only.clone())
}

/// Assigns `catalog` to pools that refer to none.
pub(super) fn assign_catalog(snapshot: &mut Snapshot, catalog: &CatalogId) {
    let pools = snapshot.node_pools.iter_mut().filter(|pool| lacks_catalog(pool));
    pools.for_each(|pool| pool.catalog = Some(catalog.clone()));
}

fn lacks_catalog(pool: &NodePool) -> bool {
    pool.catalog.is_none() && pool.not_ready.is_none()
}

fn catalogs_from_wire(wire: Vec<catalog_wire::Catalog>) -> Result<BTreeMap<CatalogId, Catalog>, ConvertError> {
    let mut catalogs = BTreeMap::new();
    let mut errors = Vec::new();
    for (index, wire) in wire.into_iter().enumerate() {
        match Catalog::try_from(wire) {
            Ok(catalog) => {
                catalogs.insert(catalog.id(), catalog);
            }
            // The converter's path starts at the message; here the message is an element of a list.
            Err(error) => errors
                .push(error.with_paths(|path| format!("catalogs[{index}].{}", path.trim_start_matches("catalog.")))),
        }
        if errors.len() >= MAX_INVALID_CATALOGS {
            break;
        }
    }
    match ConvertError::combined(errors) {
        Some(error) => Err(error),
        None => Ok(catalogs),
    }
}

/// Converts the options of a request, or returns the defaults.
///
/// # Errors
/// An option is out of its bounds, or has a value that is unknown here; errors have their field below `path`.
pub fn options_from_wire(wire: Option<plan_wire::PlanOptions>, path: &str) -> Result<PlanOptions, ConvertError> {
    let Some(wire) = wire else { return Ok(PlanOptions::default()) };
    let error = |field: &str, message: String| ConvertError::new(format!("{path}.{field}"), message);
    let mut errors = Vec::new();
    if wire.work_budget > MAX_WORK_BUDGET {
        errors.push(error("work_budget", format!("is {}, more than {MAX_WORK_BUDGET}", wire.work_budget)));
    }
    // The conversion takes an unknown value for the default.
    if plan_wire::PreferencePolicy::try_from(wire.preference_policy).is_err() {
        errors.push(error("preference_policy", format!("unknown value {}", wire.preference_policy)));
    }
    if plan_wire::MinValuesPolicy::try_from(wire.min_values_policy).is_err() {
        errors.push(error("min_values_policy", format!("unknown value {}", wire.min_values_policy)));
    }
    match ConvertError::combined(errors) {
        Some(error) => Err(error),
        None => Ok(PlanOptions::from(wire)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(expressions: &[(wire::NodeSelectorOperator, &[&str])]) -> Option<wire::LabelSelector> {
        let expressions = expressions.iter().map(|(operator, values)| wire::NodeSelectorRequirement {
            key: "tier".to_owned(),
            operator: (*operator).into(),
            values: values.iter().map(|value| (*value).to_owned()).collect(),
            min_values: None,
        });
        Some(wire::LabelSelector { match_expressions: expressions.collect(), ..wire::LabelSelector::default() })
    }

    fn messages(errors: impl IntoIterator<Item = ConvertError>) -> Vec<String> {
        errors.into_iter().map(|error| error.to_string()).collect()
    }

    #[test]
    fn fields_of_shapes_with_which_a_plan_would_be_wrong_are_rejected() {
        use wire::NodeSelectorOperator as Operator;
        let port = |protocol: &str| wire::HostPort { port: 80, protocol: protocol.to_owned(), ip: String::new() };
        let spread = wire::TopologySpread { max_skew: 1, ..wire::TopologySpread::default() };
        let valid = wire::PodShape {
            requests: vec![wire::ResourceAmount { name: PODS.to_owned(), amount: 1 }],
            host_ports: PROTOCOLS.map(port).into(),
            topology_spread: vec![
                spread.clone(),
                wire::TopologySpread {
                    min_domains: Some(1),
                    selector: selector(&[(Operator::In, &["a"]), (Operator::Exists, &[])]),
                    ..spread.clone()
                },
            ],
            pod_affinity: vec![wire::PodAffinityTerm { selector: selector(&[]), ..Default::default() }],
            ..wire::PodShape::default()
        };
        assert!(shape_errors((0, &valid)).next().is_none());
        let invalid = wire::PodShape {
            requests: Vec::new(),
            host_ports: vec![port("TCP"), port(""), port("tcp")],
            topology_spread: vec![wire::TopologySpread {
                max_skew: 0,
                min_domains: Some(-1),
                selector: selector(&[(Operator::In, &["a"]), (Operator::NotIn, &[])]),
                ..spread
            }],
            pod_affinity: vec![wire::PodAffinityTerm {
                selector: selector(&[(Operator::Exists, &["a"]), (Operator::Gt, &["1"])]),
                ..Default::default()
            }],
            ..valid
        };
        let expected = [
            "snapshot.shapes[7].requests: has no \"pods\", of which a pod takes 1",
            "snapshot.shapes[7].host_ports[1].protocol: is not one of TCP, UDP, SCTP",
            "snapshot.shapes[7].host_ports[2].protocol: is not one of TCP, UDP, SCTP",
            "snapshot.shapes[7].topology_spread[0].max_skew: is less than 1: 0",
            "snapshot.shapes[7].topology_spread[0].min_domains: is less than 1: -1",
            "snapshot.shapes[7].topology_spread[0].selector.match_expressions[1].values: must not be empty for IN and \
             NOT_IN",
            "snapshot.shapes[7].pod_affinity[0].selector.match_expressions[0].values: must be empty for EXISTS and \
             DOES_NOT_EXIST",
            "snapshot.shapes[7].pod_affinity[0].selector.match_expressions[1].operator: is not one of IN, NOT_IN, \
             EXISTS, DOES_NOT_EXIST",
        ];
        assert_eq!(messages(shape_errors((7, &invalid))), expected);
    }

    #[test]
    fn options_with_unknown_values_are_rejected() {
        let read = |change: fn(&mut plan_wire::PlanOptions)| {
            let mut options = plan_wire::PlanOptions::default();
            change(&mut options);
            options_from_wire(Some(options), "options").map_err(|error| error.to_string())
        };
        assert!(read(|_| ()).is_ok());
        assert!(read(|it| it.set_preference_policy(plan_wire::PreferencePolicy::Ignore)).is_ok());
        let unknown = read(|it| (it.preference_policy, it.min_values_policy) = (9, -1));
        let expected = "options.preference_policy: unknown value 9; options.min_values_policy: unknown value -1";
        assert_eq!(unknown, Err(expected.to_owned()));
    }
}
