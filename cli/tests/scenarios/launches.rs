//! Checks the number and the properties of launches.

use crate::check::{between, counted};
use crate::format::{Expect, LaunchCheck, OneOrMany};
use crate::view::{Place, View, is_like};
use plimsoll_model::names::label;
use plimsoll_model::plan::Launch;
use plimsoll_model::quantity::Quantity;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) fn check(view: &View<'_>, expect: &Expect, faults: &mut Vec<String>) {
    let launches = &view.plan.launches;
    if let Some(wanted) = expect.launches {
        counted("launches", launches.len(), wanted, faults);
    }
    for (pool, wanted) in &expect.launches_of_pool {
        let count = launches.iter().filter(|it| it.node_pool.as_str() == pool).count();
        counted(&format!("launches of pool {pool}"), count, *wanted, faults);
    }
    if let Some(check) = &expect.every_launch {
        if launches.is_empty() {
            faults.push("everyLaunch: there is no launch".to_owned());
        }
        for (number, launch) in launches.iter().enumerate() {
            one(view, number, launch, check, faults);
        }
    }
    for (pattern, check) in &expect.launch_of {
        let mut holding = BTreeMap::new();
        for pod in view.matching(pattern, faults) {
            match view.place(pod) {
                Some(Place::Launch(number, launch)) => drop(holding.insert(number, launch)),
                _ => faults.push(format!("launchOf: {pod} is {}", view.says(pod))),
            }
        }
        for (number, launch) in holding {
            one(view, number, launch, check, faults);
        }
    }
}

fn one(view: &View<'_>, number: usize, launch: &Launch, check: &LaunchCheck, faults: &mut Vec<String>) {
    let name = format!("launch {number}");
    let mut fault = |text: String| faults.push(format!("{name}: {text}"));
    let types: BTreeSet<&str> = launch.offerings.iter().map(|it| it.instance_type.as_str()).collect();
    let Some(chosen) = launch.offerings.first() else { return fault("has no offering".to_owned()) };
    let mut within = |what: &str, values: &BTreeSet<String>, wanted: Option<&OneOrMany>| {
        let Some(wanted) = wanted else { return };
        let outside = values.iter().filter(|value| !wanted.list().iter().any(|it| is_like(value, it)));
        let outside: Vec<&str> = outside.map(String::as_str).collect();
        if !outside.is_empty() || values.is_empty() {
            fault(format!("{what} {} is not among {}", outside.join(", "), wanted.list().join(", ")));
        }
    };
    let single = |text: &str| BTreeSet::from([text.to_owned()]);
    within("the pool", &single(launch.node_pool.as_str()), check.node_pool.as_ref());
    within("the chosen type", &single(&chosen.instance_type), check.instance_type.as_ref());
    within("types", &types.iter().map(|it| (*it).to_owned()).collect(), check.only_types.as_ref());
    within("zones", &view.label(launch, label::ZONE), check.zones.as_ref());
    within("capacity types", &view.label(launch, label::CAPACITY_TYPE), check.capacity_types.as_ref());
    let bought_as = check.bought_as.clone().map(OneOrMany::One);
    within("the chosen capacity type", &single(chosen.capacity_type.as_str()), bought_as.as_ref());
    within("arch", &view.label(launch, label::ARCH), check.arch.clone().map(OneOrMany::One).as_ref());
    for (key, value) in &check.labels {
        within(key, &view.label(launch, key), Some(&OneOrMany::One(value.clone())));
    }
    for (key, values) in &check.label_in {
        within(key, &view.label(launch, key), Some(&OneOrMany::Many(values.clone())));
    }
    for wanted in check.lists_types.iter().flat_map(OneOrMany::list) {
        if !types.contains(wanted) {
            fault(format!("{wanted} is not listed"));
        }
    }
    for text in &check.because {
        if !launch.why.contains(text.as_str()) {
            fault(format!("why does not say {text:?}: {}", launch.why));
        }
    }
    if let Some(wanted) = &check.taints {
        let taints = launch.taints.iter().map(|it| format!("{}={}:{}", it.key, it.value, it.effect.as_str()));
        let taints: BTreeSet<String> = taints.collect();
        if taints != wanted.iter().cloned().collect() {
            fault(format!("taints are {taints:?}"));
        }
    }
    for (resource, wanted) in &check.requests {
        let amount = Quantity::parse(wanted).ok().and_then(|it| it.amount_of(resource));
        let requested = launch.requests.get(resource);
        if amount != Some(requested) {
            fault(format!("requests {requested} of {resource}, not {wanted}"));
        }
    }
    if let Some(wanted) = check.type_count {
        counted(&format!("{name}: types"), types.len(), wanted, faults);
    }
    if let Some(wanted) = check.pods {
        counted(&format!("{name}: pods"), launch.pods.len(), wanted, faults);
    }
    if let Some(range) = check.price {
        between(&format!("{name}: price"), launch.price().usd(), range, faults);
    }
}
