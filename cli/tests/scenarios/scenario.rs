//! One scenario: reads it, plans it, and checks the plan.

use crate::check;
use crate::format::{Given, Header};
use plimsoll_cli::manifests;
use plimsoll_cli::offline::{self, Answer, Offers};
use plimsoll_model::plan::{MinValuesPolicy, PlanOptions, PreferencePolicy};
use plimsoll_model::time::Timestamp;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};

/// Default time; no manifest depends on it unless the scenario sets a time.
const NOW: &str = "2026-06-01T12:00:00Z";
/// Default catalog.
const CATALOG: &str = "catalog.json";
/// Environment variable that makes scenarios print their plans.
const SHOW: &str = "PLIMSOLL_SHOW_PLAN";

/// Folder of the scenarios.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/scenarios")
}

/// A scenario.
pub(crate) struct Scenario {
    /// Path of the file, relative to the folder of scenarios.
    file: String,
    header: Header,
    paths: Vec<PathBuf>,
}

impl Scenario {
    /// Reads the file.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let file = path.strip_prefix(root()).unwrap_or(path).display().to_string();
        let text = fs::read_to_string(path).map_err(|error| format!("{file}: {error}"))?;
        let header = header(&text).map_err(|problem| format!("{file}: {problem}"))?;
        let mut paths: Vec<PathBuf> = header.given.with.iter().map(|it| root().join("common").join(it)).collect();
        paths.push(path.to_owned());
        Ok(Self { file, header, paths })
    }

    /// Plans and compares. The error contains all deviations.
    pub(crate) fn run(&self) -> Result<(), String> {
        let outcome = self.plan(|| manifests::read(&self.paths, &mut std::io::empty()));
        let mut faults = Vec::new();
        let shown = match (&outcome, self.header.expect.error.is_empty()) {
            (Ok(answer), true) => {
                check::check(answer, &self.header.expect, &mut faults);
                self.shuffled(answer, &mut faults)?;
                self.trimmed(answer, &mut faults)?;
                answer.table()
            }
            (Ok(answer), false) => {
                faults.push("bad input was expected, but there is a plan".to_owned());
                answer.table()
            }
            (Err(error), true) => {
                faults.push(format!("a plan was expected, but: {error}"));
                String::new()
            }
            (Err(error), false) => {
                self.refused(error, &mut faults);
                error.clone()
            }
        };
        if std::env::var_os(SHOW).is_some() {
            use std::io::Write;
            let _ = writeln!(std::io::stderr().lock(), "\n{}: {}\n{shown}", self.file, self.header.title);
        }
        if faults.is_empty() {
            return Ok(());
        }
        Err(format!("{}: {}\n  {}\n\n{shown}", self.file, self.header.title, faults.join("\n  ")))
    }

    fn plan(
        &self,
        manifests: impl Fn() -> Result<manifests::Manifests, manifests::ManifestErrors>,
    ) -> Result<Answer, String> {
        let manifests = manifests().map_err(|error| error.to_string())?;
        let offers = offers(&self.header.given)?;
        let now = self.header.given.now.unwrap_or_else(|| NOW.parse().unwrap());
        let now = Timestamp(now.as_millisecond());
        offline::plan(manifests, &offers, now, options(&self.header.given)?).map_err(|error| error.to_string())
    }

    /// Checks that every error contains the name of the file and the expected substrings.
    fn refused(&self, error: &str, faults: &mut Vec<String>) {
        let name = Path::new(&self.file).file_name().unwrap().to_string_lossy();
        for text in self.header.expect.error.iter().map(String::as_str).chain([name.as_ref()]) {
            if !error.contains(text) {
                faults.push(format!("the error does not say {text:?}"));
            }
        }
    }

    /// Checks that the order of documents does not matter.
    fn shuffled(&self, answer: &Answer, faults: &mut Vec<String>) -> Result<(), String> {
        let documents = self.documents()?;
        let (odd, even): (Vec<_>, Vec<_>) = documents.iter().rev().enumerate().partition(|(index, _)| index % 2 == 1);
        let text: Vec<&str> = odd.into_iter().chain(even).map(|(_, document)| document.as_str()).collect();
        let text = text.join("\n---\n");
        let other = self.plan(|| manifests::read(&[PathBuf::from("-")], &mut text.as_bytes()))?;
        if bytes(answer) != bytes(&other) {
            faults.push(format!("another order of the documents gives another plan:\n{}", other.table()));
        }
        Ok(())
    }

    /// Checks that the fields that the services drop from pods do not matter.
    fn trimmed(&self, answer: &Answer, faults: &mut Vec<String>) -> Result<(), String> {
        let other = self.plan(|| {
            let mut manifests = manifests::read(&self.paths, &mut std::io::empty())?;
            for pod in &mut manifests.objects.pods {
                plimsoll_snapshot::trim::pod(Arc::make_mut(pod));
            }
            Ok(manifests)
        })?;
        if answer.snapshot != other.snapshot {
            faults.push("pods without the fields that the services drop give another snapshot".to_owned());
        }
        if bytes(answer) != bytes(&other) {
            faults
                .push(format!("pods without the fields that the services drop give another plan:\n{}", other.table()));
        }
        Ok(())
    }

    /// Documents of all files, without headers.
    fn documents(&self) -> Result<Vec<String>, String> {
        let mut documents = Vec::new();
        for path in &self.paths {
            let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
            documents.extend(split(&text).into_iter().filter(|it| !it.contains("kind: Scenario")));
        }
        Ok(documents)
    }
}

