//! Cron schedules with the syntax of Kubernetes CronJobs: five fields with lists, ranges and steps, names of months and
//! days, `?` for `*`, or a macro. They are in UTC, or in the time zone of a prefix such as `CRON_TZ=Europe/Berlin`.
//!
//! A scheduled time that the clock skips is the moment at which it skips. A time that the clock shows twice counts
//! twice. So no window is lost when the offset changes. A window lasts at least until the clock shows its end.

use jiff::{
    SignedDuration, Timestamp, ToSpan,
    civil::{Date, DateTime},
    tz::{TimeZone, TimeZoneDatabase},
};
use std::sync::LazyLock;

/// Search range for the next or last time. The rarest valid date, February 29, occurs within five years.
const SEARCH_DAYS: u32 = 5 * 366;
/// Bound of the changes of the offset within the search range. A time zone has at most a few each year.
const MAX_CHANGES: usize = 64;
/// The shortest time.
const MOMENT: SignedDuration = SignedDuration::from_nanos(1);
/// What precedes the name of a time zone.
const ZONE_PREFIXES: [&str; 2] = ["CRON_TZ=", "TZ="];
/// The IANA database that is compiled in: the services and the command agree, whatever their machines have.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// Reason why a string is not a schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// Unknown time zone.
    #[error("there is no time zone {0:?}")]
    TimeZone(String),
    /// Unknown macro.
    #[error("there is no macro {0:?}")]
    Macro(String),
    /// The number of fields is not five.
    #[error("a schedule has 5 fields, this has {0}")]
    FieldCount(usize),
    /// A field is invalid.
    #[error("{text:?} is no {field}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// The invalid part.
        text: String,
    },
}

/// Range of a field.
struct FieldRange {
    name: &'static str,
    first: u32,
    last: u32,
    names: &'static [&'static str],
}

const MINUTE: FieldRange = FieldRange { name: "minute", first: 0, last: 59, names: &[] };
const HOUR: FieldRange = FieldRange { name: "hour", first: 0, last: 23, names: &[] };
const DAY: FieldRange = FieldRange { name: "day of month", first: 1, last: 31, names: &[] };
const MONTH: FieldRange = FieldRange {
    name: "month",
    first: 1,
    last: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const WEEKDAY: FieldRange =
    FieldRange { name: "day of week", first: 0, last: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

/// The values of a field as bits, and whether the field is `*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    bits: u64,
    any: bool,
}

impl Field {
    fn has(self, value: u32) -> bool {
        self.bits & (1 << value) != 0
    }

    /// Values of the field from `first` to `last`.
    fn values_between(self, first: u32, last: u32) -> impl DoubleEndedIterator<Item = u32> {
        (first..=last).filter(move |value| self.has(*value))
    }
}

/// A schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron {
    zone: TimeZone,
    minute: Field,
    hour: Field,
    day: Field,
    month: Field,
    weekday: Field,
}

impl Cron {
    /// Parses a schedule.
    pub fn parse(text: &str) -> Result<Self, CronError> {
        let (zone, text) = split_zone(text.trim())?;
        let fields = match text.strip_prefix('@') {
            Some("yearly" | "annually") => "0 0 1 1 *",
            Some("monthly") => "0 0 1 * *",
            Some("weekly") => "0 0 * * 0",
            Some("daily" | "midnight") => "0 0 * * *",
            Some("hourly") => "0 * * * *",
            Some(_) => return Err(CronError::Macro(text.to_owned())),
            None => text,
        };
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields.as_slice() else {
            return Err(CronError::FieldCount(fields.len()));
        };
        Ok(Self {
            zone,
            minute: parse_field(minute, &MINUTE)?,
            hour: parse_field(hour, &HOUR)?,
            day: parse_field(day, &DAY)?,
            month: parse_field(month, &MONTH)?,
            weekday: parse_field(weekday, &WEEKDAY)?,
        })
    }

