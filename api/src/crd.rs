//! Generates the CustomResourceDefinitions in `deploy/crds/` from the types.

use crate::{
    CapacityBuffer, CapacityBufferSpec, CapacityBufferStatus, CapacityQuota, CapacityQuotaSpec, CapacityQuotaStatus,
    EC2NodeClass, EC2NodeClassSpec, EC2NodeClassStatus, NodeClaim, NodeClaimSpec, NodeClaimStatus, NodeOverlay,
    NodeOverlaySpec, NodeOverlayStatus, NodePool, NodePoolSpec, NodePoolStatus,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceValidation, JSONSchemaProps,
};
use kube::{CustomResourceExt, Resource};
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

mod tidy;
mod yaml;

/// Kinds of custom resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// [`CapacityBuffer`].
    CapacityBuffer,
    /// [`CapacityQuota`].
    CapacityQuota,
    /// [`EC2NodeClass`].
    EC2NodeClass,
    /// [`NodeClaim`].
    NodeClaim,
    /// [`NodeOverlay`].
    NodeOverlay,
    /// [`NodePool`].
    NodePool,
}

impl Kind {
    /// All kinds, ordered by file name.
    pub const ALL: [Self; 6] = [
        Self::CapacityBuffer,
        Self::CapacityQuota,
        Self::EC2NodeClass,
        Self::NodeClaim,
        Self::NodeOverlay,
        Self::NodePool,
    ];

    /// Returns the kind of a manifest with this `apiVersion` and `kind`.
    #[must_use]
    pub fn of(api_version: &str, kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|candidate| candidate.kind() == kind && candidate.api_version() == api_version)
    }

    /// `apiVersion` in a manifest.
    #[must_use]
    pub fn api_version(self) -> String {
        match self {
            Self::CapacityBuffer => CapacityBuffer::api_version(&()).into_owned(),
            Self::CapacityQuota => CapacityQuota::api_version(&()).into_owned(),
            Self::EC2NodeClass => EC2NodeClass::api_version(&()).into_owned(),
            Self::NodeClaim => NodeClaim::api_version(&()).into_owned(),
            Self::NodeOverlay => NodeOverlay::api_version(&()).into_owned(),
            Self::NodePool => NodePool::api_version(&()).into_owned(),
        }
    }

    /// `kind` in a manifest.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::CapacityBuffer => "CapacityBuffer",
            Self::CapacityQuota => "CapacityQuota",
            Self::EC2NodeClass => "EC2NodeClass",
            Self::NodeClaim => "NodeClaim",
            Self::NodeOverlay => "NodeOverlay",
            Self::NodePool => "NodePool",
        }
    }

    /// OpenAPI schema of the kind.
    #[must_use]
    pub fn schema(self) -> Value {
        match self {
            Self::CapacityBuffer => schema::<CapacityBufferSpec, CapacityBufferStatus>(
                "CapacityBuffer reserves capacity for pods that do not exist yet, so that they can start at once.",
            ),
            Self::CapacityQuota => schema::<CapacityQuotaSpec, CapacityQuotaStatus>(
                "CapacityQuota limits the total resources of all nodes that a selector matches.",
            ),
            Self::EC2NodeClass => schema::<EC2NodeClassSpec, EC2NodeClassStatus>(
                "EC2NodeClass configures the EC2 instances that become nodes.",
            ),
            Self::NodeClaim => schema::<NodeClaimSpec, NodeClaimStatus>(
                "NodeClaim requests one node and tracks it until the instance is terminated.",
            ),
            Self::NodeOverlay => schema::<NodeOverlaySpec, NodeOverlayStatus>(
                "NodeOverlay overrides the prices of instance types, or adds resources to their capacity.",
            ),
            Self::NodePool => schema::<NodePoolSpec, NodePoolStatus>(
                "NodePool defines which nodes may be launched for unschedulable pods, and when nodes may be removed.",
            ),
        }
    }

    /// CustomResourceDefinition of the kind.
    #[must_use]
    pub fn definition(self) -> CustomResourceDefinition {
        let mut definition = match self {
            Self::CapacityBuffer => CapacityBuffer::crd(),
            Self::CapacityQuota => CapacityQuota::crd(),
            Self::EC2NodeClass => EC2NodeClass::crd(),
            Self::NodeClaim => NodeClaim::crd(),
            Self::NodeOverlay => NodeOverlay::crd(),
            Self::NodePool => NodePool::crd(),
        };
        #[expect(
            clippy::expect_used,
            reason = "the schema depends on nothing but this crate's types; tests convert each"
        )]
        let schema: JSONSchemaProps =
            serde_json::from_value(self.schema()).expect("a schema made from types is a JSONSchemaProps");
        definition.spec.names.list_kind = Some(format!("{}List", definition.spec.names.kind));
        for version in &mut definition.spec.versions {
            version.schema =
                Some(CustomResourceValidation { open_api_v3_schema: Some(JSONSchemaProps::clone(&schema)) });
            // An empty list of columns is omitted.
            version.selectable_fields = version.selectable_fields.take().filter(|fields| !fields.is_empty());
        }
        definition
    }

    /// File name in `deploy/crds/`.
    #[must_use]
    pub fn file_name(self) -> &'static str {
        match self {
            Self::CapacityBuffer => "autoscaling.x-k8s.io_capacitybuffers.yaml",
            Self::CapacityQuota => "autoscaling.x-k8s.io_capacityquotas.yaml",
            Self::EC2NodeClass => "karpenter.k8s.aws_ec2nodeclasses.yaml",
            Self::NodeClaim => "karpenter.sh_nodeclaims.yaml",
            Self::NodeOverlay => "karpenter.sh_nodeoverlays.yaml",
            Self::NodePool => "karpenter.sh_nodepools.yaml",
        }
    }
}

/// All definitions with their file names.
#[must_use]
pub fn all() -> Vec<(&'static str, CustomResourceDefinition)> {
    Kind::ALL.into_iter().map(|kind| (kind.file_name(), kind.definition())).collect()
}

/// All definitions as YAML with their file names. The text is the same on every machine.
#[must_use]
pub fn render_all() -> Vec<(String, String)> {
    let render = |definition: &CustomResourceDefinition| {
        #[expect(clippy::expect_used, reason = "maps with text keys always become JSON; tests convert each definition")]
        let value = serde_json::to_value(definition).expect("a definition is JSON");
        yaml::render(&tidy::whole_numbers(value))
    };
    all().iter().map(|(file_name, definition)| ((*file_name).to_owned(), render(definition))).collect()
}

fn schema<Spec: JsonSchema, Status: JsonSchema>(description: &str) -> Value {
    let text = |description: &str| json!({"type": "string", "description": description});
    json!({
        "description": description,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": text("API group and version of the object."),
            "kind": text("Kind of the object."),
            "metadata": {"type": "object"},
            "spec": structural_schema::<Spec>(),
            "status": structural_schema::<Status>(),
        },
    })
}

/// Generates the schema of a type in the form that Kubernetes requires: inlined and structural.
fn structural_schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    let mut schema = match schema {
        Value::Object(schema) => schema,
        _ => Map::new(),
    };
    tidy::schema(&mut schema);
    Value::Object(schema)
}

#[cfg(test)]
mod tests;
