//! From a request to its answer. The same request with the same time gets the same bytes in every process.

use crate::lines;
use plimsoll_catalog::file;
use plimsoll_manifests::{ManifestError, Manifests, Offers, Place, Question, QuestionError, Text, read_json};
use plimsoll_model::time::Timestamp;
use plimsoll_proto::convert::{ConvertError, unshared_sizes, with_shared_lists, with_shared_reasons};
use plimsoll_proto::objects::v1::{IgnoredKind, PlanObjectsRequest, PlanObjectsResponse};
use plimsoll_scheduler::answer::{AnswerError, in_process, options_from_wire, place_waiting};
use plimsoll_solver::Cancel;
use std::collections::BTreeMap;

/// Maximum pods of a request after the expansion of workloads: about as many as a `Plan` request of the maximum size
/// has.
pub const MAX_PODS: usize = 100_000;

/// Maximum JSON values of a request: 20 for each pod. A value of two bytes takes some hundred when it is read.
const MAX_VALUES: usize = 2_000_000;

/// Latest time of a request: the end of the year 9998. A later one is in other units, such as nanoseconds.
const MAX_TIME: i64 = 253_370_764_799_999;

/// Maximum faults of objects that are reported: an error has no more.
const MAX_FAULTS: usize = 20;

/// Maximum lines about unknown fields: the objects of a server of one version have few.
const MAX_UNKNOWN_FIELDS: usize = 100;

/// Makes the plan for Kubernetes objects, at the time `now` unless the request has one.
///
/// # Errors
/// INVALID_ARGUMENT with all faults of the request, each with object and field; INTERNAL if the plan fails validation.
pub fn plan_objects(
    request: PlanObjectsRequest,
    now: Timestamp,
    cancel: &Cancel,
) -> Result<PlanObjectsResponse, AnswerError> {
    let PlanObjectsRequest { objects, region, catalog_json, now_unix_ms, options, shared_lists } = request;
    let values: usize = objects.iter().map(|text| most_values(text)).sum();
    if values > MAX_VALUES {
        let message = format!("have {values} JSON values, more than {MAX_VALUES}");
        return Err(ConvertError::new("objects", message).into());
    }
    let texts =
        objects.into_iter().enumerate().map(|(index, content)| Text { name: format!("objects[{index}]"), content });
    let manifests = read_json(&texts.collect::<Vec<_>>(), MAX_PODS).map_err(|errors| errors.0);
    let offers = offers(region, &catalog_json);
    let options = options_from_wire(options, "options");
    let time = now_unix_ms.map(time).transpose();
    let mut faults: Vec<ConvertError> = Vec::new();
    faults.extend(offers.as_ref().err().cloned());
    faults.extend(options.as_ref().err().cloned());
    faults.extend(time.as_ref().err().cloned());
    faults.extend(manifests.as_ref().err().into_iter().flatten().take(MAX_FAULTS).map(fault));
    if let Some(error) = ConvertError::combined(faults) {
        return Err(error.into());
    }
    let (offers, options) = (offers?, options?);
    let manifests = manifests.unwrap_or_default();
    let now = time?.unwrap_or(now);
    let Question { snapshot, catalogs } = question(&manifests, &offers, now)?;
    let mut plan = in_process::plan(&snapshot, &catalogs, &options, cancel)?;
    place_waiting(&snapshot, &mut plan);
    let ignored = manifests
        .ignored
        .into_iter()
        .map(|(kind, count)| IgnoredKind { kind, count: u32::try_from(count).unwrap_or(u32::MAX) });
    // A caller that does not ask for shared lists may not know `like` of unschedulable pods.
    let wire_plan = if shared_lists {
        with_shared_reasons(&plan)
    } else {
        // Before the reasons are repeated, which may take far more memory than a response may.
        AnswerError::check_size(unshared_sizes(&plan).1)?;
        with_shared_lists(&plan)
    };
    let lines = unknown_fields(&manifests.unknown_fields).into_iter().chain(lines::of(&plan)).collect();
    Ok(PlanObjectsResponse { lines, plan: Some(wire_plan), ignored: ignored.collect() })
}

/// Number of values of a JSON text: each is the first, or follows a bracket or a comma. An empty list or object counts
/// as two.
fn most_values(text: &str) -> usize {
    let (mut count, mut in_string, mut escaped) = (1, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b'[' | b'{' | b',' if !in_string => count += 1,
            _ => {}
        }
    }
    count
}

/// Lines about fields that are unknown here, with the number of each.
fn unknown_fields(fields: &BTreeMap<String, usize>) -> Vec<String> {
    let line =
        |(field, count): (&String, &usize)| format!("{field} is ignored, since no such field is known ({count})");
    let more = fields.len().saturating_sub(MAX_UNKNOWN_FIELDS);
    let rest = (more > 0).then(|| format!("{more} more fields are ignored, since they are not known"));
    fields.iter().take(MAX_UNKNOWN_FIELDS).map(line).chain(rest).collect()
}

