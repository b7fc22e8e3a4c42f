//! Checks which pods are placed and where, and why others are not.

use crate::check::counted;
use crate::format::{Cause, Expect};
use crate::view::{Place, View, is_like};
use plimsoll_model::plan::{ReasonCode, Unschedulable};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) fn check(view: &View<'_>, expect: &Expect, faults: &mut Vec<String>) {
    for pattern in &expect.placed {
        for pod in view.matching(pattern, faults) {
            if view.place(pod).is_none() {
                faults.push(format!("{pod} has no place"));
            }
        }
    }
    for (pattern, wanted) in &expect.placed_count {
        let count = view.matching(pattern, faults).into_iter().filter(|pod| view.place(pod).is_some()).count();
        counted(&format!("pods {pattern} with a place"), count, *wanted, faults);
    }
    for pattern in &expect.on_launch {
        for pod in view.matching(pattern, faults) {
            if !matches!(view.place(pod), Some(Place::Launch(..))) {
                faults.push(format!("{pod} is {}, not on a launch", view.says(pod)));
            }
        }
    }
    on_nodes(view, expect, faults);
    unschedulable(view, expect, faults);
    ignored(view, expect, faults);
}

fn on_nodes(view: &View<'_>, expect: &Expect, faults: &mut Vec<String>) {
    for (wanted, nodes) in [(true, &expect.on_node), (false, &expect.not_on_node)] {
        for (name, patterns) in nodes {
            if !view.snapshot.nodes.iter().any(|node| node.name.as_str() == name) {
                faults.push(format!("there is no node {name}"));
            }
            for pod in patterns.iter().flat_map(|pattern| view.matching(pattern, faults)).collect::<Vec<_>>() {
                let there = matches!(view.place(pod), Some(Place::Node(node)) if node.name.as_str() == name);
                if there != wanted {
                    faults.push(format!("{pod} is {}; onNode: {wanted} for {name}", view.says(pod)));
                }
            }
        }
    }
}

/// Asserts that exactly the expected pods are unschedulable; by default none.
fn unschedulable(view: &View<'_>, expect: &Expect, faults: &mut Vec<String>) {
    let mut unmatched: BTreeMap<&str, &Unschedulable> =
        view.plan.unschedulable.iter().map(|it| (it.pod.name.as_str(), it)).collect();
    for wanted in expect.unschedulable.iter().flatten() {
        let pods = view.matching(&wanted.pods, faults);
        let found: Vec<&Unschedulable> = pods.iter().filter_map(|pod| unmatched.remove(pod)).collect();
        match wanted.count {
            Some(count) => counted(&format!("unschedulable pods {}", wanted.pods), found.len(), count, faults),
            None if found.len() < pods.len() => {
                let placed: Vec<&str> = pods.iter().filter(|it| view.place(it).is_some()).copied().collect();
                faults.push(format!("not unschedulable: {}", placed.join(", ")));
            }
            None => {}
        }
        for (pool, cause) in &wanted.because {
            for pod in &found {
                because(pod, pool, cause, faults);
            }
        }
    }
    for pod in unmatched.values() {
        let reasons: Vec<String> =
            pod.reasons.iter().map(|it| format!("{} {}: {}", it.node_pool, it.code.as_str(), it.message)).collect();
        faults.push(format!("{} has no place: {}", pod.pod.name, reasons.join("; ")));
    }
}

fn because(pod: &Unschedulable, pool: &str, cause: &Cause, faults: &mut Vec<String>) {
    let of_pool = if pool == "pod" { "" } else { pool };
    let (codes, says): (Vec<&str>, &[String]) = match cause {
        Cause::Code(code) => (vec![code], &[]),
        Cause::Says(it) => (it.code.list(), &it.says),
    };
    let known: BTreeSet<&str> = ReasonCode::ALL.iter().map(|it| it.as_str()).collect();
    faults.extend(codes.iter().filter(|it| !known.contains(*it)).map(|code| format!("{code} is no code")));
    let mut reasons = pod.reasons.iter().filter(|it| it.node_pool == of_pool);
    let fits = reasons.any(|it| codes.contains(&it.code.as_str()) && says.iter().all(|text| it.message.contains(text)));
    if !fits {
        let is: Vec<String> =
            pod.reasons.iter().map(|it| format!("{} {}: {}", it.node_pool, it.code.as_str(), it.message)).collect();
        faults.push(format!("{}: {pool}: {codes:?} {says:?} expected, is {}", pod.pod.name, is.join("; ")));
    }
}

fn ignored(view: &View<'_>, expect: &Expect, faults: &mut Vec<String>) {
    let mut unmatched: BTreeMap<&str, &str> =
        view.plan.ignored.iter().map(|it| (it.pod.as_str(), it.reason.as_str())).collect();
    for (pattern, text) in &expect.ignored {
        for pod in view.matching(pattern, faults) {
            match unmatched.remove(pod) {
                None => faults.push(format!("{pod} is not ignored")),
                Some(reason) if !is_like(reason, &format!("*{text}*")) => {
                    faults.push(format!("{pod} is ignored for another reason: {reason}"));
                }
                Some(_) => {}
            }
        }
    }
    faults.extend(unmatched.iter().map(|(pod, reason)| format!("{pod} is ignored: {reason}")));
}
