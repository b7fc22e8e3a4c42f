//! Capacity reservations.

use super::fleet::Refusal;
use super::store::Cloud;
use plimsoll_actuator::ports::{
    CapacityReservation, LaunchTemplateConfig, Override, ReservationSpec, ReservationTerm, Tags,
};
use plimsoll_model::time::Timestamp;

impl Cloud {
    /// Adds a reservation; its count is of instances that are free now.
    pub fn reserve(&mut self, reservation: CapacityReservation) {
        self.reservations.insert(reservation.id.clone(), reservation);
    }

    /// Ends a reservation. Its instances run on, as On-Demand ones.
    pub fn cancel_reservation(&mut self, id: &str) {
        self.reservations.remove(id);
        for machine in self.machines.values_mut().filter(|it| it.capacity_reservation_id.as_deref() == Some(id)) {
            machine.capacity_reservation_id = None;
            machine.capacity_type = plimsoll_model::catalog::CapacityType::OnDemand;
        }
    }

    /// Reservations that match any of the terms and have not ended, by id.
    pub fn describe_capacity_reservations(
        &mut self,
        terms: &[ReservationTerm],
        now: Timestamp,
    ) -> Vec<CapacityReservation> {
        self.give_back(now);
        let has = |tags: &Tags, (key, value): (&String, &String)| {
            tags.get(key).is_some_and(|own| value == "*" || own == value)
        };
        let fits = |one: &&CapacityReservation, term: &ReservationTerm| {
            term.id.as_ref().is_none_or(|id| *id == one.id)
                && term.owner_id.as_ref().is_none_or(|owner| *owner == one.owner_id)
                && term.match_criteria.is_none_or(|criteria| criteria == one.match_criteria)
                && term.tags.iter().all(|pair| has(&one.tags, pair))
        };
        let lasts = |one: &&CapacityReservation| one.ends.is_none_or(|ends| ends > now);
        let all = self.reservations.values().filter(lasts);
        all.filter(|one| terms.iter().any(|term| fits(one, term))).cloned().collect()
    }

    /// The reservation that a config's template targets.
    pub(super) fn target(&self, config: &LaunchTemplateConfig) -> Option<String> {
        let (_, spec) = self.templates.get(&config.launch_template_name)?;
        match &spec.reservation {
            Some(ReservationSpec::Target { id, .. }) => Some(id.clone()),
            Some(ReservationSpec::Avoid) | None => None,
        }
    }

    /// Whether a reservation has an instance of the type in the zone.
    pub(super) fn check_reservation(&self, id: &str, way: &Override) -> Result<(), Refusal> {
        let Some(reservation) = self.reservations.get(id) else {
            return Err(("InvalidCapacityReservationId.NotFound", format!("the reservation `{id}` does not exist")));
        };
        if (&reservation.instance_type, &reservation.zone) != (&way.instance_type, &way.zone) {
            return Err(("Unsupported", format!("{id} is not for {} in {}", way.instance_type, way.zone)));
        }
        if reservation.free == 0 {
            return Err(("ReservationCapacityExceeded", format!("{id} has no free instance")));
        }
        Ok(())
    }

    /// Counts an instance that was launched in a reservation.
    pub(super) fn use_reservation(&mut self, id: &str) {
        if let Some(reservation) = self.reservations.get_mut(id) {
            reservation.free = reservation.free.saturating_sub(1);
        }
    }
}
