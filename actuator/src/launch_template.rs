//! Launch templates: what a launch is made from, by content. Equal content has an equal name, so that a template is made
//! once however often it is asked for, and a name never changes its meaning.

mod devices;
mod interfaces;
mod plan;
mod templates;

pub use plan::{PlanError, Planned, Wanted, plan, tags};
pub(crate) use templates::delete_of_class;
pub use templates::{EnsureError, LaunchTemplates, Templates, cleanup, ensure};
