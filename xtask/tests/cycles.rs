//! Checks that the top-level modules of a crate have no import cycles, and that only one module of the actuator holds
//! the clients with side effects.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers fail by panicking")]

mod common;

use common::{members, root};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// Crates that still have a cycle. The list must only shrink: a crate is removed from it with its last cycle.
const WITH_CYCLES: &[&str] = &["api", "model", "scheduler/solver", "snapshot", "tests/workloads"];

/// Files of the actuator that may use the cluster's client, with the reason.
const CLIENT_HOLDERS: &[(&str, &str)] = &[
    ("cluster_facts.rs", "reads facts of the cluster, also on standbys"),
    ("events.rs", "hands the client to its queue"),
    ("events/queue.rs", "writes Events, also on standbys: nothing rests on them"),
    ("service.rs", "is given the client and hands it on"),
    ("stores.rs", "watches, also on standbys"),
];

/// Product code of a crate: each Rust file in `src` by path, without tests and comments.
fn sources(member: &str) -> BTreeMap<String, String> {
    let folder = root().join(member).join("src");
    let mut found = BTreeMap::new();
    let mut open = vec![folder.clone()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(&next).unwrap_or_else(|error| panic!("{}: {error}", next.display())) {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(&folder).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() && !path.ends_with("tests") && !path.ends_with("gen") {
                open.push(path);
            } else if name.ends_with(".rs") && !path.ends_with("tests.rs") {
                found.insert(name, code(&fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(!found.is_empty(), "{member}: looked in the wrong place");
    found
}

/// Code without comments, and without the tests at the end of the file.
fn code(text: &str) -> String {
    let product = text.lines().take_while(|line| *line != "#[cfg(test)]");
    product.filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The top-level module of a file.
fn module_of(file: &str) -> &str {
    let first = file.split('/').next().unwrap_or(file);
    first.strip_suffix(".rs").unwrap_or(first)
}

/// First segments of the paths that follow `prefix`: those of `prefix::a::b` and of `prefix::{a::b, c}`.
fn first_segments<'a>(text: &'a str, prefix: &str) -> Vec<&'a str> {
    let mut segments = Vec::new();
    for (at, _) in text.match_indices(prefix) {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|before| before.is_alphanumeric() || before == '_' || before == ':') {
            continue;
        }
        let rest = &text[at + prefix.len()..];
        match rest.strip_prefix('{') {
            Some(group) => segments.extend(segments_of_group(group)),
            None => segments.push(identifier(rest)),
        }
    }
    segments
}

fn identifier(text: &str) -> &str {
    let end = text.find(|character: char| !character.is_alphanumeric() && character != '_').unwrap_or(text.len());
    &text[..end]
}

/// First segments of the items of a group, up to its closing brace.
fn segments_of_group(group: &str) -> Vec<&str> {
    let (mut depth, mut at_start, mut found) = (0_u32, true, Vec::new());
    for (at, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => at_start = true,
            character if at_start && !character.is_whitespace() => {
                found.push(identifier(&group[at..]));
                at_start = false;
            }
            _ => {}
        }
    }
    found
}

/// Imports between top-level modules. A re-export by the root of the crate counts as its module.
fn imports(files: &BTreeMap<String, String>) -> BTreeMap<String, BTreeSet<String>> {
    let is_root = |file: &str| ["lib", "main"].contains(&module_of(file));
    let modules: BTreeSet<&str> = files.keys().filter(|file| !is_root(file)).map(|file| module_of(file)).collect();
    let exports: BTreeMap<&str, &str> = files.get("lib.rs").map(|text| exports(text, &modules)).unwrap_or_default();
    let mut imports = BTreeMap::new();
    for (file, text) in files.iter().filter(|(file, _)| !is_root(file)) {
        let own = module_of(file);
        let supers = "super::".repeat(file.split('/').count());
        let named = first_segments(text, "crate::").into_iter().chain(first_segments(text, &supers));
        let of_name = |name: &str| modules.get(name).or_else(|| exports.get(name)).map(|module| (*module).to_owned());
        let entry: &mut BTreeSet<String> = imports.entry(own.to_owned()).or_default();
        entry.extend(named.filter_map(of_name).filter(|module| module != own));
    }
    imports
}

/// Re-exports of the root, with their modules.
fn exports<'a>(root: &'a str, modules: &BTreeSet<&'a str>) -> BTreeMap<&'a str, &'a str> {
    let mut found = BTreeMap::new();
    for statement in root.split("pub use ").skip(1).filter_map(|rest| rest.split(';').next()) {
        let module = identifier(statement);
        if let (Some(module), Some((_, names))) = (modules.get(module), statement.rsplit_once("::")) {
            let names = names.strip_prefix('{').map_or_else(|| vec![identifier(names)], segments_of_group);
            found.extend(names.into_iter().map(|name| (name, *module)));
        }
    }
    found
}

/// The largest set of modules that import each other, directly or indirectly.
fn largest_cycle(imports: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let reached = |from: &str| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from.to_owned()]);
        while let Some(next) = open.pop() {
            for import in imports.get(&next).into_iter().flatten() {
                if seen.insert(import.clone()) {
                    open.push(import.clone());
                }
            }
        }
        seen
    };
    let all: BTreeMap<&String, BTreeSet<String>> = imports.keys().map(|module| (module, reached(module))).collect();
    let cycle = |module: &String| -> BTreeSet<String> {
        all[module].iter().filter(|other| all.get(other).is_some_and(|back| back.contains(module))).cloned().collect()
    };
    imports.keys().map(cycle).max_by_key(BTreeSet::len).unwrap_or_default()
}

