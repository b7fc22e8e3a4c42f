//! The scheduler as a service on loopback, in its own process, so that its memory is measured separately.

use anyhow::{Context as _, Result};
use plimsoll_runtime::admin::Readiness;
use plimsoll_runtime::metrics::Metrics;
use plimsoll_runtime::serve::Listener;
use plimsoll_runtime::shutdown::Shutdown;
use plimsoll_scheduler::service::{self, Parts, Settings};
use std::io::{BufRead as _, BufReader, Read as _};
use std::num::NonZeroUsize;
use std::process::{Child, Command, Stdio};
use tokio::net::TcpListener;

/// Serves until the end of stdin.
pub(crate) fn serve() -> Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listening on loopback")?;
        crate::print(&listener.local_addr()?.to_string().into())?;
        let shutdown = Shutdown::default();
        let parts = Parts {
            closed: Listener::Closed(listener, None),
            open: None,
            metrics: Metrics::new("scheduler"),
            readiness: Readiness::default(),
            settings: Settings::for_cores(std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)),
        };
        let end = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        tokio::select! {
            served = service::run(parts, shutdown) => served?,
            // The sessions have ended, so there is nothing to drain.
            ended = end => {
                ended??;
            }
        }
        Ok(())
    })
}

/// The process of the scheduler, as its client sees it.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
}

impl Server {
    pub(crate) fn start() -> Result<Self> {
        let program = std::env::current_exe()?;
        let mut command = Command::new(program);
        let mut child = command.arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("the scheduler has no stdout")?).read_line(&mut line)?;
        let address = serde_json::from_str(&line).context("the scheduler reported no address")?;
        Ok(Self { child, address })
    }

    /// Peak memory of the process.
    pub(crate) fn peak_mib(&self) -> Result<f64> {
        crate::figures::peak_of(&self.child.id().to_string())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ended = self.child.wait();
    }
}
