//! Karpenter's own benchmark mix.

use super::{Types, one_pool, pod};
use crate::manifest::container;
use crate::{Case, Rng};
use plimsoll_model::names::label;
use serde_json::{Value, json};

const LABELS: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];
const CPU_MILLIS: [usize; 5] = [100, 250, 500, 1000, 1500];
const MEMORY_MIB: [usize; 6] = [100, 256, 512, 1024, 2048, 4096];

/// Generates the labels of a pod and the part of its spec that is specific to its kind.
type Parts = fn(&mut Rng) -> (Value, Value);

/// The pods of Karpenter's scheduling benchmark in five equal parts (plain, zonal spread, hostname spread, zonal
/// affinity to the same kind, hostname anti-affinity to the same kind); the rest is plain. Sizes and labels are random.
#[must_use]
pub fn karpenter_mix(seed: u64, pods: usize, types: Types) -> Case {
    let mut rng = Rng::new(seed);
    let mut case = one_pool(seed, types);
    let each = pods / 5;
    let kinds: [(&str, Parts); 4] = [
        ("zonal", |rng| spread(rng, label::ZONE)),
        ("spread", |rng| spread(rng, label::HOSTNAME)),
        ("together", affinity),
        ("apart", anti_affinity),
    ];
    for number in 0..pods - each * kinds.len() {
        let labels = any_label(&mut rng);
        case.objects.push(pod(&format!("plain-{number}"), &labels, &sized(&mut rng)));
    }
    for (name, kind) in kinds {
        for number in 0..each {
            let (labels, constraint) = kind(&mut rng);
            let mut spec = sized(&mut rng);
            for (field, value) in constraint.as_object().into_iter().flatten() {
                spec[field.as_str()] = value.clone();
            }
            case.objects.push(pod(&format!("{name}-{number}"), &labels, &spec));
        }
    }
    case
}

/// A pod of a random size.
pub(super) fn sized(rng: &mut Rng) -> Value {
    let cpu = rng.pick(&CPU_MILLIS).copied().unwrap_or_default();
    let memory = rng.pick(&MEMORY_MIB).copied().unwrap_or_default();
    json!({"containers": [container("app", &format!("{cpu}m"), &format!("{memory}Mi"))]})
}

fn any_label(rng: &mut Rng) -> Value {
    json!({"my-label": rng.text(&LABELS)})
}

/// A spread over pods of a label that need not be the pod's own, as in the original.
fn spread(rng: &mut Rng, key: &str) -> (Value, Value) {
    let selected = any_label(rng);
    let constraint = json!({
        "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": selected},
    });
    (any_label(rng), json!({"topologySpreadConstraints": [constraint]}))
}

fn affinity(rng: &mut Rng) -> (Value, Value) {
    let labels = json!({"my-affinity": rng.text(&LABELS)});
    (labels.clone(), json!({"affinity": {"podAffinity": term(label::ZONE, &labels)}}))
}

fn anti_affinity(_: &mut Rng) -> (Value, Value) {
    let labels = json!({"app": "nginx"});
    (labels.clone(), json!({"affinity": {"podAntiAffinity": term(label::HOSTNAME, &labels)}}))
}

fn term(key: &str, labels: &Value) -> Value {
    json!({"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": key, "labelSelector": {"matchLabels": labels}},
    ]})
}