    /// The first scheduled time after `time`; `None` if there is none within five years.
    #[must_use]
    pub fn next_after(&self, time: Timestamp) -> Option<Timestamp> {
        let mut offset = self.zone.to_offset(time);
        let mut next = self.first_from(offset.to_datetime(time).checked_add(1.minute()).ok()?)?;
        for change in self.zone.following(time).take(MAX_CHANGES) {
            let at = offset.to_timestamp(next).ok()?;
            if at < change.timestamp() {
                return Some(at);
            }
            let former = offset.to_datetime(change.timestamp());
            offset = change.offset();
            let from = offset.to_datetime(change.timestamp());
            // The clock skips this time.
            if next < from {
                return Some(change.timestamp());
            }
            if self.has_day_of(from, former) {
                next = self.first_from(from)?;
            }
        }
        offset.to_timestamp(next).ok()
    }

    /// The last scheduled time up to and including `time`; `None` if there is none within five years.
    #[must_use]
    pub fn last_at_or_before(&self, time: Timestamp) -> Option<Timestamp> {
        let mut offset = self.zone.to_offset(time);
        let mut last = self.last_until(offset.to_datetime(time))?;
        // A change at `time` itself has happened.
        let later = time.checked_add(MOMENT).ok()?;
        for change in self.zone.preceding(later).take(MAX_CHANGES) {
            let from = offset.to_datetime(change.timestamp());
            if last >= from {
                return offset.to_timestamp(last).ok();
            }
            let before = change.timestamp().checked_sub(MOMENT).ok()?;
            offset = self.zone.to_offset(before);
            let until = offset.to_datetime(before);
            // The clock skipped this time.
            if last > until {
                return Some(change.timestamp());
            }
            if self.has_day_of(from, until) {
                last = self.last_until(until)?;
            }
        }
        offset.to_timestamp(last).ok()
    }

    /// When a window of `duration` that opened at `opened` ends: after this time, or when the clock shows its end for
    /// the last time, whichever is later. Otherwise windows that follow one another by the clock would leave a gap when
    /// it goes back. `None` if that is beyond the range of times.
    #[must_use]
    pub fn ends(&self, opened: Timestamp, duration: SignedDuration) -> Option<Timestamp> {
        let elapsed = opened.checked_add(duration).ok()?;
        let by_the_clock = self.zone.to_datetime(opened).checked_add(duration).ok()?;
        let by_the_clock = self.zone.to_ambiguous_timestamp(by_the_clock).later().ok()?;
        Some(elapsed.max(by_the_clock))
    }

    /// Whether the clock goes back from `until` to `from`, and a time that it shows twice may be scheduled. A search
    /// for it is long if the schedule is rare.
    fn has_day_of(&self, from: DateTime, until: DateTime) -> bool {
        // A clock goes back by less than a day.
        from < until && (self.has_day(from.date()) || self.has_day(until.date()))
    }

    /// The first scheduled minute from that of `from` on, by a clock that never changes.
    fn first_from(&self, from: DateTime) -> Option<DateTime> {
        self.days(from.date(), 1.day()).find_map(|date| {
            let (first_hour, first_minute) = if date == from.date() { (from.hour(), from.minute()) } else { (0, 0) };
            let (hour, minute) = self.hour.values_between(number(first_hour), HOUR.last).find_map(|hour| {
                let first = if hour == number(first_hour) { number(first_minute) } else { 0 };
                Some((hour, self.minute.values_between(first, MINUTE.last).next()?))
            })?;
            date_time(date, hour, minute)
        })
    }

    /// The last scheduled minute up to that of `until`, by a clock that never changes.
    fn last_until(&self, until: DateTime) -> Option<DateTime> {
        self.days(until.date(), (-1).day()).find_map(|date| {
            let (last_hour, last_minute) = if date == until.date() { (until.hour(), until.minute()) } else { (23, 59) };
            let (hour, minute) = self.hour.values_between(0, number(last_hour)).rev().find_map(|hour| {
                let last = if hour == number(last_hour) { number(last_minute) } else { MINUTE.last };
                Some((hour, self.minute.values_between(0, last).next_back()?))
            })?;
            date_time(date, hour, minute)
        })
    }

