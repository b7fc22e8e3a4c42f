//! A case: one fault at one place of one flow, and possibly faults of watches beside it. Its name identifies it
//! completely, so that a case that failed can be run again.

use super::flow::Flow;
use plimsoll_sim::apiserver::ResourceId;
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::cloud::Action;
use std::fmt;

/// Type of a write, as far as faults distinguish it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    /// A request to the API server.
    Cluster { verb: Verb, resource: &'static str, subresource: &'static str },
    /// A call of the cloud.
    Cloud(Action),
}

impl Operation {
    /// Whether the write concerns nodes and their cost.
    pub(super) fn is_central(self) -> bool {
        match self {
            Self::Cluster { verb, resource, .. } => {
                resource == "nodeclaims" || (resource == "nodes" && verb == Verb::Patch)
            }
            Self::Cloud(action) => matches!(action, Action::CreateFleet | Action::TerminateInstances),
        }
    }
}

/// Verbs and calls that change state.
const VERBS: [(&str, Verb); 4] =
    [("create", Verb::Create), ("update", Verb::Update), ("patch", Verb::Patch), ("delete", Verb::Delete)];
const ACTIONS: [(&str, Action); 9] = [
    ("CreateFleet", Action::CreateFleet),
    ("CreateLaunchTemplate", Action::CreateLaunchTemplate),
    ("CreateTags", Action::CreateTags),
    ("DeleteLaunchTemplates", Action::DeleteLaunchTemplates),
    ("TerminateInstances", Action::TerminateInstances),
    ("DeleteMessage", Action::DeleteMessage),
    ("CreateInstanceProfile", Action::CreateInstanceProfile),
    ("AddRoleToInstanceProfile", Action::AddRoleToInstanceProfile),
    ("DeleteInstanceProfile", Action::DeleteInstanceProfile),
];
const SUBRESOURCES: [&str; 4] = ["", "status", "eviction", "binding"];

impl Operation {
    /// The operation of a request, if it changes state.
    pub(super) fn of_request(verb: Verb, resource: ResourceId, subresource: &str) -> Option<Self> {
        let is_write = VERBS.iter().any(|(_, write)| *write == verb);
        let subresource = SUBRESOURCES.into_iter().find(|known| *known == subresource)?;
        is_write.then_some(Self::Cluster { verb, resource: resource.get().plural, subresource })
    }

    /// The operation of a call, if it changes state.
    pub(super) fn of_call(action: Action) -> Option<Self> {
        let is_write = ACTIONS.iter().any(|(_, write)| *write == action);
        is_write.then_some(Self::Cloud(action))
    }

    fn parse(text: &str) -> Option<Self> {
        if let Some((_, action)) = ACTIONS.iter().find(|(name, _)| *name == text) {
            return Some(Self::Cloud(*action));
        }
        let (verb, rest) = text.split_once('-')?;
        let (_, verb) = *VERBS.iter().find(|(name, _)| *name == verb)?;
        let (resource, subresource) = rest.split_once('.').unwrap_or((rest, ""));
        let resource = plural(resource)?;
        let subresource = SUBRESOURCES.into_iter().find(|known| *known == subresource)?;
        Some(Self::Cluster { verb, resource, subresource })
    }
}

fn plural(name: &str) -> Option<&'static str> {
    ResourceId::EVERY.iter().map(|resource| resource.get().plural).find(|plural| *plural == name)
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cloud(action) => write!(f, "{action:?}"),
            Self::Cluster { verb, resource, subresource } => {
                let verb = VERBS.iter().find(|(_, known)| known == verb).map_or("", |(name, _)| name);
                let dot = if subresource.is_empty() { "" } else { "." };
                write!(f, "{verb}-{resource}{dot}{subresource}")
            }
        }
    }
}

macro_rules! named {
    ($(#[$doc:meta])* $kind:ident { $($(#[$variant_doc:meta])* $variant:ident => $name:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum $kind { $($(#[$variant_doc])* $variant),+ }

        impl $kind {
            /// All variants.
            pub(super) const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Name in the names of cases.
            pub(super) fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.name() == text)
            }
        }
    };
}

