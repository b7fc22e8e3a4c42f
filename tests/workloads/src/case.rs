//! A case and its files.

use crate::Feature;
use crate::catalogs;
use plimsoll_model::catalog::Catalog;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Catalog of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CatalogChoice {
    /// The whole built-in catalog of us-east-1.
    BuiltIn,
    /// These types.
    Given(Catalog),
}

impl CatalogChoice {
    /// The complete catalog.
    #[must_use]
    pub fn catalog(&self) -> Catalog {
        match self {
            Self::BuiltIn => catalogs::built_in().clone(),
            Self::Given(catalog) => catalog.clone(),
        }
    }
}

/// A cluster with pending pods and a catalog.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// Seed of the case.
    pub seed: u64,
    /// Features of the case.
    pub features: BTreeSet<Feature>,
    /// Manifests, each with `apiVersion` and `kind`. Workloads are not expanded.
    pub objects: Vec<Value>,
    /// Catalog of the case.
    pub catalog: CatalogChoice,
}

impl Case {
    /// Objects of this kind.
    pub fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |object| object["kind"] == kind)
    }

    /// Writes the manifests as one `List`, with one object per line.
    ///
    /// # Errors
    ///
    /// If writing fails.
    pub fn write_manifests(&self, to: &mut dyn Write) -> io::Result<()> {
        write!(to, "{{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[")?;
        for (index, object) in self.objects.iter().enumerate() {
            write!(to, "{}\n{object}", if index == 0 { "" } else { "," })?;
        }
        writeln!(to, "\n]}}")
    }

    /// The catalog in the format of `plimsoll plan --catalog`.
    #[must_use]
    pub fn catalog_json(&self) -> String {
        let value = plimsoll_catalog::file::to_value(&self.catalog.catalog());
        let mut text = format!("{{\"region\":{},\"instanceTypes\":[", value["region"]);
        for (index, instance_type) in value["instanceTypes"].as_array().into_iter().flatten().enumerate() {
            text.push_str(if index == 0 { "\n" } else { ",\n" });
            text.push_str(&instance_type.to_string());
        }
        text.push_str("\n]}\n");
        text
    }

    /// Writes `manifests/cluster.json` and `catalog.json` to `folder`, which is created if it is missing.
    ///
    /// # Errors
    ///
    /// If a folder or file cannot be created.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let manifests = folder.join("manifests");
        fs::create_dir_all(&manifests)?;
        let mut file = BufWriter::new(fs::File::create(manifests.join("cluster.json"))?);
        self.write_manifests(&mut file)?;
        file.flush()?;
        fs::write(folder.join("catalog.json"), self.catalog_json())
    }

    /// Seed and features on one line.
    #[must_use]
    pub fn title(&self) -> String {
        let features: Vec<String> = self.features.iter().map(|it| format!("{it:?}")).collect();
        format!("seed {} ({})", self.seed, if features.is_empty() { "plain".to_owned() } else { features.join(", ") })
    }

    pub(crate) fn empty(seed: u64, catalog: CatalogChoice) -> Self {
        Self { seed, features: BTreeSet::new(), objects: Vec::new(), catalog }
    }
}
