//! `plimsoll certificates`: the services accept the created certificates.

use crate::plimsoll;
use plimsoll_runtime::args::TlsArgs;
use plimsoll_runtime::tls;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn make(folder: &Path, more: &[&str]) -> crate::Run {
    plimsoll(&[&["certificates", "--out", folder.to_str().unwrap()], more].concat())
}

fn names(path: &Path) -> Vec<String> {
    tls::dns_names(&CertificateDer::from_pem_file(path).unwrap()).unwrap()
}

#[test]
fn each_service_has_a_certificate_under_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let run = make(folder.path(), &["--namespace", "autoscaling"]);
    assert_eq!((run.status, run.stderr.as_str()), (0, ""));
    for service in ["watcher", "scheduler", "actuator"] {
        let of_service = folder.path().join(service);
        assert_eq!(names(&of_service.join("tls.crt")), [format!("plimsoll-{service}.autoscaling.svc")]);
        let secret = format!("kubectl create secret generic plimsoll-{service}-tls --namespace autoscaling ");
        assert!(run.stdout.contains(&secret), "{}", run.stdout);
    }
    // `create` alone fails if the Secret exists, as at a renewal.
    let replaces = "--dry-run=client --output yaml | kubectl apply --server-side --force-conflicts --filename -\n";
    assert_eq!(run.stdout.matches(replaces).count(), 3, "{}", run.stdout);
    assert!(!run.stdout.contains("PRIVATE KEY"));
}

#[test]
fn private_keys_are_for_their_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    make(folder.path(), &[]);
    let mode = |path: &str| folder.path().join(path).metadata().unwrap().permissions().mode() & 0o777;
    for path in ["ca.key", "watcher/tls.key", "scheduler/tls.key", "actuator/tls.key"] {
        assert_eq!(mode(path), 0o600, "{path}");
    }
    assert_eq!(mode("watcher"), 0o700);
}

#[test]
fn services_with_these_files_trust_each_other_and_nobody_else() {
    let (ours, others) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    make(ours.path(), &[]);
    make(others.path(), &[]);
    let files = |folder: &Path, service: &str| {
        let file = |name: &str| Some(folder.join(service).join(name));
        TlsArgs { tls_cert: file("tls.crt"), tls_key: file("tls.key"), tls_ca: file("ca.crt") }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let load = async |folder: &Path, service: &str| tls::load(&files(folder, service)).await.unwrap().unwrap().0;
        let scheduler = load(ours.path(), "scheduler").await;
        let watcher = load(ours.path(), "watcher").await;
        let stranger = load(others.path(), "watcher").await;
        let name = "plimsoll-scheduler.plimsoll-system.svc";
        for (caller, called, welcome) in [
            (&watcher, name, true),
            (&watcher, "plimsoll-actuator.plimsoll-system.svc", false),
            (&stranger, name, false),
        ] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let tcp = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (accepted, _) = listener.accept().await.unwrap();
            let (server, client) = tokio::join!(scheduler.accept(accepted), caller.connect(tcp, called));
            assert_eq!(server.is_ok() && client.is_ok(), welcome, "{called}");
        }
    });
}

#[test]
fn files_that_are_there_are_not_written_over_unless_told() {
    let folder = tempfile::tempdir().unwrap();
    make(folder.path(), &[]);
    let read = || std::fs::read(folder.path().join("watcher/tls.key")).unwrap();
    let before = read();
    let again = make(folder.path(), &[]);
    assert_eq!((again.status, again.stdout.as_str()), (1, ""));
    assert!(again.stderr.contains("ca.crt is there already; --force"), "{}", again.stderr);
    assert!(read() == before);
    assert_eq!(make(folder.path(), &["--force"]).status, 0);
    assert!(read() != before);
}

#[test]
fn a_file_where_the_folder_should_be_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let run = make(file.path(), &[]);
    assert_eq!((run.status, run.stdout.as_str()), (1, ""));
    assert!(run.stderr.starts_with(&format!("error: {}: File exists", file.path().display())), "{}", run.stderr);
}

#[test]
fn nonsense_is_bad_input() {
    let folder = tempfile::tempdir().unwrap();
    make(folder.path(), &["--namespace", "Not_A_Namespace"]).refused(&["--namespace"]);
    make(folder.path(), &["--days", "0"]).refused(&["--days"]);
    plimsoll(&["certificates"]).refused(&["--out"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
