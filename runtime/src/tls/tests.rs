use super::*;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tonic::transport::server::Connected;

pub(crate) struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

pub(crate) fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    Authority { pem, issuer: Issuer::new(params, key) }
}

/// Writes a leaf certificate for `name`, and `trusted` as the authority for peers.
pub(crate) fn write(directory: &Path, by: &Authority, trusted: &Authority, name: &str) -> TlsArgs {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    let leaf = params.signed_by(&key, &by.issuer).unwrap();
    let file = |suffix: &str, text: &str| {
        let path = directory.join(suffix);
        std::fs::write(&path, text).unwrap();
        Some(path)
    };
    TlsArgs {
        tls_cert: file("tls.crt", &leaf.pem()),
        tls_key: file("tls.key", &key.serialize_pem()),
        tls_ca: file("ca.crt", &trusted.pem),
    }
}

async fn tls(args: &TlsArgs) -> (Tls, Reloader) {
    load(args).await.unwrap().unwrap()
}

/// Sends one byte each way; returns the names that server and client saw of each other.
async fn exchange(server: &Tls, client: &Tls, server_name: &str) -> io::Result<(Vec<String>, Vec<String>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let names = |connection: &Connection| connection.connect_info().names.unwrap_or_default().to_vec();
    let serve = async {
        let mut connection = server.accept(listener.accept().await?.0).await?;
        let byte = connection.read_u8().await?;
        connection.write_u8(byte + 1).await?;
        connection.flush().await?;
        io::Result::Ok(names(&connection))
    };
    let call = async {
        let mut connection = client.connect(TcpStream::connect(address).await?, server_name).await?;
        connection.write_u8(41).await?;
        connection.flush().await?;
        assert_eq!(connection.read_u8().await?, 42);
        io::Result::Ok(names(&connection))
    };
    tokio::try_join!(serve, call)
}

