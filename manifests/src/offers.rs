//! Which instance types can be bought, by node class.

use plimsoll_api::ec2_node_class::EC2NodeClass;
use plimsoll_catalog::NodeClassSettings;
use plimsoll_catalog::builtin::{self, UnknownRegion};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use std::collections::BTreeMap;

/// Region whose built-in catalog is used if none is named.
pub const DEFAULT_REGION: &str = "us-east-1";

/// Where catalogs come from.
#[derive(Debug, Clone)]
pub enum Offers {
    /// One catalog for all node classes, whatever they say.
    Catalog(Box<Catalog>),
    /// The built-in catalog of a region, as each node class shapes it.
    Region(String),
}

/// Catalogs by id, and the id of each node class by its name.
pub(super) type Catalogs = (BTreeMap<CatalogId, Catalog>, BTreeMap<String, CatalogId>);

impl Offers {
    /// The built-in catalog of `region`, or of [`DEFAULT_REGION`].
    ///
    /// # Errors
    /// The region has no built-in catalog.
    pub fn of_region(region: Option<String>) -> Result<Self, UnknownRegion> {
        let region = region.unwrap_or_else(|| DEFAULT_REGION.to_owned());
        builtin::zones(&region)?;
        Ok(Self::Region(region))
    }

    /// The catalog of each node class. `reprice` may change prices.
    pub(super) fn catalogs(
        &self,
        classes: &[EC2NodeClass],
        reprice: &dyn Fn(&mut Catalog),
    ) -> Result<Catalogs, UnknownRegion> {
        let (mut catalogs, mut by_class) = (BTreeMap::new(), BTreeMap::new());
        let mut add = |mut catalog: Catalog| {
            reprice(&mut catalog);
            let id = catalog.id();
            catalogs.insert(id.clone(), catalog);
            id
        };
        let names = classes.iter().map(|class| class.metadata.name.clone().unwrap_or_default());
        match self {
            Self::Catalog(catalog) => {
                let id = add(catalog.as_ref().clone());
                by_class.extend(names.map(|name| (name, id.clone())));
            }
            Self::Region(region) => {
                for (class, name) in classes.iter().zip(names) {
                    let placement_group = class.placement_group().cloned();
                    let settings = NodeClassSettings { placement_group, ..NodeClassSettings::from(&class.spec) };
                    let id = add(builtin::catalog(region, &settings)?);
                    by_class.insert(name, id);
                }
            }
        }
        Ok((catalogs, by_class))
    }
}
