//! What node classes select: subnets, security groups, images.

use super::store::Cloud;
use plimsoll_actuator::ports::{Image, ImageQuery, SecurityGroup, SelectorTerm, Subnet, Tags};
use plimsoll_model::time::Timestamp;

impl Cloud {
    /// Subnets that match any of the terms, by id.
    pub fn describe_subnets(&mut self, terms: &[SelectorTerm], now: Timestamp) -> Vec<Subnet> {
        self.give_back(now);
        let name = |tags: &Tags| tags.get("Name").cloned().unwrap_or_default();
        let fits = |subnet: &&Subnet| selected(terms, &subnet.id, &name(&subnet.tags), &subnet.tags);
        self.subnets.values().filter(fits).cloned().collect()
    }

    /// Security groups that match any of the terms, by id.
    #[must_use]
    pub fn describe_security_groups(&self, terms: &[SelectorTerm]) -> Vec<SecurityGroup> {
        let fits = |group: &&SecurityGroup| selected(terms, &group.id, &group.name, &group.tags);
        self.security_groups.values().filter(fits).cloned().collect()
    }

    /// Images by id. Owners are not modelled: every image is everybody's.
    #[must_use]
    pub fn describe_images(&self, query: &ImageQuery) -> Vec<Image> {
        let fits = |image: &&Image| match query {
            ImageQuery::Ids(ids) => ids.contains(&image.id),
            ImageQuery::Terms(terms) => selected(terms, &image.id, &image.name, &image.tags),
        };
        self.images.values().filter(fits).cloned().collect()
    }
}

fn selected(terms: &[SelectorTerm], id: &str, name: &str, tags: &Tags) -> bool {
    terms.iter().any(|term| {
        term.id.as_ref().is_none_or(|wanted| wanted == id)
            && term.name.as_ref().is_none_or(|wanted| wanted == name)
            && term.tags.iter().all(|(key, value)| tags.get(key).is_some_and(|has| value == "*" || has == value))
    })
}