#[tokio::test]
async fn both_sides_know_each_other_by_dns_name() {
    let (directories, ca) = ([TempDir::new().unwrap(), TempDir::new().unwrap()], authority());
    let (server, _) = tls(&write(directories[0].path(), &ca, &ca, "actuator.test")).await;
    let (client, _) = tls(&write(directories[1].path(), &ca, &ca, "watcher.test")).await;
    let (caller, callee) = exchange(&server, &client, "actuator.test").await.unwrap();
    assert_eq!((caller, callee), (vec!["watcher.test".to_owned()], vec!["actuator.test".to_owned()]));
    assert!(exchange(&server, &client, "scheduler.test").await.is_err(), "another server's name must not do");
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused_either_way() {
    let (directories, ours, theirs) = ([TempDir::new().unwrap(), TempDir::new().unwrap()], authority(), authority());
    let (server, _) = tls(&write(directories[0].path(), &ours, &ours, "actuator.test")).await;
    // Trusts the right authority, but presents a certificate of another.
    let (client, _) = tls(&write(directories[1].path(), &theirs, &ours, "watcher.test")).await;
    assert!(exchange(&server, &client, "actuator.test").await.is_err());
    // Presents the right certificate, but trusts another authority.
    let (client, _) = tls(&write(directories[1].path(), &ours, &theirs, "watcher.test")).await;
    assert!(exchange(&server, &client, "actuator.test").await.is_err());
}

#[tokio::test]
async fn new_files_are_published_once_they_fit_together() {
    let (directories, ca) = ([TempDir::new().unwrap(), TempDir::new().unwrap()], authority());
    let args = write(directories[0].path(), &ca, &ca, "old.test");
    let (server, mut reloader) = tls(&args).await;
    let (client, _) = tls(&write(directories[1].path(), &ca, &ca, "watcher.test")).await;
    assert!(!reloader.check().await.unwrap(), "nothing changed");

    // Partially written: the new certificate with the old key.
    let key = std::fs::read(args.tls_key.as_ref().unwrap()).unwrap();
    write(directories[0].path(), &ca, &ca, "new.test");
    let new_key = std::fs::read(args.tls_key.as_ref().unwrap()).unwrap();
    std::fs::write(args.tls_key.as_ref().unwrap(), key).unwrap();
    assert!(matches!(reloader.check().await, Err(TlsError::Mismatch { .. })));
    assert!(exchange(&server, &client, "old.test").await.is_ok(), "the former pair stays in use");

    std::fs::write(args.tls_key.as_ref().unwrap(), new_key).unwrap();
    assert!(reloader.check().await.unwrap());
    assert!(exchange(&server, &client, "new.test").await.is_ok());
    assert!(exchange(&server, &client, "old.test").await.is_err());
}

#[tokio::test]
async fn expiry_follows_the_files() {
    let (directory, ca) = (TempDir::new().unwrap(), authority());
    let expires = |year: i32| {
        let mut params = CertificateParams::new(vec!["actuator.test".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 2);
        let key = KeyPair::generate().unwrap();
        std::fs::write(directory.path().join("tls.crt"), params.signed_by(&key, &ca.issuer).unwrap().pem()).unwrap();
        std::fs::write(directory.path().join("tls.key"), key.serialize_pem()).unwrap();
    };
    let args = write(directory.path(), &ca, &ca, "actuator.test");
    expires(2030);
    let (tls, mut reloader) = tls(&args).await;
    let metrics = Metrics::new("actuator");
    export_expiry(Some(&tls), &metrics).unwrap();
    let name = "plimsoll_actuator_tls_certificate_expiry_timestamp_seconds";
    let has = |line: String| metrics.encode().unwrap().contains(&line);
    // 2 January of 2030 and 2031, UTC.
    assert!(has(format!("\n{name}{{certificate=\"own\"}} 1893542400\n")), "{}", metrics.encode().unwrap());
    assert!(has(format!("\n{name}{{certificate=\"authority\"}} ")), "the authority expires too");
    expires(2031);
    assert!(reloader.check().await.unwrap());
    assert!(has(format!("\n{name}{{certificate=\"own\"}} 1925078400\n")), "{}", metrics.encode().unwrap());

    let line = |text: String| text.lines().find(|line| line.contains("certificate=\"authority\"")).map(str::to_owned);
    let before = line(metrics.encode().unwrap());
    let mut former = CertificateParams::new(Vec::<String>::new()).unwrap();
    former.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    former.not_after = rcgen::date_time_ymd(2029, 1, 2);
    let former = former.self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
    std::fs::write(directory.path().join("ca.crt"), format!("{}{former}", ca.pem)).unwrap();
    assert!(reloader.check().await.unwrap());
    assert_eq!(line(metrics.encode().unwrap()), before, "a former authority may expire");

    let without = Metrics::new("watcher");
    export_expiry(None, &without).unwrap();
    assert!(!without.encode().unwrap().contains("expiry"), "no certificates");
}

#[tokio::test]
async fn without_certificates_loopback_only() {
    assert!(load(&TlsArgs::default()).await.unwrap().is_none());
    assert!(check_listen("127.0.0.1:9443".parse().unwrap(), None).is_ok());
    assert!(check_listen("[::1]:9443".parse().unwrap(), None).is_ok());
    let refused = check_listen("0.0.0.0:9443".parse().unwrap(), None).unwrap_err().to_string();
    assert!(refused.contains("0.0.0.0:9443") && refused.contains("--tls-cert"), "{refused}");

    let (directory, ca) = (TempDir::new().unwrap(), authority());
    let args = write(directory.path(), &ca, &ca, "actuator.test");
    let (tls, _) = tls(&args).await;
    assert!(check_listen("0.0.0.0:9443".parse().unwrap(), Some(&tls)).is_ok());

    std::fs::write(args.tls_ca.as_ref().unwrap(), "nothing").unwrap();
    let error = load(&args).await.err().unwrap().to_string();
    assert!(error.contains("ca.crt: no certificate in PEM"), "{error}");
}
