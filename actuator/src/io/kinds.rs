//! The kinds of objects that the actuator writes, each with its API.

use crate::guarded::{Guarded, PartialRead};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::{Api, Client};
use plimsoll_api::{CapacityBuffer, CapacityQuota, EC2NodeClass, NodeClaim, NodeOverlay, NodePool, Pod};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// A kind that the actuator writes.
pub(crate) trait WritableKind:
    PartialRead<DynamicType = ()> + Serialize + DeserializeOwned + Clone + Debug + PartialEq
{
    /// The API of objects in a namespace, or of all objects of a cluster-scoped kind. They may be unreadable.
    fn guarded_api(client: &Client, namespace: Option<&str>) -> Api<Guarded<Self>>;
}

macro_rules! cluster_scoped {
    ($($kind:ty),+) => {
        $(impl WritableKind for $kind {
            fn guarded_api(client: &Client, _namespace: Option<&str>) -> Api<Guarded<Self>> {
                Api::all(client.clone())
            }
        })+
    };
}

macro_rules! namespaced {
    ($($kind:ty),+) => {
        $(impl WritableKind for $kind {
            fn guarded_api(client: &Client, namespace: Option<&str>) -> Api<Guarded<Self>> {
                Api::namespaced(client.clone(), namespace.unwrap_or("default"))
            }
        })+
    };
}

cluster_scoped!(Node, NodeClaim, NodePool, NodeOverlay, EC2NodeClass, CapacityQuota);
namespaced!(ConfigMap, Pod, CapacityBuffer);
