//! Crates that a program links, as cargo resolves them for the four packages that are built together.

use super::program::{PROGRAMS, Platform};
use crate::workspace;
use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Name and version of a crate.
pub(super) type CrateId = (String, String);

/// Properties of a crate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Crate {
    /// SPDX expression.
    pub(super) license: Option<String>,
    /// URL of its repository.
    pub(super) repository: Option<String>,
    /// SHA-256 of its archive, in hexadecimal; Plimsoll's own crates have none.
    pub(super) checksum: Option<String>,
}

/// Linked crates and their dependencies.
#[derive(Debug, Default)]
pub(super) struct Crates {
    pub(super) facts: BTreeMap<CrateId, Crate>,
    edges: BTreeMap<CrateId, BTreeSet<CrateId>>,
    /// Version of rustc, whose standard library is linked too.
    pub(super) rustc: String,
}

impl Crates {
    /// Crates that a package's programs link, including the package, each with its direct dependencies.
    ///
    /// # Errors
    /// If the output of cargo does not contain the package.
    pub(super) fn linked_by(&self, package: &str) -> Result<BTreeMap<&CrateId, Vec<&CrateId>>> {
        let start = self.edges.keys().find(|(name, _)| name == package);
        let mut open = vec![start.with_context(|| format!("cargo tree printed nothing for {package}"))?];
        let mut linked = BTreeMap::new();
        // Terminates, because each crate is opened once.
        while let Some(id) = open.pop() {
            if !linked.contains_key(id) {
                let needs: Vec<_> = self.edges.get(id).into_iter().flatten().collect();
                open.extend(&needs);
                linked.insert(id, needs);
            }
        }
        Ok(linked)
    }
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    repository: Option<String>,
}

#[derive(Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    version: String,
    checksum: Option<String>,
}

#[derive(Deserialize)]
struct Toolchain {
    toolchain: Channel,
}

#[derive(Deserialize)]
struct Channel {
    channel: String,
}

/// Reads the crates from cargo.
///
/// # Errors
/// If cargo fails, or its output cannot be parsed.
pub(super) fn of_programs(root: &Path, platform: Platform) -> Result<Crates> {
    let triple = platform.triple();
    // Features of this selection of packages, without build dependencies and macros, which run in the compiler.
    let mut tree =
        vec!["tree", "--locked", "--edges=normal,no-proc-macro", "--prefix=depth", "--format={p}", "--target", &triple];
    for program in &PROGRAMS {
        tree.extend(["--package", program.package]);
    }
    let edges = edges(&cargo(root, &tree)?)?;
    let metadata = cargo(root, &["metadata", "--locked", "--format-version=1", "--filter-platform", &triple])?;
    let metadata: Metadata = serde_json::from_str(&metadata).context("cargo metadata")?;
    let read = |name: &str| std::fs::read_to_string(root.join(name)).with_context(|| format!("reading {name}"));
    let lock: Lock = toml::from_str(&read("Cargo.lock")?).context("Cargo.lock")?;
    let toolchain: Toolchain = toml::from_str(&read("rust-toolchain.toml")?).context("rust-toolchain.toml")?;
    let mut checksums: BTreeMap<CrateId, String> = lock
        .package
        .into_iter()
        .filter_map(|package| Some(((package.name, package.version), package.checksum?)))
        .collect();
    let facts = metadata.packages.into_iter().map(|package| {
        let id = (package.name, package.version);
        let license = package.license.as_deref().map(spdx);
        let checksum = checksums.remove(&id);
        (id, Crate { license, repository: package.repository, checksum })
    });
    Ok(Crates { facts: facts.collect(), edges, rustc: toolchain.toolchain.channel })
}

