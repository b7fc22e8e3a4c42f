//! Elastic Fabric Adapters (EFA).

use plimsoll_api::EC2NodeClass;
use plimsoll_model::resources::Resources;

/// Resource name of Elastic Fabric Adapters.
pub(crate) const EFA: &str = "vpc.amazonaws.com/efa";

/// The resources of an instance, without adapters that are not attached to it. Adapters are attached if the launch
/// requests them, or if the node class lists its network interfaces; the catalog then counts those.
pub(crate) fn attached(mut resources: Resources, class: Option<&EC2NodeClass>, is_requested: bool) -> Resources {
    let is_configured = class.is_some_and(|class| !class.spec.network_interfaces.is_empty());
    if !is_requested && !is_configured {
        resources.remove(EFA);
    }
    resources
}
