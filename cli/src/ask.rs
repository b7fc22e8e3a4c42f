//! Gets plans and explanations from the scheduler's code in this process, or from a scheduler over gRPC. Request and
//! response are the same.

use crate::input::Question;
use crate::progress::Progress;
use crate::{CommandError, innermost, output};
use clap::Args;
use plimsoll_model::plan::{Plan, Reason};
use plimsoll_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use plimsoll_proto::scheduler::v1::{ExplainRequest, PlanRequest};
use plimsoll_scheduler::answer::in_process;
use std::time::{Duration, Instant};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

/// Connection timeout: a scheduler is close, or does not exist.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Response timeout: seconds are normal for the largest clusters, and minutes indicate an error.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum size of a response: far more than the 16 MiB that a scheduler sends, in case a later version sends more.
const MAX_ANSWER_BYTES: usize = 128 * 1024 * 1024;

/// Selects the scheduler.
#[derive(Debug, Default, Args)]
pub(crate) struct ServerArguments {
    /// Scheduler to ask over gRPC, as host:port. Without it, the plan is made in this process.
    #[arg(long, value_name = "ADDR")]
    server: Option<String>,
}

/// Durations of the parts of a response. A scheduler over gRPC checks its plan itself, so `plan` includes the check.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timings {
    pub(crate) plan: Duration,
    pub(crate) check: Duration,
}

/// An explanation.
pub(crate) struct Explanation {
    /// Lines of the explanation.
    pub(crate) lines: Vec<String>,
    /// Reasons why a pod is unschedulable.
    pub(crate) reasons: Vec<Reason>,
}

/// Returns the plan for the question, and its durations.
pub(crate) fn plan(question: &Question, arguments: &ServerArguments) -> Result<(Plan, Timings), CommandError> {
    let _progress = Progress::start("planning");
    let started = Instant::now();
    let Some(address) = &arguments.server else {
        let who = "the scheduler";
        let Question { snapshot, catalogs, options, .. } = question;
        let unchecked = in_process::solve(snapshot, catalogs, options).map_err(|status| refused(who, &status))?;
        let plan = started.elapsed();
        let note = |error: &str| {
            output::hint(&format!(
                "{error}; pods that cause this are left out. This is a bug of plimsoll, please report it"
            ));
        };
        let checked = unchecked.check_noting(note).map_err(|status| refused(who, &status))?;
        return Ok((checked, Timings { plan, check: started.elapsed().saturating_sub(plan) }));
    };
    let who = format!("the scheduler at {address}");
    let request = PlanRequest { shared_lists: true, ..question.request() };
    let call = async |mut client: Client| client.plan(request).await.map(tonic::Response::into_inner);
    let response = remote(address, call)?.map_err(|status| refused(&who, &status))?;
    let plan = response.plan.ok_or_else(|| CommandError::Failed(format!("{who} answered without a plan")))?;
    let plan =
        Plan::try_from(plan).map_err(|error| CommandError::Failed(format!("{who} sent an invalid answer: {error}")))?;
    Ok((plan, Timings { plan: started.elapsed(), check: Duration::ZERO }))
}

/// Returns the requested explanation.
pub(crate) fn explain(request: ExplainRequest, arguments: &ServerArguments) -> Result<Explanation, CommandError> {
    let _progress = Progress::start("planning");
    let (response, who) = match &arguments.server {
        None => (plimsoll_scheduler::answer::explain(&request), "the scheduler".to_owned()),
        Some(address) => {
            let call = async |mut client: Client| client.explain(request).await.map(tonic::Response::into_inner);
            (remote(address, call)?, format!("the scheduler at {address}"))
        }
    };
    let response = response.map_err(|status| refused(&who, &status))?;
    let reasons = response.reasons.into_iter().map(Reason::try_from).collect::<Result<Vec<Reason>, _>>();
    let reasons = reasons.map_err(|error| CommandError::Failed(format!("{who} sent an invalid answer: {error}")))?;
    Ok(Explanation { lines: response.lines, reasons })
}

fn refused(who: &str, status: &Status) -> CommandError {
    match status.code() {
        Code::InvalidArgument => CommandError::BadInput(format!("{who} refuses the request: {}", status.message())),
        // Of the request or of the response.
        Code::OutOfRange => {
            let hint = "without --server, the command has no such limit";
            CommandError::Failed(format!("{who}: {}; {hint}", describe(status)))
        }
        _ => CommandError::Failed(format!("{who}: {}", describe(status))),
    }
}

type Client = SchedulerServiceClient<Channel>;

fn remote<T>(
    address: &str,
    call: impl AsyncFnOnce(Client) -> Result<T, Status>,
) -> Result<Result<T, Status>, CommandError> {
    let endpoint = endpoint(address)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CommandError::Failed(error.to_string()))?;
    runtime.block_on(async {
        let channel = endpoint.connect().await.map_err(|error| {
            CommandError::Failed(format!("cannot reach a scheduler at {address}: {}", innermost(&error)))
        })?;
        let client = SchedulerServiceClient::new(channel)
            .max_decoding_message_size(MAX_ANSWER_BYTES)
            .max_encoding_message_size(usize::MAX);
        Ok(call(client).await)
    })
}

fn endpoint(address: &str) -> Result<Endpoint, CommandError> {
    let bad = |problem: &str| CommandError::BadInput(format!("--server {address}: {problem}"));
    let bare = match address.split_once("://") {
        None => address,
        Some(("http", rest)) => rest.trim_end_matches('/'),
        Some(_) => return Err(bad("must be host:port; the scheduler's open port speaks gRPC without TLS")),
    };
    let port = bare.rsplit_once(':').and_then(|(host, port)| (!host.is_empty()).then(|| port.parse::<u16>().ok())?);
    if port.is_none() || bare.contains('/') {
        return Err(bad("must be host:port"));
    }
    let endpoint = Endpoint::from_shared(format!("http://{bare}")).map_err(|error| bad(&error.to_string()))?;
    Ok(endpoint.connect_timeout(CONNECT_TIMEOUT).timeout(ANSWER_TIMEOUT))
}

fn describe(status: &Status) -> String {
    format!("{:?}: {}", status.code(), status.message())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_too_large_for_a_server_has_a_hint() {
        let error = refused("the scheduler at here:1", &Status::out_of_range("too large"));
        let text = "the scheduler at here:1: OutOfRange: too large; without --server, the command has no such limit";
        assert!(matches!(&error, CommandError::Failed(found) if found == text), "{error:?}");
    }

    #[test]
    fn addresses_are_host_and_port() {
        for good in ["localhost:9452", "10.0.0.1:1", "[::1]:9452", "http://scheduler.example:9452/"] {
            assert!(endpoint(good).is_ok(), "{good}");
        }
        for bad in ["localhost", ":9452", "localhost:port", "https://localhost:9452", "localhost:9452/path", ""] {
            assert_eq!(endpoint(bad).unwrap_err().status(), 2, "{bad}");
        }
    }
}