    /// Scheduled days from `date` on, in steps of `step`.
    fn days(&self, date: Date, step: jiff::Span) -> impl Iterator<Item = Date> {
        let days = std::iter::successors(Some(date), move |date| date.checked_add(step).ok());
        days.take(SEARCH_DAYS as usize).filter(|date| self.has_day(*date))
    }

    /// If both day of month and day of week are restricted, one match is sufficient.
    fn has_day(&self, date: Date) -> bool {
        let day = self.day.has(number(date.day()));
        let weekday = self.weekday.has(number(date.weekday().to_sunday_zero_offset()));
        let matches = if self.day.any || self.weekday.any { day && weekday } else { day || weekday };
        self.month.has(number(date.month())) && matches
    }
}

/// Converts a part of a date, which is small and never negative.
fn number(part: i8) -> u32 {
    part.unsigned_abs().into()
}

fn date_time(date: Date, hour: u32, minute: u32) -> Option<DateTime> {
    Some(date.at(i8::try_from(hour).ok()?, i8::try_from(minute).ok()?, 0, 0))
}

/// The time zone of the schedule, which is UTC without a prefix, and the rest of the text.
fn split_zone(text: &str) -> Result<(TimeZone, &str), CronError> {
    let Some(text) = ZONE_PREFIXES.iter().find_map(|prefix| text.strip_prefix(*prefix)) else {
        return Ok((TimeZone::UTC, text));
    };
    let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    // The zone "Etc/Unknown" stands for a missing one.
    let zone = ZONES.get(name).ok().filter(|zone| !zone.is_unknown());
    let zone = zone.ok_or_else(|| CronError::TimeZone(name.to_owned()))?;
    Ok((zone, rest.trim_start()))
}

/// Parses a list.
fn parse_field(text: &str, range: &FieldRange) -> Result<Field, CronError> {
    let mut field = Field { bits: 0, any: false };
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let error = || CronError::Field { field: range.name, text: part.to_owned() };
        let part = parse_part(part, range).ok_or_else(error)?;
        field.bits |= part.bits;
        field.any |= part.any;
    }
    if field.bits == 0 {
        return Err(CronError::Field { field: range.name, text: text.to_owned() });
    }
    Ok(field)
}

/// Parses `*`, a value or a range, each with an optional step.
fn parse_part(text: &str, range: &FieldRange) -> Option<Field> {
    let (values, step) = match text.split_once('/') {
        Some((values, step)) => (values, Some(parse_number(step)?)),
        None => (text, None),
    };
    let open = values == "*" || values == "?";
    let (first, last) = if open {
        (range.first, range.last)
    } else if let Some((first, last)) = values.split_once('-') {
        (parse_value(first, range)?, parse_value(last, range)?)
    } else {
        let value = parse_value(values, range)?;
        // A value with a step is the start of a range.
        (value, if step.is_some() { range.last } else { value })
    };
    let step = step.unwrap_or(1);
    if first < range.first || last > range.last || first > last || step == 0 {
        return None;
    }
    let bits = (first..=last).step_by(step as usize).fold(0, |bits, value| bits | 1 << value);
    // A field with a step counts as restricted, so that `*/2` days and a weekday are alternatives.
    Some(Field { bits, any: open && step == 1 })
}

fn parse_value(text: &str, range: &FieldRange) -> Option<u32> {
    let position = range.names.iter().position(|name| name.eq_ignore_ascii_case(text));
    match position {
        Some(position) => u32::try_from(position).ok().map(|position| position + range.first),
        None => parse_number(text),
    }
}

fn parse_number(text: &str) -> Option<u32> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}
