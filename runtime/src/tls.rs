//! Mutual TLS with files that may change at runtime.
//!
//! Certificates are reloaded every [`RELOAD_INTERVAL`] and published only after they were found to be consistent. Open
//! connections keep theirs until their maximum age closes them.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustls::{
    ClientConfig, RootCertStore, ServerConfig, crypto::CryptoProvider, server::WebPkiClientVerifier, version::TLS13,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use tokio::{net::TcpStream, sync::watch};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use tokio_util::sync::CancellationToken;
use x509_parser::extensions::GeneralName;

use crate::{
    args::TlsArgs,
    connection::Connection,
    metrics::{Metrics, MetricsError, scrape::Labels},
    shutdown::Shutdown,
};

/// Interval at which the files are compared with the current contents. Certificates are renewed hours before they
/// expire.
pub const RELOAD_INTERVAL: Duration = Duration::from_secs(60);

/// Handshake timeout of both sides: two round trips and a signature, with time for a busy machine.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Error of certificates, or of a missing certificate.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The content of a file is invalid.
    #[error("{}: {cause}", path.display())]
    Content {
        /// Path of the file.
        path: PathBuf,
        /// The cause.
        cause: String,
    },
    /// The files are inconsistent.
    #[error("certificate {} and its key: {source}", path.display())]
    Mismatch {
        /// Path of the certificate file.
        path: PathBuf,
        /// The cause.
        source: rustls::Error,
    },
    /// Only some of the three files are configured.
    #[error("certificate, key and authority must be given together")]
    Incomplete,
    /// A closed service would be open to the network.
    #[error(
        "refusing to listen on {address} without certificates: give --tls-cert, --tls-key and --tls-ca, or a loopback address"
    )]
    PlainNotLoopback {
        /// The configured address.
        address: SocketAddr,
    },
}

/// Paths of the three files.
#[derive(Clone, Debug)]
struct Files {
    cert: PathBuf,
    key: PathBuf,
    ca: PathBuf,
}

/// Contents of the files. No `Debug`, because it contains the private key.
#[derive(PartialEq, Eq)]
struct Contents {
    cert: Vec<u8>,
    key: Vec<u8>,
    ca: Vec<u8>,
}

/// The newest valid configurations. Clones share them.
#[derive(Clone, Debug)]
pub struct Tls {
    server: watch::Receiver<Arc<ServerConfig>>,
    client: watch::Receiver<Arc<ClientConfig>>,
    expiry: watch::Receiver<Expiry>,
}

/// Expiry of the current certificates, in Unix seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// The process' own certificate; the earliest of its chain.
    pub certificate: i64,
    /// The certificate authority; the latest if there are several, since a former one stays until it expires.
    pub authority: i64,
}

/// Exports the expiry of the current certificates as `tls_certificate_expiry_timestamp_seconds`. Without certificates
/// the metric has no series.
///
/// # Errors
/// If the metric is registered already.
pub fn export_expiry(tls: Option<&Tls>, metrics: &Metrics) -> Result<(), MetricsError> {
    let expiry = metrics.scraped(
        "tls_certificate_expiry_timestamp_seconds",
        "Unix time at which the certificate in use expires: the process' own, or its authority's.",
        &["certificate"],
    )?;
    if let Some(newest) = tls.map(|tls| tls.expiry.clone()) {
        metrics.add_source(move |samples| {
            let Expiry { certificate, authority } = *newest.borrow();
            for (name, seconds) in [("own", certificate), ("authority", authority)] {
                #[allow(clippy::cast_precision_loss, reason = "seconds since 1970 have far less than 52 bits")]
                samples.put(&expiry, &Labels::of(&[("certificate", name)]), seconds as f64);
            }
        });
    }
    Ok(())
}

/// Reloads the files and publishes changes.
pub struct Reloader {
    files: Files,
    contents: Contents,
    server: watch::Sender<Arc<ServerConfig>>,
    client: watch::Sender<Arc<ClientConfig>>,
    expiry: watch::Sender<Expiry>,
}

/// Loads the certificates in `args`; `None` if none are configured.
///
/// # Errors
/// If a file is missing or malformed, or certificate and key do not match.
pub async fn load(args: &TlsArgs) -> Result<Option<(Tls, Reloader)>, TlsError> {
    let files = match (&args.tls_cert, &args.tls_key, &args.tls_ca) {
        (None, None, None) => return Ok(None),
        (Some(cert), Some(key), Some(ca)) => Files { cert: cert.clone(), key: key.clone(), ca: ca.clone() },
        _ => return Err(TlsError::Incomplete),
    };
    let contents = files.read().await?;
    let (server, client) = files.configs(&contents)?;
    let ((server, server_newest), (client, client_newest)) = (watch::channel(server), watch::channel(client));
    let (expiry, newest_expiry) = watch::channel(files.expiry(&contents)?);
    let tls = Tls { server: server_newest, client: client_newest, expiry: newest_expiry };
    Ok(Some((tls, Reloader { files, contents, server, client, expiry })))
}

/// [`load`], with the files reloaded until `shutdown` ends.
///
/// # Errors
/// As [`load`].
pub async fn load_and_follow(args: &TlsArgs, shutdown: &Shutdown) -> Result<Option<Tls>, TlsError> {
    let Some((tls, reloader)) = load(args).await? else { return Ok(None) };
    shutdown.spawn(reloader.run(shutdown.token()));
    Ok(Some(tls))
}

/// Checks that a service without certificates listens only on loopback.
///
/// # Errors
/// If `address` is not loopback and `tls` is `None`.
pub fn check_listen(address: SocketAddr, tls: Option<&Tls>) -> Result<(), TlsError> {
    if tls.is_none() && !address.ip().is_loopback() {
        return Err(TlsError::PlainNotLoopback { address });
    }
    Ok(())
}

