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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn adapters_are_attached_if_they_are_requested_or_configured() {
        let class = |interfaces: serde_json::Value| {
            let mut class = EC2NodeClass::new("class", plimsoll_api::EC2NodeClassSpec::default());
            class.spec.network_interfaces = serde_json::from_value(interfaces).unwrap();
            class
        };
        let (plain, configured) =
            (class(json!([])), class(json!([{"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}])));
        let attached = |class, is_requested| {
            attached(Resources::from([("cpu", 1000), (EFA, 2)]), class, is_requested)
                != Resources::from([("cpu", 1000)])
        };
        for (class, is_requested, expected) in [
            (Some(&plain), false, false),
            (None, false, false),
            (Some(&plain), true, true),
            (None, true, true),
            (Some(&configured), false, true),
        ] {
            assert_eq!(attached(class, is_requested), expected, "{class:?}, {is_requested}");
        }
    }
}
