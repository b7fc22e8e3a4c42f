//! A simulated period in which pods come and go, compared with Karpenter's provisioner and disruption methods.

use super::table::{Table, number};
use super::{Bench, PROGRESS};
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::ffi::OsStr;

pub(super) fn run(bench: &Bench) -> Result<Vec<Table>> {
    let args = &bench.args;
    let (days, pods) = (args.days.to_string(), args.period_pods.to_string());
    let mut table = Table::new(
        &format!("{days} days with {pods} pods"),
        &["scheduler", "seed", "USD", "evicted", "created", "launched", "removed", "waited s", "CPU s"],
    );
    for seed in args.first_seed..args.first_seed + args.clusters {
        let seed = seed.to_string();
        let asked = ["month", "--seed", &seed, "--days", &days, "--pods", &pods];
        PROGRESS.say(&format!("period, seed {seed}"));
        let ours = bench.measure.run(&asked, &[])?.pop().context("plimsoll-measure printed nothing")?;
        table.row(row("Plimsoll", &seed, &ours, "seconds"));
        if bench.measure.with_peer() {
            let dir = bench.measure.dir.join(format!("period-{seed}"));
            let folder = dir.to_str().context("the folder's path is not UTF-8")?;
            bench.measure.run(&[asked.as_slice(), &["--write", folder]].concat(), &[])?;
            let workload = dir.join("workload.json");
            let theirs = bench.measure.run_peer("period", &dir, &[OsStr::new("-workload"), workload.as_os_str()])?;
            table.row(row("Karpenter", &seed, &theirs, "cpuSeconds"));
        }
        let anew = number(&ours, "usdAnew");
        table.row(vec!["anew each hour".to_owned(), seed, format!("{anew:.2}")]);
    }
    table.note(
        "Services whose replicas follow the time of day and the week, and jobs; their number changes every five minutes. One NodePool, \
         On-Demand, consolidateAfter 0s, a budget of 10 %. A node is in service a minute after its launch. waited: per created pod, until \
         its first node is in service. anew: cost if the pods were planned for an empty cluster in each hour. Karpenter's pods go where \
         its own results place them, its provisioning waits for no batch, and it does nothing else while nodes boot."
            .to_owned(),
    );
    Ok(vec![table])
}

fn row(name: &str, seed: &str, figures: &Value, seconds: &str) -> Vec<String> {
    let whole = |key: &str| format!("{:.0}", number(figures, key));
    vec![
        name.to_owned(),
        seed.to_owned(),
        format!("{:.2}", number(figures, "usd")),
        whole("evicted"),
        whole("createdPods"),
        whole("launched"),
        whole("removed"),
        format!("{:.1}", number(figures, "waitedSecondsPerPod")),
        whole(seconds),
    ]
}
