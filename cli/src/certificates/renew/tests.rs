use super::*;

/// Noon, so that day boundaries of certificates and tests do not coincide.
const START: i64 = 1_767_268_800;
const NAMES: [&str; 3] = ["plimsoll-watcher.ns.svc", "plimsoll-scheduler.ns.svc", "plimsoll-actuator.ns.svc"];

/// Secrets of a cluster.
#[derive(Default)]
struct Cluster {
    authority: Option<Content>,
    services: [Option<Content>; 3],
}

impl Cluster {
    /// Runs on a day; returns the written Secrets and the reasons.
    fn run(&mut self, day: i64) -> Vec<(Option<usize>, &'static str)> {
        let policy = Policy { days: 90, renew_before: 30, now: START + day * DAY };
        let services: Vec<_> =
            NAMES.iter().zip(&self.services).map(|(name, it)| ((*name).to_owned(), it.clone())).collect();
        let changes = plan(self.authority.as_ref(), &services, policy).unwrap();
        let told = changes.iter().map(|change| (change.service, change.why)).collect();
        for change in changes {
            match change.service {
                Some(index) => self.services[index] = Some(change.content),
                None => self.authority = Some(change.content),
            }
        }
        told
    }

    /// Whether each service trusts the certificates of all services in `other`, on a day.
    fn trusts(&self, other: &Cluster, day: i64) -> bool {
        self.services.iter().flatten().all(|content| {
            let trusted = inspect::all(&content.authorities).unwrap();
            other.services.iter().flatten().all(|content| {
                let certificate = inspect::first(&content.pair.cert).unwrap();
                let now = START + day * DAY;
                let signers = trusted.iter().filter(|it| certificate.is_signed_by(it) && it.end > now);
                signers.count() == 1 && certificate.end > now
            })
        })
    }

    fn copy(&self) -> Cluster {
        Cluster { authority: self.authority.clone(), services: self.services.clone() }
    }
}

#[test]
fn the_first_run_writes_all_four_and_the_next_nothing() {
    let mut cluster = Cluster::default();
    let first = cluster.run(0);
    assert_eq!(first, [(None, "new authority"), (Some(0), "new"), (Some(1), "new"), (Some(2), "new")]);
    assert!(cluster.trusts(&cluster, 0));
    assert_eq!(cluster.run(0), []);
    assert_eq!(cluster.run(59), []);
}

#[test]
fn certificates_that_end_soon_are_replaced() {
    let mut cluster = Cluster::default();
    cluster.run(0);
    let before = cluster.copy();
    assert_eq!(cluster.run(61), [(Some(0), "ends soon"), (Some(1), "ends soon"), (Some(2), "ends soon")]);
    assert!(cluster.authority == before.authority);
    assert!(cluster.services.iter().zip(&before.services).all(|(a, b)| a != b));
    assert!(cluster.trusts(&before, 61) && before.trusts(&cluster, 61));
}

#[test]
fn over_five_years_of_weekly_runs_each_service_trusts_those_that_have_not_reloaded_yet() {
    let mut cluster = Cluster::default();
    cluster.run(0);
    let mut authorities = 0;
    for day in (1..5 * 365).step_by(7) {
        let before = cluster.copy();
        let changes = cluster.run(day);
        authorities += usize::from(changes.contains(&(None, "authority ends soon")));
        assert!(cluster.trusts(&before, day) && before.trusts(&cluster, day), "day {day}: {changes:?}");
    }
    // Each authority is valid for 900 days and replaced 120 days before expiry.
    assert_eq!(authorities, 2);
}

#[test]
fn after_a_long_rest_everything_is_new() {
    let mut cluster = Cluster::default();
    cluster.run(0);
    let changes = cluster.run(2000);
    assert_eq!(changes.first(), Some(&(None, "authority had expired")));
    assert_eq!(changes.len(), 4);
    assert!(cluster.trusts(&cluster, 2000));
    assert_eq!(cluster.run(2000), []);
}

#[test]
fn a_secret_that_is_lost_or_wrong_is_made_again() {
    let mut cluster = Cluster::default();
    cluster.run(0);
    let good = cluster.copy();
    cluster.services[1] = None;
    assert_eq!(cluster.run(1), [(Some(1), "new")]);

    let mut other = Cluster::default();
    other.run(0);
    cluster = good.copy();
    cluster.services[0].clone_from(&other.services[0]);
    assert_eq!(cluster.run(1), [(Some(0), "other authority")]);

    cluster = good.copy();
    cluster.services[2].clone_from(&good.services[0]);
    assert_eq!(cluster.run(1), [(Some(2), "other DNS name")]);

    cluster = good.copy();
    let key = good.services[0].as_ref().unwrap().pair.key.clone();
    cluster.services[2].as_mut().unwrap().pair.key = key;
    assert_eq!(cluster.run(1), [(Some(2), "certificate and key do not belong together")]);

    cluster = good.copy();
    cluster.services[0].as_mut().unwrap().authorities.clear();
    assert_eq!(cluster.run(1), [(Some(0), "authorities changed")]);
    assert!(cluster.services == good.services);
}

#[test]
fn an_authority_that_is_none_is_left_alone() {
    let mut cluster = Cluster::default();
    cluster.run(0);
    let policy = Policy { days: 90, renew_before: 30, now: START };
    let refused = |change: &dyn Fn(&mut Content)| {
        let mut authority = cluster.authority.clone().unwrap();
        change(&mut authority);
        plan(Some(&authority), &[], policy).err().unwrap()
    };
    assert!(refused(&|it| it.pair.cert.clear()).contains("no certificate"));
    let strange = cluster.services[0].clone().unwrap().pair.key;
    assert!(refused(&|it| it.pair.key.clone_from(&strange)).contains("do not belong together"));
}
