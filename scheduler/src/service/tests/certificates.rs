//! Tests both ports on real sockets, the closed port with mutual TLS.

use super::*;
use plimsoll_runtime::args::TlsArgs;
use plimsoll_runtime::client_pool::ClientPool;
use plimsoll_runtime::tls::{Tls, load};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use std::net::SocketAddr;
use std::path::Path;
use tempfile::TempDir;
use tokio::net::TcpListener;

struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
    directory: TempDir,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key), directory: TempDir::new().unwrap() }
    }

    async fn certify(&self, name: &str) -> Tls {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let leaf = params.signed_by(&key, &self.issuer).unwrap();
        let write = |kind: &str, text: &str| {
            let path = Path::new(self.directory.path()).join(format!("{name}.{kind}"));
            std::fs::write(&path, text).unwrap();
            Some(path)
        };
        let args = TlsArgs {
            tls_cert: write("crt", &leaf.pem()),
            tls_key: write("key", &key.serialize_pem()),
            tls_ca: write("ca", &self.pem),
        };
        load(&args).await.unwrap().unwrap().0
    }
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

async fn client(address: SocketAddr, tls: Option<Tls>) -> Client {
    let pool = ClientPool::new(&[address.to_string()], tls).unwrap();
    SchedulerServiceClient::new(pool.channel().await.unwrap().1)
}

async fn open_session(client: &mut Client) -> Result<(), Code> {
    let hello = SessionRequest {
        message: Some(Ask::Hello(Hello { cluster: "test".into(), client: String::new(), protocol: PROTOCOL })),
    };
    let (asks, receiver) = mpsc::channel(1);
    asks.send(hello).await.unwrap();
    let mut answers = client.session(ReceiverStream::new(receiver)).await.map_err(|status| status.code())?.into_inner();
    let ready = answers.message().await.unwrap().unwrap();
    assert!(matches!(ready.message, Some(Answer::Ready(_))));
    Ok(())
}

#[tokio::test]
async fn the_closed_port_checks_certificates_and_the_open_port_does_not() {
    let ours = Authority::new();
    let ((closed, closed_at), (open, open_at)) = (listen().await, listen().await);
    let mut settings = Settings::for_cores(NonZeroUsize::MIN);
    settings.session_callers = vec!["watcher.test".to_owned()];
    let parts = Parts {
        closed: Listener::Closed(closed, Some(ours.certify("127.0.0.1").await)),
        open: Some(Listener::Open(open)),
        metrics: Metrics::new("scheduler"),
        readiness: Readiness::default(),
        settings,
    };
    let shutdown = Shutdown::default();
    tokio::spawn(run(parts, shutdown.clone()));

    let mut watcher = client(closed_at, Some(ours.certify("watcher.test").await)).await;
    assert_eq!(open_session(&mut watcher).await, Ok(()));
    let mut other = client(closed_at, Some(ours.certify("other.test").await)).await;
    assert_eq!(open_session(&mut other).await, Err(Code::PermissionDenied));
    assert!(other.plan(plan_request(1)).await.is_ok());

    let stranger = Authority { pem: ours.pem.clone(), ..Authority::new() };
    let mut stranger = client(closed_at, Some(stranger.certify("watcher.test").await)).await;
    assert!(stranger.plan(plan_request(1)).await.is_err(), "a certificate of another authority must not do");
    let mut plain = client(closed_at, None).await;
    assert!(plain.plan(plan_request(1)).await.is_err(), "a caller without a certificate must not do");

    let mut anybody = client(open_at, None).await;
    assert!(anybody.plan(plan_request(1)).await.is_ok());
    assert_eq!(open_session(&mut anybody).await, Err(Code::PermissionDenied));
    shutdown.start();
}