/// The plan as bytes.
fn bytes(answer: &Answer) -> Vec<u8> {
    serde_json::to_vec(&answer.plan).unwrap()
}

/// Parts between lines that start with `---`.
fn split(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in text.split_inclusive('\n') {
        match line.strip_prefix("---").filter(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace)) {
            Some(rest) => documents.push(rest.to_owned()),
            None => documents.last_mut().unwrap().push_str(line),
        }
    }
    documents
}

/// The first document, read strictly.
pub(crate) fn header(text: &str) -> Result<Header, String> {
    let documents = split(text);
    let first = documents.first().map(String::as_str).unwrap_or_default();
    let value: serde_json::Value = serde_saphyr::from_str(first).map_err(|error| format!("header: {error}"))?;
    let header: Header = serde_path_to_error::deserialize(value)
        .map_err(|error| format!("header: {}: {}", error.path(), error.inner()))?;
    if header.api_version != "plimsoll.dev/v1" || header.kind != "Scenario" {
        return Err("header: must be of apiVersion plimsoll.dev/v1 and kind Scenario".to_owned());
    }
    if header.title.is_empty() || header.why.is_empty() {
        return Err("header: title and why must say something".to_owned());
    }
    if header.expect.is_empty() {
        return Err("header: expect: must expect something".to_owned());
    }
    if header.given.catalog.is_some() && header.given.region.is_some() {
        return Err("header: given: either a catalog or a region".to_owned());
    }
    Ok(header)
}

fn options(given: &Given) -> Result<PlanOptions, String> {
    let mut options = PlanOptions::default();
    if let Some(text) = &given.preference_policy {
        options.preference_policy = PreferencePolicy::parse(text).ok_or_else(|| format!("{text} is no policy"))?;
    }
    options.spot_to_spot = given.spot_to_spot;
    if let Some(share) = given.max_share_per_node {
        options.max_share_per_node = share;
    }
    if let Some(text) = &given.min_values_policy {
        options.min_values_policy = MinValuesPolicy::parse(text).ok_or_else(|| format!("{text} is no policy"))?;
    }
    Ok(options)
}

/// Caches catalogs.
fn offers(given: &Given) -> Result<Arc<Offers>, String> {
    static READ: LazyLock<Mutex<BTreeMap<String, Arc<Offers>>>> = LazyLock::new(Mutex::default);
    if let Some(region) = &given.region {
        return Ok(Arc::new(Offers::Region(region.clone())));
    }
    let name = given.catalog.as_deref().unwrap_or(CATALOG);
    let mut read = READ.lock().unwrap();
    if let Some(known) = read.get(name) {
        return Ok(Arc::clone(known));
    }
    let offers = offline::catalog_file(&root().join("common").join(name)).map_err(|error| error.to_string())?;
    Ok(Arc::clone(read.entry(name.to_owned()).or_insert(Arc::new(offers))))
}
