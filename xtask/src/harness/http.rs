//! A minimal HTTP client for loopback control paths and health checks: one request per connection.

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Every response is fast: this client never waits for held calls of the EC2 stand-in.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// Sends one request with HTTP/1.0, so that the response ends with the connection and is never chunked.
///
/// # Errors
/// If there is no connection or no HTTP response. A status of 400 or more is not an error.
pub(crate) fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Result<Answer> {
    let mut stream =
        TcpStream::connect_timeout(&address, TIMEOUT).with_context(|| format!("connecting to {address}"))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut head = format!("{method} {path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{head}\r\n{body}").as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text).with_context(|| format!("reading the answer of {address}{path}"))?;
    let (head, body) =
        text.split_once("\r\n\r\n").with_context(|| format!("{address}{path} did not answer in HTTP"))?;
    let status = head.split_ascii_whitespace().nth(1).and_then(|s| s.parse().ok());
    Ok(Answer { status: status.with_context(|| format!("no status in {head:?}"))?, body: body.to_owned() })
}

/// Sends JSON, and expects JSON and success.
///
/// # Errors
/// If the status is 400 or more, with the body.
pub(crate) fn json(address: SocketAddr, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
    let text = body.map(Value::to_string).unwrap_or_default();
    let answer = send(address, method, path, &[("Content-Type", "application/json")], &text)?;
    if answer.status >= 400 {
        bail!("{method} {address}{path}: {}: {}", answer.status, answer.body.trim());
    }
    serde_json::from_str(&answer.body).with_context(|| format!("{method} {address}{path} did not answer in JSON"))
}

/// Encodes a string for a query or a form.
pub(crate) fn percent(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~".contains(&b);
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}
