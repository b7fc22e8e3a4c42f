//! Placement groups and their limits, as EC2 documents them.

use super::fleet::Refusal;
use super::machine::Machine;
use super::store::Cloud;
use plimsoll_actuator::ports::{
    LaunchTemplateConfig, LaunchTemplateSpec, Override, PlacementGroup, PlacementGroupTerm, PlacementStrategy,
};
use plimsoll_model::time::Timestamp;

/// Instances of a spread group in a zone, at most.
const SPREAD_LIMIT: usize = 7;
/// Partitions in each zone of a group with instances of dedicated tenancy, at most.
const DEDICATED_PARTITIONS: i32 = 2;

/// The place of an instance in a placement group.
pub(super) type Place = (String, Option<u32>);

impl Cloud {
    /// Adds a placement group, or replaces the one with its id.
    pub fn add_placement_group(&mut self, group: PlacementGroup) {
        self.placement_groups.insert(group.id.clone(), group);
    }

    /// Placement groups with that id or name.
    #[must_use]
    pub fn describe_placement_groups(&self, term: &PlacementGroupTerm) -> Vec<PlacementGroup> {
        let fits = |group: &&PlacementGroup| match term {
            PlacementGroupTerm::Id(id) => group.id == *id,
            PlacementGroupTerm::Name(name) => group.name == *name,
        };
        self.placement_groups.values().filter(fits).cloned().collect()
    }

    fn in_group<'a>(&'a self, id: &'a str, now: Timestamp) -> impl Iterator<Item = &'a Machine> {
        let is_in = move |machine: &&Machine| {
            machine.placement_group_id.as_deref() == Some(id) && machine.state(now).is_alive()
        };
        self.machines.values().filter(is_in)
    }

    /// Whether the placement group of a config's template takes one more instance.
    pub(super) fn check_placement(
        &self,
        config: &LaunchTemplateConfig,
        way: &Override,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let Some((_, spec)) = self.templates.get(&config.launch_template_name) else { return Ok(()) };
        let Some(id) = &spec.placement_group_id else { return Ok(()) };
        let known = self.placement_groups.get(id).filter(|group| group.state == PlacementGroup::AVAILABLE);
        let Some(group) = known else {
            return Err(("InvalidPlacementGroup.Unknown", format!("The Placement Group '{id}' is unknown.")));
        };
        let zone = &way.zone;
        match group.strategy {
            Some(PlacementStrategy::Spread) => {
                check_tenancy(spec, 0)?;
                if self.in_group(id, now).filter(|machine| machine.zone == *zone).count() >= SPREAD_LIMIT {
                    let message = format!("Spread placement group {id} has reached its limit of instances in {zone}.");
                    return Err(("InstanceLimitExceeded", message));
                }
            }
            Some(PlacementStrategy::Cluster) if self.in_group(id, now).any(|machine| machine.zone != *zone) => {
                let message = format!("The placement group '{id}' is in use in another availability zone");
                return Err(("InvalidPlacementGroup.InUse", message));
            }
            Some(PlacementStrategy::Partition) => {
                let count = group.partition_count.unwrap_or(0);
                check_tenancy(spec, count)?;
                let is_there = |number| (1..=count).contains(&i32::try_from(number).unwrap_or(i32::MAX));
                if !spec.partition.is_none_or(is_there) {
                    return Err(("InvalidParameterValue", format!("placement group {id} has {count} partitions")));
                }
            }
            Some(PlacementStrategy::Cluster) | None => {}
        }
        Ok(())
    }

    /// The place of the next instance of a template. EC2 tries to fill all partitions of a zone alike.
    pub(super) fn place(&self, spec: &LaunchTemplateSpec, zone: &str, now: Timestamp) -> Option<Place> {
        let id = spec.placement_group_id.clone()?;
        let count = self.placement_groups.get(&id).and_then(|group| group.partition_count).unwrap_or(0);
        let filled = |number: u32| {
            let there = |machine: &&Machine| machine.zone == zone && machine.partition == Some(number);
            self.in_group(&id, now).filter(there).count()
        };
        let emptiest = (1..=u32::try_from(count).unwrap_or(0)).min_by_key(|number| filled(*number));
        let partition = spec.partition.or(emptiest);
        Some((id, partition))
    }
}

fn check_tenancy(spec: &LaunchTemplateSpec, partitions: i32) -> Result<(), Refusal> {
    let is_refused = partitions == 0 || partitions > DEDICATED_PARTITIONS;
    if spec.tenancy == "dedicated" && is_refused {
        let message = "the placement group does not support dedicated tenancy".to_owned();
        return Err(("InvalidParameterCombination", message));
    }
    Ok(())
}
