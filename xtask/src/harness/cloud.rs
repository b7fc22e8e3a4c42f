//! The EC2 of tests/ec2: its process and its control paths.

use super::http::{self, percent};
use super::parts::Parts;
use super::process::{Guard, Process};
use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// moto reads a megabyte of facts while it starts.
const START: Duration = Duration::from_secs(60);

/// An instance of the whole history.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) id: String,
    pub(crate) instance_type: String,
    pub(crate) zone: String,
    pub(crate) state: String,
    pub(crate) capacity_type: String,
}

/// A call that arrived at the endpoint.
#[derive(Debug)]
pub(crate) struct Call {
    /// Time of arrival, in seconds since 1970.
    pub(crate) time: f64,
    /// arrived, held-request, executed, held-answer, answered, lost-request, lost-answer.
    pub(crate) state: String,
    pub(crate) instances: Vec<String>,
    /// The error code; empty after success.
    pub(crate) refused: String,
    /// Number of instances that the request names.
    pub(crate) ids: usize,
    /// (instance type, zone, capacity type) of a CreateFleet's overrides.
    pub(crate) pools: Vec<(String, String, String)>,
}

/// What EC2 is started for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Setup<'a> {
    pub(crate) region: &'a str,
    /// Name of the cluster, which is also in the queue and the discovery tags.
    pub(crate) cluster: &'a str,
    /// File of prices.
    pub(crate) prices: Option<&'a Path>,
    /// Seed of slow calls, failures, throttling and delayed reads; without one, there are none.
    pub(crate) seed: Option<u32>,
    /// Folder of answers about instance types, shared with the other servers of the run.
    pub(crate) answers: Option<&'a Path>,
}

/// A running EC2 with a network, a queue and a node role for one cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Cloud {
    pub(crate) endpoint: String,
    pub(crate) region: String,
    pub(crate) cluster: String,
    /// Output of the bootstrap.
    pub(crate) made: Value,
    address: SocketAddr,
}