#[test]
fn modules_do_not_import_each_other_in_a_circle() {
    for member in members().iter().filter(|member| root().join(member).join("src").is_dir()) {
        let files = sources(member);
        let cycle = largest_cycle(&imports(&files));
        if WITH_CYCLES.contains(&member.as_str()) {
            assert!(!cycle.is_empty(), "{member} has no cycle: remove it from WITH_CYCLES");
            continue;
        }
        let concerned = files.keys().filter(|file| cycle.contains(module_of(file))).count();
        assert!(cycle.is_empty(), "{member}: {concerned} files of these modules import each other: {cycle:?}");
    }
}

#[test]
fn a_cycle_is_found_whichever_way_it_is_written() {
    let files = |texts: &[(&str, &str)]| -> BTreeMap<String, String> {
        texts.iter().map(|(file, text)| ((*file).to_owned(), code(text))).collect()
    };
    let cycle = |texts: &[(&str, &str)]| largest_cycle(&imports(&files(texts))).into_iter().collect::<Vec<_>>();
    let b = ("b.rs", "use crate::a::A;");
    assert_eq!(cycle(&[("a.rs", "use crate::b::B;"), b]), ["a", "b"]);
    assert_eq!(cycle(&[("a/x.rs", "use crate::{std, b::{self, c}};"), b]), ["a", "b"]);
    assert_eq!(cycle(&[("a.rs", "use super::b;"), b]), ["a", "b"]);
    assert_eq!(cycle(&[("a/x.rs", "use super::super::b;"), b]), ["a", "b"]);
    assert_eq!(cycle(&[("lib.rs", "pub use b::{B};"), ("a.rs", "use crate::B;"), b]), ["a", "b"]);
    assert!(cycle(&[("a/x.rs", "use super::b;"), b]).is_empty(), "a::b");
    assert!(cycle(&[("a.rs", "// crate::b\n#[cfg(test)]\nuse crate::b;"), b]).is_empty(), "tests and comments");
}

#[test]
fn only_io_can_have_an_effect() {
    let holders: BTreeMap<_, _> = CLIENT_HOLDERS.iter().copied().collect();
    for (file, text) in sources("actuator") {
        let names = text.contains("kube::Client") || text.contains("Client>") || text.contains("Client,");
        let allowed = module_of(&file) == "io" || holders.contains_key(file.as_str());
        assert!(allowed || !names, "actuator/src/{file} names the cluster's client: writes go through io::Writes");
    }
}
