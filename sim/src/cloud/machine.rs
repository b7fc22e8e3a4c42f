//! An instance, whose state follows from its times alone.

use super::store::Pool;
use plimsoll_actuator::ports::{Instance, InstanceState, StateReason, Tags};
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::time::{Millis, Timestamp};

/// How long EC2 shows what is terminated.
const SHOWN_AFTER_END: Millis = Millis::from_seconds(3600);

/// An instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// `i-...`.
    pub id: String,
    /// Instance type.
    pub instance_type: String,
    /// Availability zone.
    pub zone: String,
    /// Image.
    pub image_id: String,
    /// Subnet.
    pub subnet_id: String,
    /// Security groups, sorted.
    pub security_group_ids: Vec<String>,
    /// How it was bought.
    pub capacity_type: CapacityType,
    /// The reservation it runs in.
    pub capacity_reservation_id: Option<String>,
    /// The placement group it runs in.
    pub placement_group_id: Option<String>,
    /// Its partition there.
    pub partition: Option<u32>,
    /// Private DNS name.
    pub private_dns_name: String,
    /// User data, as the launch template has it.
    pub user_data: String,
    /// Tags.
    pub tags: Tags,
    /// When it was launched.
    pub launched: Timestamp,
    /// From when reads show it.
    pub visible_from: Timestamp,
    /// From when it runs; `None` if it never will.
    pub runs_from: Option<Timestamp>,
    /// From when it is stopped.
    pub stopped_from: Option<Timestamp>,
    /// From when it shuts down; may lie ahead.
    pub ends_from: Option<Timestamp>,
    /// From when it is terminated; may lie ahead.
    pub gone_from: Option<Timestamp>,
    /// Why it ends.
    pub end_reason: Option<StateReason>,
    /// Its capacity and address were given back.
    pub(super) freed: bool,
}

impl Machine {
    /// State at a time.
    #[must_use]
    pub fn state(&self, now: Timestamp) -> InstanceState {
        let past = |time: Option<Timestamp>| time.is_some_and(|time| time <= now);
        if past(self.gone_from) {
            InstanceState::Terminated
        } else if past(self.ends_from) {
            InstanceState::ShuttingDown
        } else if past(self.stopped_from) {
            InstanceState::Stopped
        } else if past(self.runs_from) {
            InstanceState::Running
        } else {
            InstanceState::Pending
        }
    }

    /// Whether reads show it.
    #[must_use]
    pub fn is_shown(&self, now: Timestamp) -> bool {
        self.visible_from <= now && self.gone_from.is_none_or(|gone| now < gone.plus(SHOWN_AFTER_END))
    }

    /// What it was bought from.
    #[must_use]
    pub fn pool(&self) -> Pool {
        Pool::new(&self.instance_type, &self.zone, self.capacity_type)
    }

    /// As EC2 describes it.
    #[must_use]
    pub fn describe(&self, now: Timestamp) -> Instance {
        Instance {
            id: self.id.clone(),
            state: self.state(now),
            state_reason: self.end_reason.clone().filter(|_| !self.state(now).is_alive()),
            instance_type: self.instance_type.clone(),
            zone: self.zone.clone(),
            image_id: self.image_id.clone(),
            subnet_id: self.subnet_id.clone(),
            security_group_ids: self.security_group_ids.clone(),
            capacity_type: self.capacity_type,
            capacity_reservation_id: self.capacity_reservation_id.clone(),
            partition: self.partition,
            launched: self.launched,
            tags: self.tags.clone(),
        }
    }
}
