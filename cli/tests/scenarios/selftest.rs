//! Tests of the runner: a scenario without expectations, or with unknown ones, must fail.

use crate::scenario::header;
use crate::view::is_like;
use libtest_mimic::{Failed, Trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("runner/faulty-headers-are-refused", faulty_headers_are_refused),
        Trial::test("runner/patterns", patterns),
    ]
}

const START: &str = "apiVersion: plimsoll.dev/v1\nkind: Scenario\ntitle: A title\nwhy: A reason.\n";

fn faulty_headers_are_refused() -> Result<(), Failed> {
    let cases = [
        ("expect: {launches: 1}", None),
        ("expect: {}", Some("must expect something")),
        ("expect: {launches: 1, launchs: 2}", Some("launchs")),
        ("expect: {everyLaunch: {zone: a}}", Some("zone")),
        ("expect: {launches: {most: 2}}", Some("expect.launches")),
        ("expect: {launches: 1}\nextra: 1", Some("extra")),
        ("given: {catalogue: x}\nexpect: {launches: 1}", Some("catalogue")),
        ("expect: {terminations: {a: Bored}}", Some("expect.terminations")),
        ("expect: {launches: 1, launches: 2}", Some("header: ")),
        ("", Some("expect")),
    ];
    for (rest, expected) in cases {
        match (header(&format!("{START}{rest}\n---\nignored: true\n")), expected) {
            (Ok(_), None) => {}
            (Err(error), Some(text)) if error.contains(text) => {}
            (found, _) => return Err(format!("{rest:?}: {expected:?} expected, is {found:?}").into()),
        }
    }
    Ok(())
}

fn patterns() -> Result<(), Failed> {
    let cases = [
        ("default/web-0", "default/web-*", true),
        ("default/web-0", "default/web", false),
        ("default/web", "default/web", true),
        ("shop/web-0", "*/web-0", true),
        ("shop/web-0", "s*w*0", true),
        ("shop/web-0", "s*w*1", false),
    ];
    for (name, pattern, expected) in cases {
        if is_like(name, pattern) != expected {
            return Err(format!("{name} like {pattern}: {expected} expected").into());
        }
    }
    Ok(())
}
