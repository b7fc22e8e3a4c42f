//! Checks which pods share a zone, a host or another domain.

use crate::check::counted;
use crate::format::{Apart, Domains, Expect, Together};
use crate::view::View;
use std::collections::BTreeMap;

pub(crate) fn check(view: &View<'_>, expect: &Expect, faults: &mut Vec<String>) {
    for it in &expect.domains {
        spread(view, it, faults);
    }
    for it in &expect.together {
        together(view, it, faults);
    }
    for it in &expect.apart {
        apart(view, it, faults);
    }
}

/// Placed pods that match the pattern, by domain. A place with an open domain is a fault.
fn by_domain<'v>(
    view: &'v View<'_>,
    pattern: &str,
    key: &str,
    faults: &mut Vec<String>,
) -> BTreeMap<String, Vec<&'v str>> {
    let mut pods_by_domain: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for pod in view.matching(pattern, faults) {
        match view.domain(pod, key) {
            Some(domain) => pods_by_domain.entry(domain).or_default().push(pod),
            None if view.place(pod).is_some() => faults.push(format!("{pod}: {key} is left open {}", view.says(pod))),
            None => {}
        }
    }
    if pods_by_domain.is_empty() {
        faults.push(format!("none of {pattern} has a place with one {key}"));
    }
    pods_by_domain
}

fn spread(view: &View<'_>, wanted: &Domains, faults: &mut Vec<String>) {
    let pods_by_domain = by_domain(view, &wanted.pods, &wanted.key, faults);
    let counts: BTreeMap<String, usize> =
        pods_by_domain.iter().map(|(domain, pods)| (domain.clone(), pods.len())).collect();
    let name = format!("{} by {}: {counts:?}", wanted.pods, wanted.key);
    if let Some(most) = wanted.max_skew {
        let over = wanted.over.iter().chain(counts.keys());
        let pod_counts: Vec<usize> = over.map(|domain| counts.get(domain).copied().unwrap_or(0)).collect();
        let skew = pod_counts.iter().max().unwrap_or(&0) - pod_counts.iter().min().unwrap_or(&0);
        if skew > most {
            faults.push(format!("{name}: skew {skew}, at most {most} expected"));
        }
    }
    if let Some(count) = wanted.used {
        counted(&format!("{name}: domains"), counts.len(), count, faults);
    }
    if wanted.counts.as_ref().is_some_and(|it| *it != counts) {
        faults.push(format!("{name}, expected {:?}", wanted.counts));
    }
    if wanted.most.is_some_and(|most| counts.values().any(|count| *count > most)) {
        faults.push(format!("{name}: more than {:?} in one", wanted.most));
    }
}

fn together(view: &View<'_>, wanted: &Together, faults: &mut Vec<String>) {
    let mut domains: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for pattern in &wanted.pods {
        for (domain, pods) in by_domain(view, pattern, &wanted.key, faults) {
            domains.entry(domain).or_default().extend(pods);
        }
    }
    if domains.len() > 1 {
        faults.push(format!("not together by {}: {domains:?}", wanted.key));
    }
}

fn apart(view: &View<'_>, wanted: &Apart, faults: &mut Vec<String>) {
    let ours = by_domain(view, &wanted.pods, &wanted.key, faults);
    match &wanted.from {
        None => {
            for (domain, pods) in ours.iter().filter(|(_, pods)| pods.len() > 1) {
                faults.push(format!("{} are all in {domain}", pods.join(", ")));
            }
        }
        Some(other) => {
            for (domain, pods) in by_domain(view, other, &wanted.key, faults) {
                if let Some(ours) = ours.get(&domain) {
                    faults.push(format!("{} and {} are both in {domain}", ours.join(", "), pods.join(", ")));
                }
            }
        }
    }
}