fn cargo(root: &Path, args: &[&str]) -> Result<String> {
    let output = workspace::cargo().current_dir(root).args(args).output().context("starting cargo")?;
    if !output.status.success() {
        bail!("cargo {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).context("cargo did not write UTF-8")
}

/// Licences of old crates have a slash where SPDX has OR.
fn spdx(license: &str) -> String {
    license.split('/').map(str::trim).collect::<Vec<_>>().join(" OR ")
}

/// Parses `cargo tree --prefix=depth --format={p}`: a number, a name, a version, and remarks such as `(*)`, which means
/// that the dependencies were listed before.
fn edges(text: &str) -> Result<BTreeMap<CrateId, BTreeSet<CrateId>>> {
    let mut edges: BTreeMap<CrateId, BTreeSet<CrateId>> = BTreeMap::new();
    let mut path: Vec<CrateId> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let (depth, id) = parse(line).with_context(|| format!("cargo tree: {line:?} is not understood"))?;
        if depth > path.len() {
            bail!("cargo tree: {line:?} has no parent");
        }
        path.truncate(depth);
        if let Some(parent) = path.last() {
            edges.entry(parent.clone()).or_default().insert(id.clone());
        }
        edges.entry(id.clone()).or_default();
        path.push(id);
    }
    Ok(edges)
}

fn parse(line: &str) -> Option<(usize, CrateId)> {
    let name_at = line.find(|letter: char| !letter.is_ascii_digit())?;
    let (depth, rest) = line.split_at(name_at);
    let mut words = rest.split(' ');
    let name = words.next()?;
    let version = words.next()?.strip_prefix('v')?;
    Some((depth.parse().ok()?, (name.to_owned(), version.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> CrateId {
        (name.to_owned(), "1.0.0".to_owned())
    }

    #[test]
    fn a_tree_is_read_with_what_it_told_before() {
        let text = "0a v1.0.0 (/x/a)\n1b v1.0.0\n2c v1.0.0\n1d v1.0.0\n\n0e v1.0.0 (/x/e)\n1b v1.0.0 (*)\n";
        let crates = Crates { edges: edges(text).unwrap(), ..Crates::default() };
        let of = |package: &str| crates.linked_by(package).unwrap().into_keys().cloned().collect::<Vec<_>>();
        assert_eq!(of("a"), ["a", "b", "c", "d"].map(id));
        assert_eq!(of("e"), ["b", "c", "e"].map(id));
        assert!(crates.linked_by("f").is_err());
    }

    #[test]
    fn what_is_not_a_tree_is_an_error() {
        assert!(edges("2a v1.0.0\n").is_err());
        assert!(edges("0a 1.0.0\n").is_err());
        assert!(edges("error: no such package\n").is_err());
    }

    #[test]
    fn old_licences_become_expressions() {
        assert_eq!(spdx("MIT/Apache-2.0"), "MIT OR Apache-2.0");
        assert_eq!(spdx("Apache-2.0 OR MIT"), "Apache-2.0 OR MIT");
    }

    #[test]
    fn each_program_links_what_it_needs_and_no_tool_of_the_build() {
        let (root, _) = workspace::folders().unwrap();
        let crates = of_programs(&root, Platform::Amd64).unwrap();
        let names = |package: &str| -> BTreeSet<String> {
            crates.linked_by(package).unwrap().into_keys().map(|(name, _)| name.clone()).collect()
        };
        let (scheduler, actuator) = (names("plimsoll-objects"), names("plimsoll-actuator-aws"));
        assert!(scheduler.contains("tonic") && !scheduler.contains("aws-sdk-ec2"));
        assert!(actuator.contains("aws-sdk-ec2") && actuator.contains("kube") && !actuator.contains("plimsoll-solver"));
        for tool in ["serde_derive", "cc", "proptest", "tonic-prost-build"] {
            assert!(!scheduler.contains(tool) && !actuator.contains(tool), "{tool} is not linked");
        }
        for (id, _) in crates.linked_by("plimsoll-actuator-aws").unwrap() {
            let facts = crates.facts.get(id).unwrap();
            assert!(facts.license.is_some(), "{id:?} has no licence");
            assert_eq!(facts.checksum.is_none(), id.0.starts_with("plimsoll-"), "{id:?}");
        }
    }
}
