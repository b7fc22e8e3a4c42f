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
        let cron = Cron::parse(schedule).unwrap();
        assert_eq!(cron.next_after(at(now)), Some(at(next)), "{schedule} after {now}");
        assert_eq!(cron.last_at_or_before(at(now)), Some(at(last)), "{schedule} before {now}");
    }
}

#[test]
fn an_impossible_date_is_never_scheduled() {
    let cron = Cron::parse("0 0 30 2 *").unwrap();
    assert_eq!(cron.next_after(at("2026-11-21T10:00:00Z")), None);
    assert_eq!(cron.last_at_or_before(at("2026-11-21T10:00:00Z")), None);
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
        "TZ=UTC * * * * *",
    ] {
        assert!(Cron::parse(text).is_err(), "{text:?}");
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
