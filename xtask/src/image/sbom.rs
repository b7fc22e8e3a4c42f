//! The SBOM of an image, in CycloneDX: the program's crates and the packages of its base.

use super::Release;
use super::context::succeed;
use super::crates::{CrateId, Crates};
use super::oci::Image;
use super::program::{Platform, Program};
use crate::workspace;
use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Script that checks a document against the schema of CycloneDX.
const VALIDATOR: &str = "deploy/images/sbom";
/// Path of the descriptions of Debian packages in an image.
const PACKAGES: &str = "var/lib/dpkg/status.d/";
const STANDARD_LIBRARY: &str = "rust-std";

/// Fields of the description of a Debian package.
type Fields = BTreeMap<String, String>;

/// The document. The same image gives the same document.
///
/// # Errors
/// If the data of a crate or a package is incomplete.
pub(super) fn document(
    program: &Program,
    platform: Platform,
    release: &Release,
    image: &Image,
    crates: &Crates,
) -> Result<String> {
    let linked = crates.linked_by(program.package)?;
    let mut components = Vec::new();
    let mut dependencies = Vec::new();
    for (id, needs) in &linked {
        components.push(crate_component(id, crates)?);
        dependencies
            .push(json!({"ref": reference(id), "dependsOn": needs.iter().map(|id| reference(id)).collect::<Vec<_>>()}));
    }
    components.push(standard_library(&crates.rustc));
    let own = linked.keys().find(|(name, _)| name == program.package).context("the package is not among its crates")?;
    let file = image.read_file(&program.path())?.with_context(|| format!("the image has no {}", program.path()))?;
    components.push(json!({
        "type": "application", "bom-ref": "program", "name": program.image, "version": release.version,
        "hashes": [{"alg": "SHA-256", "content": hex::encode(Sha256::digest(&file))}],
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }));
    let mut in_image = vec![Value::from("program")];
    dependencies.push(json!({"ref": "program", "dependsOn": [reference(own), STANDARD_LIBRARY, "libc6", "libgcc-s1"]}));
    for fields in packages(image)? {
        let component = package_component(&fields, image)?;
        in_image.push(component["bom-ref"].clone());
        components.push(component);
    }
    for needed in ["libc6", "libgcc-s1"] {
        if !in_image.iter().any(|one| one == needed) {
            bail!("/{PACKAGES} does not describe {needed}, which the program links");
        }
    }
    dependencies.push(json!({"ref": "image", "dependsOn": in_image}));
    let document = json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": serial_number(&image.digest)?,
        "version": 1,
        "metadata": {
            "timestamp": release.created()?,
            "tools": {"components": [{"type": "application", "name": "cargo xtask image", "version": release.version}]},
            "component": {
                "type": "container", "bom-ref": "image", "name": program.image, "version": release.version,
                "purl": format!("pkg:oci/{}@sha256%3A{}?arch={platform}", program.image, image.digest),
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
            "properties": [{"name": "plimsoll:revision", "value": release.revision}],
        },
        "components": components,
        "dependencies": dependencies,
    });
    Ok(format!("{document:#}\n"))
}

fn reference((name, version): &CrateId) -> String {
    format!("crate:{name}@{version}")
}

