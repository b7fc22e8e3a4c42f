use super::*;
use crate::{
    serve::GrpcServer,
    tls::{self, tests as certificates},
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

fn memory(names: &[&str]) -> ClientPool {
    let names = names.iter().map(|name| ReplicaId::from(*name)).collect();
    ClientPool::in_memory(names, |_| Err(io::ErrorKind::ConnectionRefused.into()))
}

async fn next(pool: &ClientPool) -> String {
    pool.channel().await.unwrap().0.to_string()
}

fn standby(leader: &str) -> Status {
    let mut status = Status::unavailable("standby");
    status.metadata_mut().insert(LEADER_HEADER, leader.parse().unwrap());
    status
}

async fn check(channel: Channel) -> Result<(), Status> {
    let request = HealthCheckRequest { service: String::new() };
    HealthClient::new(channel).check(request).await.map(drop)
}

#[tokio::test]
async fn one_dead_of_two_costs_one_attempt() {
    let (dead, live) =
        (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let (dead_address, live_address) = (dead.local_addr().unwrap(), live.local_addr().unwrap());
    drop(dead);
    tokio::spawn(GrpcServer::default().serve(live, None, CancellationToken::new()));

    let pool = ClientPool::new(&[dead_address.to_string(), live_address.to_string()], None).unwrap();
    let (mut attempts, mut answers) = (0, 0);
    // Starts with the dead replica, independent of the order of the addresses.
    pool.channel().await.unwrap();
    pool.state.lock().current = Some(address_id(&dead_address));
    while answers < 50 {
        attempts += 1;
        assert!(attempts <= 51, "only the first attempt may meet the dead replica");
        let (id, channel) = pool.channel().await.unwrap();
        match check(channel).await {
            Ok(()) => {
                pool.succeeded(&id);
                answers += 1;
            }
            Err(_) => pool.failed(&id),
        }
    }
    assert_eq!(attempts, 51);
}

#[tokio::test]
async fn certificates_are_checked_against_the_name_that_was_asked_for() {
    let (directories, ca) = ([tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()], certificates::authority());
    let server_args = certificates::write(directories[0].path(), &ca, &ca, "localhost");
    let client_args = certificates::write(directories[1].path(), &ca, &ca, "watcher.test");
    let (server, _) = tls::load(&server_args).await.unwrap().unwrap();
    let (client, _) = tls::load(&client_args).await.unwrap().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(GrpcServer::default().serve(listener, Some(server), CancellationToken::new()));

    // A replica that never responds must not block the others.
    let _silent = TcpStream::connect(address).await.unwrap();
    let call = async |host: &str, tls: Option<Tls>| {
        let pool = ClientPool::new(&[format!("{host}:{}", address.port())], tls).unwrap();
        // `localhost` may also resolve to ::1, where no process listens.
        let id = address_id(&address);
        check(pool.connect(&id, host).unwrap()).await
    };
    call("localhost", Some(client.clone())).await.unwrap();
    assert!(call("127.0.0.1", Some(client)).await.is_err(), "the certificate is not for that name");
    assert!(call("localhost", None).await.is_err(), "the port is closed to callers without certificate");
}

#[tokio::test(start_paused = true)]
async fn stays_with_one_until_it_fails() {
    let pool = memory(&["a", "b"]);
    assert_eq!(next(&pool).await, "a");
    assert_eq!(next(&pool).await, "a");
    pool.failed(&"b".into());
    assert_eq!(next(&pool).await, "a", "the failure of another does not matter");
    tokio::time::sleep(MAX_BACKOFF).await;
    pool.failed(&"a".into());
    assert_eq!(next(&pool).await, "b");
}

#[tokio::test(start_paused = true)]
async fn pauses_double_up_to_a_bound_and_end_with_a_success() {
    let pool = memory(&["a"]);
    let mut pauses = Vec::new();
    for _ in 0..7 {
        pool.channel().await.unwrap();
        pool.failed(&"a".into());
        let began = Instant::now();
        pool.channel().await.unwrap();
        pauses.push(began.elapsed().as_millis());
    }
    assert_eq!(pauses, [100, 200, 400, 800, 1_600, 2_000, 2_000]);
    pool.succeeded(&"a".into());
    pool.failed(&"a".into());
    let began = Instant::now();
    pool.channel().await.unwrap();
    assert_eq!(began.elapsed(), FIRST_BACKOFF);
}

#[tokio::test(start_paused = true)]
async fn follows_the_leader_that_a_standby_names() {
    let pool = memory(&["a", "b", "c"]);
    assert_eq!(next(&pool).await, "a");
    assert!(pool.refused(&"a".into(), &standby("c")));
    assert_eq!(next(&pool).await, "c");

    // Two replicas that name each other as leader must not cause an endless loop.
    assert!(!pool.refused(&"c".into(), &standby("a")), "it has refused just now");
    assert_eq!(next(&pool).await, "b");
    assert!(!pool.refused(&"b".into(), &standby("nobody")));
    assert!(!pool.refused(&"b".into(), &standby("b")));
    let other_code = Status::with_metadata(Code::Internal, "broken", standby("a").metadata().clone());
    assert!(!pool.refused(&"b".into(), &other_code));
}

#[tokio::test(start_paused = true)]
async fn a_leader_on_the_network_may_be_new_but_must_be_an_address() {
    let pool = ClientPool::new(&["127.0.0.1:1".to_owned()], None).unwrap();
    assert_eq!(next(&pool).await, "127.0.0.1:1");
    assert!(!pool.refused(&"127.0.0.1:1".into(), &standby("elsewhere.test:9443")));
    assert!(pool.refused(&"127.0.0.1:1".into(), &standby("10.1.2.3:9443")));
    let (id, channel) = pool.channel().await.unwrap();
    assert_eq!(id.to_string(), "10.1.2.3:9443");
    // Not on loopback and without certificates: rejected before any packet is sent.
    assert!(check(channel).await.is_err());
}

#[test]
fn malformed_addresses_are_named() {
    for bad in ["scheduler", ":9442", "scheduler:port", "scheduler:99999"] {
        let error = ClientPool::new(&[bad.to_owned()], None).unwrap_err().to_string();
        assert!(error.contains(bad), "{error}");
    }
    assert!(matches!(ClientPool::new(&[], None), Err(PoolError::Empty)));
    assert!(ClientPool::new(&["[::1]:9442".to_owned()], None).is_ok());
}
