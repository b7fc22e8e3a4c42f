//! Lines of an explanation: a word for what it is, and what it is.

use crate::output;
use plimsoll_model::plan::OfferingChoice;
use plimsoll_model::quantity::format_amount;
use plimsoll_model::resources::Resources;
use plimsoll_model::time::Timestamp;
use std::fmt::Write;

/// Width of the words on the left.
const WIDTH: usize = 14;

/// An explanation in the making.
pub(super) struct Text(String);

impl Text {
    pub(super) fn new(title: &str) -> Self {
        let style = output::HEADING;
        Self(format!("{style}{title}{style:#}\n"))
    }

    pub(super) fn line(&mut self, what: &str, text: impl AsRef<str>) {
        let _ = writeln!(self.0, "  {what:WIDTH$}{}", text.as_ref());
    }

    /// A table below what is there.
    pub(super) fn table(&mut self, headings: &[&str], rows: Vec<Vec<String>>) {
        let mut table = output::table(headings);
        table.add_rows(rows);
        let _ = write!(self.0, "\n{}", output::render(&table));
    }

    pub(super) fn end(self) -> String {
        self.0
    }
}

/// `1500m cpu, 2Gi memory`; the pod itself goes without saying.
pub(super) fn resources(resources: &Resources) -> String {
    let amounts = resources.iter().filter(|(name, amount)| *amount != 0 && *name != "pods");
    let list: Vec<String> = amounts.map(|(name, amount)| format!("{} {name}", format_amount(name, amount))).collect();
    if list.is_empty() { "nothing".to_owned() } else { list.join(", ") }
}

pub(super) fn offering(it: &OfferingChoice) -> String {
    format!("{} in {}, {}, {} USD per hour", it.instance_type, it.zone, it.capacity_type, it.price)
}

/// RFC 3339, to the second.
pub(super) fn time(time: Timestamp) -> String {
    jiff::Timestamp::from_second(time.0.div_euclid(1000)).map_or_else(|_| "never".to_owned(), |it| it.to_string())
}

/// `1 pod`, `3 pods`.
pub(super) fn count(number: usize, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}
