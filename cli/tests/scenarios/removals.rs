//! Checks which nodes are removed, and which stay.

use crate::check::{between, counted};
use crate::format::{Expect, Removal};
use crate::view::View;
use plimsoll_model::plan::Termination;
use std::collections::BTreeMap;

pub(crate) fn check(view: &View<'_>, expect: &Expect, faults: &mut Vec<String>) {
    let going: BTreeMap<&str, &Termination> = view.plan.terminations.iter().map(|it| (it.node.as_str(), it)).collect();
    let is_node = |name: &str| view.snapshot.nodes.iter().any(|node| node.name.as_str() == name);
    for name in &expect.stays {
        if going.contains_key(name.as_str()) {
            faults.push(format!("node {name} goes"));
        }
        if !is_node(name) {
            faults.push(format!("there is no node {name}"));
        }
    }
    if let Some(wanted) = expect.termination_count {
        counted("terminations", going.len(), wanted, faults);
    }
    let nothing = BTreeMap::new();
    let wanted = match &expect.terminations {
        Some(wanted) => wanted,
        None if expect.termination_count.is_some() => return,
        None => &nothing,
    };
    for (name, removal) in wanted {
        match going.get(name.as_str()) {
            Some(termination) => one(termination, removal, faults),
            None => faults.push(format!("node {name} stays")),
        }
    }
    for (name, termination) in going.iter().filter(|(name, _)| !wanted.contains_key(**name)) {
        faults.push(format!("node {name} goes: {}", termination.reason.as_str()));
    }
}

fn one(termination: &Termination, wanted: &Removal, faults: &mut Vec<String>) {
    let name = format!("removal of {}", termination.node);
    let reason = match wanted {
        Removal::Reason(reason) => reason,
        Removal::Details(details) => {
            if let Some(count) = details.replaced_by {
                counted(&format!("{name}: replacements"), termination.replaced_by.len(), count, faults);
            }
            if let Some(count) = details.pods {
                counted(&format!("{name}: pods"), termination.pods.len(), count, faults);
            }
            if let Some(range) = details.saving {
                between(&format!("{name}: saving"), termination.saving.usd(), range, faults);
            }
            &details.reason
        }
    };
    if termination.reason != *reason {
        faults.push(format!("{name}: {}, expected {}", termination.reason.as_str(), reason.as_str()));
    }
}