/// The time of the request. Budgets have schedules, which need a date.
fn time(unix_ms: i64) -> Result<Timestamp, ConvertError> {
    if (0..=MAX_TIME).contains(&unix_ms) {
        return Ok(Timestamp(unix_ms));
    }
    let message = format!("is {unix_ms}, not a time in milliseconds since the Unix epoch");
    Err(ConvertError::new("now_unix_ms", message))
}

fn offers(region: String, catalog: &str) -> Result<Offers, ConvertError> {
    if catalog.is_empty() {
        let region = Some(region).filter(|region| !region.is_empty());
        return Offers::of_region(region).map_err(|error| ConvertError::new("region", error.to_string()));
    }
    if !region.is_empty() {
        return Err(ConvertError::new("region", "must be empty if catalog_json is set, which has a region of its own"));
    }
    match file::parse(catalog) {
        Ok(catalog) => Ok(Offers::Catalog(Box::new(catalog))),
        Err(error) => Err(ConvertError::new("catalog_json", error.to_string())),
    }
}

fn question(manifests: &Manifests, offers: &Offers, now: Timestamp) -> Result<Question, ConvertError> {
    manifests.question(offers, &|_| {}, now).map_err(|error| match error {
        QuestionError::Manifests(errors) => ConvertError::combined(errors.0.iter().map(fault))
            .unwrap_or_else(|| ConvertError::new("objects", errors.to_string())),
        QuestionError::Region(error) => ConvertError::new("region", error.to_string()),
    })
}

/// A fault of an object, with the path of the field in the request: `objects[0].items[2].spec.replicas`.
fn fault(error: &ManifestError) -> ConvertError {
    match error {
        ManifestError::Unreadable { path, problem } => ConvertError::new(path, problem),
        ManifestError::Document { place, problem } => ConvertError::new(path(place), problem),
        ManifestError::Field { place, object, field, problem } => {
            let field = if field.is_empty() { path(place) } else { format!("{}.{field}", path(place)) };
            ConvertError::new(field, format!("{object}: {problem}"))
        }
        ManifestError::Duplicate { object, first, second } => {
            ConvertError::new(path(second), format!("{object} is also in {}", path(first)))
        }
    }
}

fn path(place: &Place) -> String {
    let item = place.item.map(|item| format!(".items[{item}]")).unwrap_or_default();
    let file = if place.file.is_empty() { "objects" } else { &*place.file };
    format!("{file}{item}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_with_too_many_values_are_refused_before_they_are_read() {
        assert_eq!(most_values(r#"{"a": "[,\"{", "b": [1, 2], "c\\": "["}"#), 6);
        assert_eq!((most_values(""), most_values("{}")), (1, 2));
        let refused = |objects: Vec<String>| {
            let request = PlanObjectsRequest { objects, ..PlanObjectsRequest::default() };
            plan_objects(request, Timestamp(0), &Cancel::default()).unwrap_err().to_string()
        };
        let zeros = |count: usize| format!("[{}0]", "0,".repeat(count - 1));
        let expected = "objects: have 2000002 JSON values, more than 2000000";
        assert_eq!(refused(vec![zeros(1_000_000), zeros(1_000_000)]), expected);
        assert_eq!(refused(vec![String::new(); MAX_VALUES + 2]), expected);
        assert!(refused(vec![zeros(1_000_000)]).starts_with("objects[0]: not an object"));
    }

    #[test]
    fn times_in_other_units_are_refused() {
        for valid in [0, 1_780_000_000_000, MAX_TIME] {
            assert_eq!(time(valid), Ok(Timestamp(valid)));
        }
        let nanoseconds = time(1_780_000_000_000_000_000).unwrap_err().to_string();
        let expected = "is 1780000000000000000, not a time in milliseconds since the Unix epoch";
        assert_eq!(nanoseconds, format!("now_unix_ms: {expected}"));
        assert!(time(-1).is_err());
    }

    #[test]
    fn lines_about_unknown_fields_are_bounded() {
        let fields = |count: usize| (0..count).map(|number| (format!("Pod spec.f{number:03}"), 2)).collect();
        let lines = unknown_fields(&fields(MAX_UNKNOWN_FIELDS));
        assert_eq!(lines.len(), MAX_UNKNOWN_FIELDS);
        assert_eq!(lines[0], "Pod spec.f000 is ignored, since no such field is known (2)");
        let lines = unknown_fields(&fields(MAX_UNKNOWN_FIELDS + 7));
        assert_eq!(lines.len(), MAX_UNKNOWN_FIELDS + 1);
        assert_eq!(lines[MAX_UNKNOWN_FIELDS], "7 more fields are ignored, since they are not known");
    }
}