fn crate_component(id: &CrateId, crates: &Crates) -> Result<Value> {
    let (name, version) = id;
    let facts = crates.facts.get(id).with_context(|| format!("cargo metadata does not know {name} {version}"))?;
    let license = facts.license.as_ref().with_context(|| format!("crate {name} {version} names no licence"))?;
    let mut component = json!({
        "type": "library", "bom-ref": reference(id), "name": name, "version": version,
        "licenses": [{"expression": license}],
    });
    // Checksums of registry crates; Plimsoll's own crates are in no registry.
    if let Some(checksum) = &facts.checksum {
        component["purl"] = format!("pkg:cargo/{name}@{}", version.replace('+', "%2B")).into();
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    if let Some(repository) = facts.repository.as_ref().filter(|text| text.starts_with("http")) {
        component["externalReferences"] = json!([{"type": "vcs", "url": repository}]);
    }
    Ok(component)
}

fn standard_library(rustc: &str) -> Value {
    json!({
        "type": "library", "bom-ref": STANDARD_LIBRARY, "name": STANDARD_LIBRARY, "version": rustc,
        "purl": format!("pkg:generic/{STANDARD_LIBRARY}@{rustc}"),
        "licenses": [{"expression": "MIT OR Apache-2.0"}],
    })
}

fn packages(image: &Image) -> Result<Vec<Fields>> {
    let mut all = Vec::new();
    let described = image.entries.iter().filter(|(path, entry)| path.starts_with(PACKAGES) && entry.kind.is_file());
    for (path, _) in described {
        let text = image.read_file(path)?.with_context(|| format!("/{path} has no content"))?;
        all.push(fields(&String::from_utf8(text).with_context(|| format!("/{path}"))?));
    }
    Ok(all)
}

/// Fields of one paragraph; continuation lines are skipped.
fn fields(paragraph: &str) -> Fields {
    let pair = |line: &str| {
        let (key, value) = line.split_once(": ")?;
        (!key.starts_with(' ')).then(|| (key.to_owned(), value.trim().to_owned()))
    };
    paragraph.lines().filter_map(pair).collect()
}

fn package_component(fields: &Fields, image: &Image) -> Result<Value> {
    let field =
        |name: &str| fields.get(name).with_context(|| format!("/{PACKAGES}: a package without {name}: {fields:?}"));
    let (name, version, architecture) = (field("Package")?, field("Version")?, field("Architecture")?);
    let escaped = version.replace('+', "%2B").replace(':', "%3A");
    let mut purl = format!("pkg:deb/debian/{name}@{escaped}?arch={architecture}");
    if let Some(distribution) = distribution(image)? {
        purl.push_str(&format!("&distro={distribution}"));
    }
    // Debian's copyright files are not SPDX expressions.
    let license = format!("see /usr/share/doc/{name}/copyright in the image");
    Ok(json!({
        "type": "library", "bom-ref": name, "name": name, "version": version, "purl": purl,
        "licenses": [{"license": {"name": license}}],
    }))
}

/// Distribution in the format of package URLs, such as debian-12.
fn distribution(image: &Image) -> Result<Option<String>> {
    let Some(text) = image.read_file("usr/lib/os-release")? else { return Ok(None) };
    let text = String::from_utf8_lossy(&text).into_owned();
    let value = |key: &str| {
        text.lines().find_map(|line| line.strip_prefix(key)).map(|value| value.trim_matches('"').to_owned())
    };
    Ok(value("ID=").zip(value("VERSION_ID=")).map(|(id, version)| format!("{id}-{version}")))
}

/// A UUID (version 8: custom) from the digest of the image.
fn serial_number(digest: &str) -> Result<String> {
    let part = |range: std::ops::Range<usize>| digest.get(range).context("the digest of the manifest is too short");
    let (a, b, c, d, e) = (part(0..8)?, part(8..12)?, part(12..15)?, part(15..18)?, part(18..30)?);
    Ok(format!("urn:uuid:{a}-{b}-8{c}-8{d}-{e}"))
}

/// Checks documents against the schema that CycloneDX publishes (needs Python).
///
/// # Errors
/// If a document is invalid, with the location of the error.
pub(super) fn validate(root: &Path, documents: &[PathBuf]) -> Result<()> {
    let folder = root.join(VALIDATOR);
    let python = workspace::script(&folder.join("venv.sh"))?.join("bin/python");
    succeed(Command::new(python).arg(folder.join("validate.py")).args(documents))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_read_without_its_long_text() {
        let found =
            fields("Package: libc6\nVersion: 2.36-9+deb12u14\nDescription: GNU C Library\n Contains: the libraries\n");
        assert_eq!(found.len(), 3);
        assert_eq!(found.get("Version").map(String::as_str), Some("2.36-9+deb12u14"));
        assert!(package_component(&fields("Package: x\n"), &Image::default()).is_err());
    }

    #[test]
    fn package_urls_escape_what_they_must() {
        let parsed = fields("Package: libc6\nVersion: 1:2.36+deb12\nArchitecture: amd64\n");
        let component = package_component(&parsed, &Image::default()).unwrap();
        assert_eq!(component["purl"], "pkg:deb/debian/libc6@1%3A2.36%2Bdeb12?arch=amd64");
    }

    #[test]
    fn serial_numbers_follow_the_image() {
        let (one, other) = ("0123456789abcdef".repeat(4), "1123456789abcdef".repeat(4));
        assert_eq!(serial_number(&one).unwrap(), "urn:uuid:01234567-89ab-8cde-8f01-23456789abcd");
        assert_ne!(serial_number(&one).unwrap(), serial_number(&other).unwrap());
        assert!(serial_number("0123").is_err());
    }

    #[test]
    fn a_crate_without_licence_is_refused_and_one_of_this_repository_has_no_package_url() {
        let id = ("plimsoll-model".to_owned(), "0.1.0".to_owned());
        let mut crates = Crates::default();
        assert!(crate_component(&id, &crates).unwrap_err().to_string().contains("cargo metadata"));
        crates.facts.insert(id.clone(), super::super::crates::Crate::default());
        assert!(crate_component(&id, &crates).unwrap_err().to_string().contains("names no licence"));
        let facts = crates.facts.get_mut(&id).unwrap();
        facts.license = Some("Apache-2.0".to_owned());
        assert!(crate_component(&id, &crates).unwrap().get("purl").is_none());
        crates.facts.get_mut(&id).unwrap().checksum = Some("ab".to_owned());
        assert_eq!(crate_component(&id, &crates).unwrap()["purl"], "pkg:cargo/plimsoll-model@0.1.0");
    }
}