impl Cloud {
    /// Starts the server and creates the resources that an administrator creates before Plimsoll. EC2 ends with the
    /// process.
    pub(crate) fn start(parts: &Parts, guard: &Arc<Guard>, dir: &Path, setup: &Setup<'_>) -> Result<(Cloud, Process)> {
        let Setup { region, cluster, prices, seed, answers } = *setup;
        let folder = parts.root.join("tests/ec2");
        let mut command = Command::new(&parts.python);
        command.current_dir(&folder).args(["-m", "plimsoll_ec2", "serve"]);
        if let Some(prices) = prices {
            command.arg("--prices").arg(prices);
        }
        if let Some(seed) = seed {
            command.arg("--seed").arg(seed.to_string());
        }
        if let Some(answers) = answers {
            command.arg("--answers").arg(answers);
        }
        let mut process = Process::start("ec2", &mut command, dir, guard)?;
        let line: Value = serde_json::from_str(&process.first_line(START)?)?;
        let endpoint = line["endpoint"].as_str().context("the EC2 server reported no endpoint")?.to_owned();
        let address =
            endpoint.trim_start_matches("http://").parse().with_context(|| format!("{endpoint} is not an address"))?;
        let output = Command::new(&parts.python)
            .current_dir(&folder)
            .args([
                "-m",
                "plimsoll_ec2",
                "bootstrap",
                "--endpoint",
                &endpoint,
                "--region",
                region,
                "--cluster",
                cluster,
            ])
            .output()
            .context("starting the bootstrap")?;
        if !output.status.success() {
            bail!("bootstrap: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let made = serde_json::from_slice(&output.stdout).context("the bootstrap did not write JSON")?;
        let cloud = Cloud { endpoint, region: region.to_owned(), cluster: cluster.to_owned(), made, address };
        Ok((cloud, process))
    }

    /// The zones with a subnet, in order.
    pub(crate) fn zones(&self) -> Vec<String> {
        let subnets = self.made["subnets"].as_object();
        let mut zones: Vec<String> = subnets.into_iter().flat_map(|all| all.keys().cloned()).collect();
        zones.sort();
        zones
    }

    /// All instances of the history.
    pub(crate) fn instances(&self) -> Result<Vec<Instance>> {
        let answer = http::json(self.address, "GET", "/_instances", None)?;
        let items = answer["instances"].as_array().context("no instances in the answer")?;
        let text = |item: &Value, key: &str| item[key].as_str().unwrap_or_default().to_owned();
        let instance = |item: &Value| Instance {
            id: text(item, "instanceId"),
            instance_type: text(item, "instanceType"),
            zone: text(item, "zone"),
            state: text(item, "state"),
            capacity_type: text(item, "capacityType"),
        };
        Ok(items.iter().map(instance).collect())
    }

    /// Pending and running instances.
    pub(crate) fn living(&self) -> Result<Vec<Instance>> {
        Ok(self.instances()?.into_iter().filter(|i| i.state == "running" || i.state == "pending").collect())
    }

    /// Calls of one action after the call with this number.
    pub(crate) fn calls(&self, action: &str, since: u64) -> Result<Vec<Call>> {
        let answer = http::json(self.address, "GET", &format!("/_calls?action={action}&since={since}"), None)?;
        Ok(answer["calls"].as_array().context("no calls in the answer")?.iter().map(call).collect())
    }

    /// Number of the last call of any action.
    pub(crate) fn last_call(&self) -> Result<u64> {
        let answer = http::json(self.address, "GET", "/_calls", None)?;
        Ok(answer["calls"].as_array().and_then(|all| all.last()).and_then(|c| c["seq"].as_u64()).unwrap_or(0))
    }

    /// Sets faults, in the format of tests/ec2/README.md.
    pub(crate) fn faults(&self, faults: &Value) -> Result<()> {
        http::json(self.address, "POST", "/_faults", Some(faults)).map(drop)
    }

    /// Releases held calls; with `drop_them`, calls that were held before execution never execute.
    pub(crate) fn release(&self, drop_them: bool) -> Result<()> {
        http::json(self.address, "POST", "/_release", Some(&json!({ "drop": drop_them }))).map(drop)
    }

    /// Current faults, in the same format.
    pub(crate) fn current_faults(&self) -> Result<Value> {
        http::json(self.address, "GET", "/_faults", None)
    }

    /// Replaces the capacity reservations, in the format of tests/ec2/README.md.
    pub(crate) fn reserve(&self, reservations: &Value) -> Result<()> {
        http::json(self.address, "POST", "/_reservations", Some(&json!({ "reservations": reservations }))).map(drop)
    }

    /// Capacity reservations with the number of their free instances.
    pub(crate) fn free_of_reservations(&self) -> Result<Vec<(String, u64)>> {
        let answer = http::json(self.address, "GET", "/_reservations", None)?;
        let all = answer["reservations"].as_array().context("no reservations in the answer")?;
        let free = |item: &Value| Some((item["id"].as_str()?.to_owned(), item["free"].as_u64()?));
        all.iter().map(|item| free(item).context("a reservation without id or free instances")).collect()
    }

    /// Sets the answer to repeated client tokens, and how long the first call of a token takes: tests/ec2/README.md.
    pub(crate) fn repeated_tokens(&self, answer: &str, seconds: u64) -> Result<()> {
        http::json(self.address, "POST", "/_tokens", Some(&json!({"repeated": answer, "seconds": seconds}))).map(drop)
    }

    /// Sets the release of images that EKS recommends.
    pub(crate) fn recommend(&self, release: &str) -> Result<()> {
        http::json(self.address, "POST", "/_images", Some(&json!({ "recommended": release }))).map(drop)
    }

    /// Sends messages about instances of others to the queue, evenly over the time.
    pub(crate) fn flood(&self, messages: u32, over: Duration) -> Result<()> {
        let flood =
            json!({"queue": self.cluster, "region": self.region, "messages": messages, "seconds": over.as_secs()});
        http::json(self.address, "POST", "/_foreign", Some(&flood)).map(drop)
    }

    /// Number of messages in the queue, delivered or not.
    pub(crate) fn waiting_messages(&self) -> Result<u64> {
        let path = format!("/_queue?queue={}&region={}", self.cluster, self.region);
        http::json(self.address, "GET", &path, None)?["messages"].as_u64().context("no number of messages")
    }

    /// Number of calls after the call with this number that name an instance of a flood.
    pub(crate) fn foreign_reads(&self, since: u64) -> Result<usize> {
        let answer = http::json(self.address, "GET", &format!("/_calls?since={since}"), None)?;
        let calls = answer["calls"].as_array().context("no calls in the answer")?;
        let of_ec2 = calls.iter().filter(|call| call["service"] == "ec2");
        Ok(of_ec2.filter(|call| call["parameters"].to_string().contains("\"i-f00000")).count())
    }

    /// Sends a Spot interruption notice to the queue. EC2 terminates the instance after the notice period.
    pub(crate) fn interrupt(&self, instance: &str) -> Result<()> {
        self.send_event(instance, "spot-interruption", "")
    }

    /// Terminates an instance outside of Plimsoll, like a failure of its host: EC2 reports the new state to the queue.
    pub(crate) fn lose(&self, instance: &str) -> Result<()> {
        self.query(&[("Action", "TerminateInstances"), ("InstanceId.1", instance)])?;
        self.send_event(instance, "state-change", "shutting-down")
    }

    fn send_event(&self, instance: &str, kind: &str, state: &str) -> Result<()> {
        let event =
            json!({"queue": self.cluster, "region": self.region, "instanceId": instance, "kind": kind, "state": state});
        http::json(self.address, "POST", "/_events", Some(&event)).map(drop)
    }

    /// Makes an EC2 call in the query protocol, as another program. A seed has no effect on calls with this access key.
    /// Returns the body of the response.
    pub(crate) fn query(&self, parameters: &[(&str, &str)]) -> Result<String> {
        let scope = format!(
            "AWS4-HMAC-SHA256 Credential=harness/20260101/{}/ec2/aws4_request, SignedHeaders=host, Signature=0",
            self.region
        );
        let mut body = String::from("Version=2016-11-15");
        for (name, value) in parameters {
            body.push_str(&format!("&{name}={}", percent(value)));
        }
        let headers = [("Authorization", scope.as_str()), ("Content-Type", "application/x-www-form-urlencoded")];
        let answer = http::send(self.address, "POST", "/", &headers, &body)?;
        if answer.status >= 400 {
            bail!("{:?}: {}: {}", parameters.first(), answer.status, answer.body.trim());
        }
        Ok(answer.body)
    }
}

fn call(item: &Value) -> Call {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let fleet = &item["fleet"];
    let pools = fleet["pools"].as_array().map(|all| {
        let capacity_type = text(&fleet["capacityType"]);
        all.iter().map(|p| (text(&p["instanceType"]), text(&p["zone"]), capacity_type.clone())).collect()
    });
    Call {
        time: item["time"].as_f64().unwrap_or(0.0),
        state: text(&item["state"]),
        instances: item["instances"].as_array().map(|all| all.iter().map(text).collect()).unwrap_or_default(),
        refused: text(&item["error"]),
        ids: item["parameters"].as_object().into_iter().flatten().filter(|(k, _)| k.starts_with("InstanceId.")).count(),
        pools: pools.unwrap_or_default(),
    }
}