named! {
    /// Fault at a write.
    WriteFault {
        /// The process crashes before the write takes effect.
        CrashBefore => "crash-before",
        /// The process crashes after the write, before its response.
        CrashAfter => "crash-after",
        /// The response is lost.
        AnswerLost => "answer-lost",
        /// The connection breaks, and the write takes effect later.
        Late => "late",
        /// From this write on, requests of its kind get no response for a while.
        Stalled => "stalled",
        /// From this write on, requests for its object get no response for a while.
        ObjectStalled => "object-stalled",
        /// The process crashes after the write, and a user deletes the NodeClaims without an instance.
        CrashDeleted => "crash-deleted",
        /// A user deletes the Lease of the watcher, and its holder is replaced.
        LeaseDeleted => "lease-deleted",
        /// A user deletes the NodeClaim of a node without pods.
        ClaimDeleted => "claim-deleted",
        /// The process crashes after the write, and a user corrupts an annotation, which is repaired later.
        CrashDamaged => "crash-damaged",
        /// An instance is protected from termination for a while.
        Protected => "protected",
        /// As `Late`, and meanwhile a user protects the pods of the nodes that are being removed.
        LateProtected => "late-protected",
    }
}

impl WriteFault {
    /// Whether the fault is an event around the write. These are injected at fewer writes.
    pub(super) fn is_event(self) -> bool {
        !matches!(self, Self::CrashBefore | Self::CrashAfter | Self::AnswerLost | Self::Late)
    }

    /// Whether the fault makes sense at such a write: the protection of pods revokes only deletions of NodeClaims.
    pub(super) fn concerns(self, operation: Operation) -> bool {
        let deletion = Operation::Cluster { verb: Verb::Delete, resource: "nodeclaims", subresource: "" };
        self != Self::LateProtected || operation == deletion
    }
}

named! {
    /// Fault of the events of a kind.
    WatchFault {
        /// Events arrive late.
        Stale => "stale",
        /// Some are lost, and the client has to list again.
        Dropped => "dropped",
        /// Events of different objects arrive in another order.
        Reordered => "reordered",
        /// Each event arrives twice.
        Duplicated => "duplicated",
    }
}

/// Place and type of a fault.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    /// The write of this kind by this client with this number, counted from 1.
    Write { client: String, operation: Operation, number: u32, fault: WriteFault },
    /// All events of a kind to a service.
    Watch { service: String, resource: &'static str, fault: WatchFault },
}

/// One case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Case {
    pub(super) flow: Flow,
    pub(super) fault: Fault,
    /// Faults at the same time. Only cases that are asked for have them.
    pub(super) also: Vec<Fault>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write { client, operation, number, fault } => {
                write!(f, "{client}/{operation}/{number}/{}", fault.name())
            }
            Self::Watch { service, resource, fault } => write!(f, "{service}/watch/{resource}/{}", fault.name()),
        }
    }
}

impl Fault {
    fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split('/').collect();
        let [client, what, which, fault] = parts.as_slice() else { return None };
        let client = (*client).to_owned();
        if *what == "watch" {
            return Some(Self::Watch { service: client, resource: plural(which)?, fault: WatchFault::parse(fault)? });
        }
        let (operation, number) = (Operation::parse(what)?, which.parse().ok()?);
        Some(Self::Write { client, operation, number, fault: WriteFault::parse(fault)? })
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.flow.name(), self.fault)?;
        self.also.iter().try_for_each(|fault| write!(f, "+{fault}"))
    }
}

impl Case {
    /// Parses the name of a case.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (flow, faults) = name.split_once('/')?;
        let mut faults = faults.split('+').map(Fault::parse);
        let (flow, fault) = (Flow::parse(flow)?, faults.next()??);
        let also = faults.collect::<Option<Vec<Fault>>>()?;
        Some(Self { flow, fault, also })
    }
}

#[test]
fn a_case_is_its_name() {
    for name in [
        "launch/actuator-0-1/patch-nodeclaims.status/2/crash-after",
        "drain/actuator-1-1/CreateFleet/1/late",
        "removal/watcher/watch/pods/reordered",
        "removal/actuator-0-1/patch-nodeclaims/1/answer-lost+watcher/watch/nodeclaims/stale+watcher/watch/nodes/stale",
    ] {
        assert_eq!(Case::parse(name).unwrap().to_string(), name);
    }
    for bad in [
        "launch",
        "launch/a/b/1/late",
        "nothing/actuator-0-1/CreateFleet/1/late",
        "launch/a/CreateFleet/1/soon",
        "launch/a/CreateFleet/1/late+",
    ] {
        assert!(Case::parse(bad).is_none(), "{bad}");
    }
}
