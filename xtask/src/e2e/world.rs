//! All that a scenario plays in: control plane, EC2, kubelets and, if it wants them, the services.

use super::cloud::Cloud;
use super::cluster::Cluster;
use super::scenarios::Scenario;
use super::services::Services;
use super::{Context, say};
use crate::harness::process::Process;
use anyhow::{Context as _, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Python reads its modules, and the API server is asked once.
const STAND_IN_START: Duration = Duration::from_secs(30);

/// Fields are dropped in this order: the services first, the cluster last.
#[derive(Debug)]
pub(super) struct World {
    services: Option<Services>,
    kubelets: Option<Process>,
    pub(super) cloud: Cloud,
    pub(super) cluster: Cluster,
    pub(super) root: PathBuf,
    report: PathBuf,
}

impl World {
    pub(super) fn start(context: &Context, scenario: &Scenario, dir: &Path) -> Result<World> {
        let Context { parts, guard, .. } = context;
        let cluster = Cluster::start(parts, guard, dir)?;
        let prices = dir.join("prices.json");
        let prices = if scenario.with_services { catalog(context, scenario.region, &prices)? } else { None };
        let cloud = Cloud::start(parts, guard, dir, scenario.region, scenario.cluster, prices.as_deref())?;
        let report = dir.join("kubelets.json");
        let mut command = Command::new(&parts.python);
        command
            .current_dir(parts.root.join("tests/kubelet"))
            .args(["-m", "plimsoll_kubelet", "--cluster-name", scenario.cluster, "--endpoint", &cloud.endpoint])
            .arg("--kubeconfig")
            .arg(&cluster.kubeconfig)
            .arg("--report")
            .arg(&report);
        let mut kubelets = Process::start("kubelets", &mut command, dir, guard)?;
        kubelets.first_line(STAND_IN_START)?;
        let services = match scenario.with_services {
            true => Some(Services::start(parts, guard, dir, &cluster, &cloud)?),
            false => None,
        };
        Ok(World { services, kubelets: Some(kubelets), cloud, cluster, root: parts.root.clone(), report })
    }

    /// The services under test.
    pub(super) fn services(&mut self) -> Result<&mut Services> {
        self.services.as_mut().context("this scenario has no services")
    }

    /// What must hold after every scenario, whatever it shows.
    pub(super) fn check_always(&mut self) -> Result<()> {
        let mut troubles = match &mut self.services {
            Some(services) => services.troubles()?,
            None => Vec::new(),
        };
        troubles.extend(super::checks::of_audit(&self.cluster.audit()?));
        // The stand-in ends with an error if an instance was told something wrong.
        if let Some(mut kubelets) = self.kubelets.take()
            && !kubelets.stop()?.success()
        {
            let told = std::fs::read_to_string(&self.report).unwrap_or_default();
            troubles.push(format!("nodes could not join: {told}"));
        }
        if !troubles.is_empty() {
            bail!("{}", troubles.join("; "));
        }
        Ok(())
    }
}

/// The built-in prices of the region, so that EC2 and Plimsoll agree on what is cheap.
fn catalog(context: &Context, region: &str, to: &Path) -> Result<Option<PathBuf>> {
    let program = context.parts.program("plimsoll")?;
    let output = Command::new(program)
        .args(["catalog", "--region", region, "-o", "json"])
        .output()
        .context("starting plimsoll catalog")?;
    if !output.status.success() {
        say(&format!(
            "plimsoll catalog failed, EC2 goes by a formula: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ));
        return Ok(None);
    }
    std::fs::write(to, output.stdout)?;
    Ok(Some(to.to_owned()))
}
