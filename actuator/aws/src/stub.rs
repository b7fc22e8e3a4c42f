//! A stub service on loopback for adapter tests. It replies as the test specifies, or closes the connection.

use crate::connect::timeouts;
use aws_config::retry::RetryConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What happens to a request.
pub(crate) enum Reply {
    /// Send this response.
    Answer(u16, String),
    /// Read the request, then close the connection.
    HangUp,
}

impl Reply {
    pub(crate) fn ok(body: &str) -> Self {
        Self::Answer(200, body.to_owned())
    }

    /// An EC2 error response.
    pub(crate) fn ec2_error(status: u16, code: &str) -> Self {
        let error = format!("<Errors><Error><Code>{code}</Code><Message>words</Message></Error></Errors>");
        Self::Answer(status, format!("<Response>{error}<RequestID>1</RequestID></Response>"))
    }
}

/// The stub. It ends with the test's runtime.
pub(crate) struct Stub {
    url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

/// A received request.
struct Request {
    /// Method, target and protocol.
    line: String,
    body: String,
}

impl Stub {
    /// Serves `replies` in order; further requests get an error.
    pub(crate) async fn new(replies: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        tokio::spawn(async move {
            let mut replies = replies.into_iter();
            while let Ok((mut stream, _)) = listener.accept().await {
                // A preconnected idle connection sends nothing.
                let Some(request) = read(&mut stream).await else { continue };
                seen.lock().push(request);
                match replies.next().unwrap_or_else(|| Reply::ec2_error(400, "UnexpectedRequest")) {
                    Reply::HangUp => {}
                    Reply::Answer(status, body) => {
                        let head = format!(
                            "HTTP/1.1 {status} X\r\ncontent-type: text/xml\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                            body.len()
                        );
                        let _closed = stream.write_all((head + &body).as_bytes()).await;
                    }
                }
            }
        });
        Self { url, requests }
    }

    /// The bodies received so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().iter().map(|request| request.body.clone()).collect()
    }

    /// The first lines received so far: method, target and protocol.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.requests.lock().iter().map(|request| request.line.clone()).collect()
    }

    /// An SDK configuration for the stub, like the program's.
    pub(crate) fn config(&self) -> SdkConfig {
        config(&self.url)
    }
}

/// An SDK configuration for an address, like the program's.
pub(crate) fn config(url: &str) -> SdkConfig {
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static("us-east-1"))
        .credentials_provider(SharedCredentialsProvider::new(TestCredentials))
        .retry_config(RetryConfig::standard().with_max_attempts(2))
        .timeout_config(timeouts())
        .endpoint_url(url)
        .build()
}

#[derive(Debug)]
struct TestCredentials;

impl ProvideCredentials for TestCredentials {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::ready(Ok(Credentials::new("key", "secret", None, None, "stub")))
    }
}

/// A request; `None` if the connection ends before it.
async fn read(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
            });
            if body.len() >= length.unwrap_or(0) {
                let line = head.lines().next().unwrap_or_default().to_owned();
                return Some(Request { line, body: body.to_owned() });
            }
        }
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer).await {
            Ok(read) if read > 0 => bytes.extend_from_slice(&buffer[..read]),
            _ => return None,
        }
    }
}