impl Tls {
    /// Runs the server side of a handshake with the newest certificates.
    ///
    /// # Errors
    /// If the caller has no acceptable certificate, uses another protocol, or takes longer than [`HANDSHAKE_TIMEOUT`].
    pub async fn accept(&self, tcp: TcpStream) -> io::Result<Connection> {
        let config = Arc::clone(&self.server.borrow());
        let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, TlsAcceptor::from(config).accept(tcp)).await??;
        connection(TlsStream::from(stream))
    }

    /// Runs the client side of a handshake with the newest certificates; the server must be `server_name`.
    ///
    /// # Errors
    /// If the server has another name, rejects the handshake, or takes longer than [`HANDSHAKE_TIMEOUT`]. With TLS 1.3,
    /// a rejection of *this* side's certificate is visible only at the first read.
    pub async fn connect(&self, tcp: TcpStream, server_name: &str) -> io::Result<Connection> {
        let config = Arc::clone(&self.client.borrow());
        let name = ServerName::try_from(server_name.to_owned()).map_err(io::Error::other)?;
        let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, TlsConnector::from(config).connect(name, tcp)).await??;
        connection(TlsStream::from(stream))
    }
}

fn connection(stream: TlsStream<TcpStream>) -> io::Result<Connection> {
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let names = certificate.map(dns_names).transpose()?.unwrap_or_default();
    Ok(Connection::Tls(Box::new(stream), names.into()))
}

/// The DNS names of a certificate.
///
/// # Errors
/// If it is not an X.509 certificate.
pub fn dns_names(certificate: &CertificateDer<'_>) -> io::Result<Vec<String>> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(io::Error::other)?;
    let alternative = parsed.subject_alternative_name().map_err(io::Error::other)?;
    let names = alternative.map(|extension| extension.value.general_names.as_slice()).unwrap_or_default();
    Ok(names
        .iter()
        .filter_map(|name| if let GeneralName::DNSName(name) = name { Some((*name).to_owned()) } else { None })
        .collect())
}

impl Reloader {
    /// Reads the files; publishes their contents if they changed and are valid. Returns whether they were published.
    ///
    /// # Errors
    /// As [`load`]; the current contents stay in use.
    pub async fn check(&mut self) -> Result<bool, TlsError> {
        let contents = self.files.read().await?;
        if contents == self.contents {
            return Ok(false);
        }
        let (server, client) = self.files.configs(&contents)?;
        self.expiry.send_replace(self.files.expiry(&contents)?);
        self.contents = contents;
        self.server.send_replace(server);
        self.client.send_replace(client);
        Ok(true)
    }

    /// Checks every [`RELOAD_INTERVAL`] until `shutdown`.
    pub async fn run(mut self, shutdown: CancellationToken) {
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(RELOAD_INTERVAL) => {}
            }
            match self.check().await {
                Ok(true) => tracing::info!("certificates reloaded"),
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "certificates not reloaded, the former stay in use"),
            }
        }
    }
}

impl Files {
    async fn read(&self) -> Result<Contents, TlsError> {
        let read = async |path: &PathBuf| {
            tokio::fs::read(path).await.map_err(|source| TlsError::Read { path: path.clone(), source })
        };
        Ok(Contents { cert: read(&self.cert).await?, key: read(&self.key).await?, ca: read(&self.ca).await? })
    }

    fn expiry(&self, contents: &Contents) -> Result<Expiry, TlsError> {
        let ends = |path: &Path, pem: &[u8]| -> Result<Vec<i64>, TlsError> {
            let found = certificates(path, pem)?;
            let end = |certificate: &CertificateDer<'_>| {
                let parsed = x509_parser::parse_x509_certificate(certificate);
                parsed.map(|(_, parsed)| parsed.validity().not_after.timestamp()).map_err(|error| content(path, &error))
            };
            found.iter().map(end).collect()
        };
        let chain = ends(&self.cert, &contents.cert)?.into_iter().min();
        let authority = ends(&self.ca, &contents.ca)?.into_iter().max();
        Ok(Expiry { certificate: chain.unwrap_or(i64::MAX), authority: authority.unwrap_or(i64::MAX) })
    }

    fn configs(&self, contents: &Contents) -> Result<(Arc<ServerConfig>, Arc<ClientConfig>), TlsError> {
        let chain = certificates(&self.cert, &contents.cert)?;
        let key = PrivateKeyDer::from_pem_slice(&contents.key).map_err(|_may_quote_the_key| TlsError::Content {
            path: self.key.clone(),
            cause: "no private key in PEM".to_owned(),
        })?;
        let mut roots = RootCertStore::empty();
        for authority in certificates(&self.ca, &contents.ca)? {
            roots.add(authority).map_err(|error| content(&self.ca, &error))?;
        }
        let roots = Arc::new(roots);
        let mismatch = |source| TlsError::Mismatch { path: self.cert.clone(), source };
        let provider = provider();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .build()
            .map_err(|error| content(&self.ca, &error))?;
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(mismatch)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(mismatch)?;
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(mismatch)?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(mismatch)?;
        // gRPC uses only HTTP/2.
        server.alpn_protocols = vec![b"h2".to_vec()];
        client.alpn_protocols = vec![b"h2".to_vec()];
        Ok((Arc::new(server), Arc::new(client)))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Vec<_> =
        CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|error| content(path, &error))?;
    if found.is_empty() {
        return Err(content(path, &"no certificate in PEM"));
    }
    Ok(found)
}

fn content(path: &Path, cause: &dyn std::fmt::Display) -> TlsError {
    TlsError::Content { path: path.to_path_buf(), cause: cause.to_string() }
}

#[cfg(test)]
pub(crate) mod tests;
