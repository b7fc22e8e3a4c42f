//! Launch templates, named by the hash of their content: equal content reuses the same template, and a name never
//! changes its content.

mod devices;
mod efa;
mod interfaces;
mod placement;
mod plan;
mod templates;

pub(crate) use efa::{EFA, attached};
pub use placement::{PlacementError, check_dedicated, partition};
pub use plan::{PlanError, PlannedTemplate, TemplateInput, plan, tags};
pub(crate) use templates::delete_of_class;
pub use templates::{EnsureError, KnownTemplates, LaunchTemplates, cleanup, ensure};
