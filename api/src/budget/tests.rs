use super::*;
use crate::node_pool::{Disruption, NodePoolSpec};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn budget(nodes: &str, window: Option<(&str, &str)>) -> Budget {
    Budget {
        nodes: nodes.to_owned(),
        schedule: window.map(|(schedule, _)| schedule.to_owned()),
        duration: window.map(|(_, duration)| duration.parse().unwrap()),
        ..Budget::default()
    }
}

fn pool(budgets: Vec<Budget>) -> NodePoolSpec {
    let disruption = Disruption { budgets: Some(budgets), ..Disruption::default() };
    NodePoolSpec { disruption: Some(disruption), ..NodePoolSpec::default() }
}

/// Asserts the next scheduled time after `now`, and the last one at or before it.
fn assert_scheduled(schedule: &str, now: &str, next: Option<&str>, last: Option<&str>) {
    let cron = Cron::parse(schedule).unwrap();
    assert_eq!(cron.next_after(at(now)), next.map(at), "{schedule} after {now}");
    assert_eq!(cron.last_at_or_before(at(now)), last.map(at), "{schedule} before {now}");
}

#[test]
fn the_next_and_last_scheduled_times_are_found() {
    // 2026-11-21 is a Saturday.
    let cases = [
        ("* * * * *", "2026-11-21T10:00:30Z", "2026-11-21T10:01:00Z", "2026-11-21T10:00:00Z"),
        ("@hourly", "2026-11-21T10:00:00Z", "2026-11-21T11:00:00Z", "2026-11-21T10:00:00Z"),
        ("@daily", "2026-12-31T23:59:59Z", "2027-01-01T00:00:00Z", "2026-12-31T00:00:00Z"),
        ("@midnight", "2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z", "2026-11-21T00:00:00Z"),
        ("@weekly", "2026-11-21T10:00:00Z", "2026-11-22T00:00:00Z", "2026-11-15T00:00:00Z"),
        ("@monthly", "2026-11-21T10:00:00Z", "2026-12-01T00:00:00Z", "2026-11-01T00:00:00Z"),
        ("@yearly", "2026-11-21T10:00:00Z", "2027-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("@annually", "2026-11-21T10:00:00Z", "2027-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("0 9 * * mon-fri", "2026-11-21T10:00:00Z", "2026-11-23T09:00:00Z", "2026-11-20T09:00:00Z"),
        ("0 9 ? * 1-5", "2026-11-23T08:59:59Z", "2026-11-23T09:00:00Z", "2026-11-20T09:00:00Z"),
        ("*/15 * * * *", "2026-11-21T10:14:59Z", "2026-11-21T10:15:00Z", "2026-11-21T10:00:00Z"),
        ("5/20 * * * *", "2026-11-21T10:44:00Z", "2026-11-21T10:45:00Z", "2026-11-21T10:25:00Z"),
        ("10-40/15,50 * * * *", "2026-11-21T10:41:00Z", "2026-11-21T10:50:00Z", "2026-11-21T10:40:00Z"),
        ("30 22 31 DEC *", "2026-11-21T10:00:00Z", "2026-12-31T22:30:00Z", "2025-12-31T22:30:00Z"),
        ("0 0 29 2 *", "2026-11-21T10:00:00Z", "2028-02-29T00:00:00Z", "2024-02-29T00:00:00Z"),
        ("0 0 31 * *", "2026-11-21T10:00:00Z", "2026-12-31T00:00:00Z", "2026-10-31T00:00:00Z"),
        // If both are restricted, day of month or day of week must match.
        ("0 0 13 * fri", "2026-11-21T10:00:00Z", "2026-11-27T00:00:00Z", "2026-11-20T00:00:00Z"),
        // A step greater than one is a restriction: every other day of the month, or Sunday.
        ("0 0 */2 * 0", "2026-11-21T10:00:00Z", "2026-11-22T00:00:00Z", "2026-11-21T00:00:00Z"),
        // A step of one is not: all days of the month, and Sunday.
        ("0 0 */1 * 0", "2026-11-21T10:00:00Z", "2026-11-22T00:00:00Z", "2026-11-15T00:00:00Z"),
        ("0,,30 12 * * *", "2026-11-21T12:00:00Z", "2026-11-21T12:30:00Z", "2026-11-21T12:00:00Z"),
    ];
    for (schedule, now, next, last) in cases {
        assert_scheduled(schedule, now, Some(next), Some(last));
    }
}

#[test]
fn an_impossible_date_is_never_scheduled() {
    assert_scheduled("0 0 30 2 *", "2026-11-21T10:00:00Z", None, None);
    let never = budget("0", Some(("0 0 30 2 *", "8760h")));
    assert_eq!(never.is_active(at("2026-11-21T10:00:00Z")), Ok(false));
    assert_eq!(never.next_change(at("2026-11-21T10:00:00Z")), Ok(None));
}

#[test]
fn invalid_schedules_are_rejected() {
    for text in [
        "",
        "* * * *",
        "* * * * * *",
        "@every 1h",
        "@dailyish",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * 32 * *",
        "* * * 13 *",
        "* * * * 7",
        "5-1 * * * *",
        "*/0 * * * *",
        "a * * * *",
        "1- * * * *",
        "-1 * * * *",
        ", * * * *",
        "* * * * monday",
        "+5 * * * *",
        "1/2/3 * * * *",
        "TZ=UTC * * * *",
        "TZ=UTC",
        "TZ= * * * * *",
        "tz=UTC * * * * *",
        "UTC * * * * *",
        "TZ=UTC CRON_TZ=UTC * * * * *",
        "TZ=Etc/Unknown * * * * *",
    ] {
        assert!(Cron::parse(text).is_err(), "{text:?}");
    }
    let unknown = CronError::TimeZone("Europe/Berlim".to_owned());
    assert_eq!(Cron::parse("CRON_TZ=Europe/Berlim 0 9 * * *"), Err(unknown));
}

#[test]
fn a_schedule_has_the_time_zone_of_its_prefix() {
    let cases = [
        // Winter, one hour ahead of UTC, and summer, two hours ahead.
        ("CRON_TZ=Europe/Berlin 0 9 * * 1-5", "2026-11-23T07:59:59Z", "2026-11-23T08:00:00Z", "2026-11-20T08:00:00Z"),
        ("TZ=Europe/Berlin 0 9 * * 1-5", "2026-07-06T07:00:00Z", "2026-07-07T07:00:00Z", "2026-07-06T07:00:00Z"),
        ("TZ=America/New_York 0 22 * * *", "2026-11-21T10:00:00Z", "2026-11-22T03:00:00Z", "2026-11-21T03:00:00Z"),
        // Monday morning in Tokyo is Sunday in UTC.
        ("TZ=Asia/Tokyo  0 8 * * mon", "2026-11-21T10:00:00Z", "2026-11-22T23:00:00Z", "2026-11-15T23:00:00Z"),
        ("TZ=Asia/Kolkata @daily", "2026-11-21T10:00:00Z", "2026-11-21T18:30:00Z", "2026-11-20T18:30:00Z"),
        ("TZ=UTC 0 9 * * *", "2026-11-21T10:00:00Z", "2026-11-22T09:00:00Z", "2026-11-21T09:00:00Z"),
        // The search passes several changes of the clock.
        ("TZ=Europe/Berlin 0 0 29 2 *", "2026-11-21T10:00:00Z", "2028-02-28T23:00:00Z", "2024-02-28T23:00:00Z"),
        ("TZ=Europe/Berlin 0 0 1 7 *", "2026-11-21T10:00:00Z", "2027-06-30T22:00:00Z", "2026-06-30T22:00:00Z"),
        // At 3:00 UTC of 26 March 2023, the clock goes from midnight back to 23:00 of the day before.
        ("TZ=America/Asuncion 30 23 25 3 *", "2023-03-26T02:45:00Z", "2023-03-26T03:30:00Z", "2023-03-26T02:30:00Z"),
        ("TZ=America/Asuncion 30 23 25 3 *", "2023-03-26T03:10:00Z", "2023-03-26T03:30:00Z", "2023-03-26T02:30:00Z"),
        ("TZ=America/Asuncion 0 0 26 3 *", "2023-03-26T02:45:00Z", "2023-03-26T04:00:00Z", "2022-03-26T03:00:00Z"),
    ];
    for (schedule, now, next, last) in cases {
        assert_scheduled(schedule, now, Some(next), Some(last));
    }
    assert_scheduled("TZ=Europe/Berlin 0 0 30 2 *", "2026-11-21T10:00:00Z", None, None);
}

/// In Berlin, the clock goes from 2:00 to 3:00 on 29 March and from 3:00 to 2:00 on 25 October 2026, at 1:00 UTC.
#[test]
fn changes_of_the_clock_lose_no_scheduled_time() {
    let cases = [
        // 2:30 is skipped: the time at which the clock skips it counts.
        ("30 2 * * *", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z", "2026-03-28T01:30:00Z"),
        ("30 2 * * *", "2026-03-29T00:59:59.5Z", "2026-03-29T01:00:00Z", "2026-03-28T01:30:00Z"),
        ("30 2 * * *", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z", "2026-03-29T01:00:00Z"),
        ("30 2 * * *", "2026-03-29T12:00:00Z", "2026-03-30T00:30:00Z", "2026-03-29T01:00:00Z"),
        // 2:00 and 3:00 are the same time.
        ("0 2,3 * * *", "2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z", "2026-03-28T02:00:00Z"),
        ("0 2,3 * * *", "2026-03-29T01:30:00Z", "2026-03-30T00:00:00Z", "2026-03-29T01:00:00Z"),
        ("0 3 * * *", "2026-03-29T00:59:00Z", "2026-03-29T01:00:00Z", "2026-03-28T02:00:00Z"),
        ("59 1 * * *", "2026-03-29T01:00:00Z", "2026-03-29T23:59:00Z", "2026-03-29T00:59:00Z"),
        // 2:30 occurs twice, and both count.
        ("30 2 * * *", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z", "2026-10-24T00:30:00Z"),
        ("30 2 * * *", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T00:30:00Z"),
        ("30 2 * * *", "2026-10-25T01:10:00Z", "2026-10-25T01:30:00Z", "2026-10-25T00:30:00Z"),
        ("30 2 * * *", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z", "2026-10-25T01:30:00Z"),
        ("0 2 * * *", "2026-10-25T00:59:59Z", "2026-10-25T01:00:00Z", "2026-10-25T00:00:00Z"),
        ("0 * * * *", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z", "2026-10-25T01:00:00Z"),
        ("0 3 * * *", "2026-10-25T00:30:00Z", "2026-10-25T02:00:00Z", "2026-10-24T01:00:00Z"),
    ];
    for (schedule, now, next, last) in cases {
        assert_scheduled(&format!("CRON_TZ=Europe/Berlin {schedule}"), now, Some(next), Some(last));
    }
}

#[test]
fn budgets_of_all_hours_are_active_while_the_clock_changes() {
    let cases: [&[(&str, &str)]; 6] = [
        &[("30 2 * * *", "24h")],
        &[("30 * * * *", "1h")],
        &[("0 0 * * *", "24h")],
        &[("0 3 * * *", "24h")],
        &[("0 20 * * *", "12h"), ("0 8 * * *", "12h")],
        // The end of the first one is shown twice.
        &[("0 22 * * *", "4h30m"), ("30 2 * * *", "19h30m")],
    ];
    for windows in cases {
        let with_zone = |(schedule, duration): &(&str, &str)| {
            let schedule = format!("CRON_TZ=Europe/Berlin {schedule}");
            budget("0", Some((schedule.as_str(), *duration)))
        };
        let budgets: Vec<Budget> = windows.iter().map(with_zone).collect();
        for day in ["2026-03-27T00:00:00Z", "2026-10-23T00:00:00Z"] {
            for minutes in 0..5 * 24 * 60 {
                let now = at(day).checked_add(SignedDuration::from_mins(minutes)).unwrap();
                assert!(budgets.iter().any(|one| one.is_active(now) == Ok(true)), "{windows:?} at {now}");
            }
        }
    }
}

#[test]
fn a_window_lasts_for_its_duration_and_until_its_end_by_the_clock() {
    let cases = [
        ("0 0 * * *", "24h", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"),
        ("0 20 * * *", "12h", "2026-10-24T18:00:00Z", "2026-10-25T07:00:00Z"),
        ("0 22 * * *", "4h30m", "2026-10-24T20:00:00Z", "2026-10-25T01:30:00Z"),
        // The clock shows the end too early, or skips it.
        ("0 20 * * *", "12h", "2026-03-28T19:00:00Z", "2026-03-29T07:00:00Z"),
        ("0 22 * * *", "4h30m", "2026-03-28T21:00:00Z", "2026-03-29T01:30:00Z"),
        ("0 0 * * *", "24h", "2026-10-23T22:00:00Z", "2026-10-24T22:00:00Z"),
    ];
    for (schedule, duration, opens, ends) in cases {
        let schedule = format!("CRON_TZ=Europe/Berlin {schedule}");
        let cron = Cron::parse(&schedule).unwrap();
        let length = SignedDuration::try_from(duration.parse::<GoDuration>().unwrap().value()).unwrap();
        assert_eq!(cron.last_at_or_before(at(opens)), Some(at(opens)), "{schedule}");
        assert_eq!(cron.ends(at(opens), length), Some(at(ends)), "{schedule} from {opens}");
        let one = budget("0", Some((schedule.as_str(), duration)));
        assert_eq!(one.next_change(at(opens)), Ok(Some(at(ends))), "{schedule} from {opens}");
    }
    let utc = Cron::parse("0 0 * * *").unwrap();
    let day = SignedDuration::from_hours(24);
    assert_eq!(utc.ends(at("2026-10-25T00:00:00Z"), day), Some(at("2026-10-26T00:00:00Z")));
    assert_eq!(utc.ends(at("2026-10-25T00:00:00Z"), SignedDuration::MAX), None);
}

#[test]
fn a_budget_of_working_hours_follows_the_clock() {
    let working_hours = budget("0", Some(("CRON_TZ=Europe/Berlin 0 9 * * 1-5", "8h")));
    // The Fridays before and the Mondays after the changes of the clock.
    for (opens, closes) in [
        ("2026-03-27T08:00:00Z", "2026-03-27T16:00:00Z"),
        ("2026-03-30T07:00:00Z", "2026-03-30T15:00:00Z"),
        ("2026-10-23T07:00:00Z", "2026-10-23T15:00:00Z"),
        ("2026-10-26T08:00:00Z", "2026-10-26T16:00:00Z"),
    ] {
        let (opens, closes) = (at(opens), at(closes));
        let before = opens.checked_sub(SignedDuration::from_secs(1)).unwrap();
        assert_eq!((working_hours.is_active(before), working_hours.next_change(before)), (Ok(false), Ok(Some(opens))));
        assert_eq!((working_hours.is_active(opens), working_hours.next_change(opens)), (Ok(true), Ok(Some(closes))));
        assert_eq!(working_hours.is_active(closes), Ok(false));
    }
}

#[test]
fn a_budget_is_active_for_its_duration_after_each_scheduled_time() {
    let nights = budget("0", Some(("30 22 * * *", "8h30m")));
    let cases = [
        ("2026-11-21T22:29:59Z", false, "2026-11-21T22:30:00Z"),
        ("2026-11-21T22:30:00Z", true, "2026-11-22T07:00:00Z"),
        ("2026-11-22T06:59:59Z", true, "2026-11-22T07:00:00Z"),
        ("2026-11-22T07:00:00Z", false, "2026-11-22T22:30:00Z"),
    ];
    for (now, active, change) in cases {
        assert_eq!(nights.is_active(at(now)), Ok(active), "{now}");
        assert_eq!(nights.next_change(at(now)), Ok(Some(at(change))), "{now}");
    }
    assert_eq!(budget("0", None).is_active(at("2026-11-21T22:30:00Z")), Ok(true));
    assert_eq!(budget("0", None).next_change(at("2026-11-21T22:30:00Z")), Ok(None));
}

#[test]
fn overlapping_windows_are_always_open() {
    let always = budget("0", Some(("0 * * * *", "90m")));
    let mut now = at("2026-11-21T10:00:00Z");
    for _ in 0..20 {
        assert_eq!(always.is_active(now), Ok(true), "{now}");
        let change = always.next_change(now).unwrap().unwrap();
        assert!(change > now);
        now = change;
    }
}

#[test]
fn percentages_are_rounded_up() {
    for (nodes, total, allowed) in [
        ("10%", 0, 0),
        ("10%", 1, 1),
        ("10%", 10, 1),
        ("10%", 11, 2),
        ("0%", 99, 0),
        ("100%", 7, 7),
        ("5", 2, 5),
        ("0", 9, 0),
    ] {
        assert_eq!(budget(nodes, None).allowed(total), Ok(allowed), "{nodes} of {total}");
    }
    assert_eq!(budget("99999999999", None).allowed(1), Ok(u32::MAX));
    for nodes in ["", "%", "-1", "ten", "1.5%", "99999999999999999999"] {
        assert_eq!(budget(nodes, None).allowed(1), Err(BudgetError::Nodes(nodes.to_owned())));
    }
}

#[test]
fn the_smallest_applicable_budget_is_used() {
    let noon = at("2026-11-21T12:00:00Z");
    let only_drift = Budget { reasons: Some(vec![DisruptionReason::Drifted]), ..budget("1", None) };
    let at_night = budget("0", Some(("0 22 * * *", "8h")));
    let spec = pool(vec![budget("50%", None), only_drift, at_night]);
    assert_eq!(spec.allowed_disruptions(DisruptionReason::Drifted, noon, 10), 1);
    assert_eq!(spec.allowed_disruptions(DisruptionReason::Empty, noon, 10), 5);
    assert_eq!(spec.allowed_disruptions(DisruptionReason::Empty, at("2026-11-21T23:00:00Z"), 10), 0);
    assert_eq!(spec.next_budget_change(noon), Some(at("2026-11-21T22:00:00Z")));
}

#[test]
fn a_pool_without_budgets_differs_from_a_pool_with_an_empty_list() {
    let noon = at("2026-11-21T12:00:00Z");
    assert_eq!(NodePoolSpec::default().allowed_disruptions(DisruptionReason::Empty, noon, 25), 3);
    assert_eq!(pool(Vec::new()).allowed_disruptions(DisruptionReason::Empty, noon, 25), u32::MAX);
}

#[test]
fn an_invalid_budget_allows_no_disruptions() {
    let noon = at("2026-11-21T12:00:00Z");
    let broken = Budget { reasons: Some(vec![DisruptionReason::Drifted]), ..budget("10", Some(("61 * * * *", "1h"))) };
    let half = Budget { duration: None, ..budget("10", Some(("@daily", "1h"))) };
    for bad in [broken, half, budget("many", None)] {
        let spec = pool(vec![budget("5", None), bad]);
        assert_eq!(spec.allowed_disruptions(DisruptionReason::Empty, noon, 10), 0);
    }
}
