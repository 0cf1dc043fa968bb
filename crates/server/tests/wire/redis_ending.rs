//! Ends of connections that speak the Redis protocol: limits, time-outs, the drain, a successor.
//! And TLS.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::authority::{Authority, openssl};
use crate::common::redis::{RedisClient, Reply, array, with_redis};
use crate::common::service::{Running, config};
use crate::common::tenants::{Options, TenantService};
use crate::common::{Client, DEADLINE, wait_until};
use hotrow_config::transport::ClientCertificates;
use hotrow_config::{Config, Limits};
use hotrow_net::listen::inherited::{Inherited, ListenerKind};
use hotrow_server::service::Service;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

const SHORT: Duration = Duration::from_millis(300);

fn start(change: impl FnOnce(&mut Limits)) -> Running {
    let mut limits = config().limits;
    change(&mut limits);
    Running::start(&with_redis(Config { limits, ..config() }))
}

/// Waits until the metrics have this line.
#[track_caller]
fn await_metric(service: &Running, line: &str) {
    wait_until(|| {
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
        Client::connect(service.admin).send(request).answer().body.contains(line)
    });
}

fn closed(cause: &str, count: u64) -> String {
    format!("hotrow_http_connections_closed_total{{cause=\"{cause}\"}} {count}\n")
}

#[test]
fn idle_connections_and_incomplete_commands_end_in_time() {
    let service = start(|limits| limits.idle_timeout = SHORT);
    for sent in [&b""[..], &array("PING")] {
        let begin = Instant::now();
        let mut client = RedisClient::connect(service.redis);
        let rest = client.send(sent).rest();
        assert!(begin.elapsed() >= SHORT);
        assert_eq!(rest, if sent.is_empty() { "" } else { "+PONG\r\n" });
    }
    await_metric(&service, &closed("idle_timeout", 2));
    let service = start(|limits| limits.header_timeout = SHORT);
    for sent in ["*2\r\n$3\r\nGET\r\n$5\r\nab", "PIN"] {
        let mut client = RedisClient::connect(service.redis);
        let rest = client.send(array("PING")).send(sent).rest();
        let incomplete = "-ERR the command was not complete within limits.header_timeout\r\n";
        assert_eq!(rest, format!("+PONG\r\n{incomplete}"));
    }
    await_metric(&service, &closed("header_timeout", 2));
    await_metric(&service, "hotrow_redis_connections 0\n");
}

#[test]
fn a_client_that_takes_nothing_is_cut_off_and_holds_little() {
    let service = start(|limits| limits.write_timeout = SHORT);
    let client = RedisClient::connect(service.redis);
    let mut writer = client.stream.try_clone().unwrap();
    // Until the server neither reads nor writes: its replies fill the sockets' buffers first.
    let sending = std::thread::spawn(move || {
        let many = array("GET products:1").repeat(1_000);
        let begin = Instant::now();
        while begin.elapsed() < DEADLINE && writer.write_all(&many).is_ok() {}
        begin.elapsed() < DEADLINE
    });
    assert!(sending.join().unwrap(), "the server closed");
    await_metric(&service, &closed("write_timeout", 1));
}

#[test]
fn limits_on_connections_are_those_of_the_process() {
    let service = start(|limits| limits.connections = 2);
    let mut first = RedisClient::connect(service.redis);
    assert_eq!(first.ask("PING"), Reply::Status("PONG".to_owned()));
    let mut http = Client::connect(service.address);
    let request = "GET /products/1 HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(http.send(request).answer().status, 200);
    let mut third = RedisClient::connect(service.redis);
    assert_eq!(third.rest(), "-ERR max number of clients reached\r\n");
    assert_eq!(Client::connect(service.address).answer().status, 503);
    let service = start(|limits| limits.connections_per_client = 1);
    let mut first = RedisClient::connect(service.redis);
    assert_eq!(first.ask("PING"), Reply::Status("PONG".to_owned()));
    let refused = RedisClient::connect(service.redis).rest();
    assert!(refused.contains("(limits.connections_per_client)\r\n"), "{refused}");
}

#[test]
fn a_drain_ends_idle_connections_and_answers_what_has_arrived() {
    let rows = [(1, r#""acme"{"id":1}"#)];
    let service = TenantService::start_configured(&rows, Options::default(), |config| {
        *config = with_redis(config.clone());
        config.access = None;
        config.collections[0].tenancy = None;
    });
    let redis = service.server.redis;
    let mut idle = RedisClient::connect(redis);
    assert_eq!(idle.ask("PING"), Reply::Status("PONG".to_owned()));
    service.source.gate.send_replace(false);
    let mut waiting = RedisClient::connect(redis);
    waiting.send([array("GET prices:1"), array("PING")].concat());
    wait_until(|| service.queries() == 1);
    service.server.shutdown.leave();
    // The next command is the last.
    let mut leaving = RedisClient::connect(redis);
    leaving.send([array("PING"), array("ECHO a")].concat());
    assert_eq!(leaving.rest(), "+PONG\r\n$1\r\na\r\n");
    service.server.shutdown.drain();
    assert_eq!(idle.rest(), "");
    service.source.gate.send_replace(true);
    let rest = waiting.rest();
    assert!(rest.starts_with('$') && rest.ends_with("\r\n+PONG\r\n"), "{rest}");
}

#[test]
fn a_successor_takes_the_listener_with_its_queue() {
    let config = with_redis(config());
    let before = Service::bind(&config).unwrap();
    let mut waiting = RedisClient::connect(before.redis());
    let offered = before.offer().unwrap();
    let mut inherited = Inherited::of_predecessor();
    for (kind, socket) in offered.sockets() {
        inherited.add(kind, socket.try_clone_to_owned().unwrap()).unwrap();
    }
    inherited.keep_configured(&config);
    let kinds = [ListenerKind::Data, ListenerKind::Admin, ListenerKind::Redis];
    assert_eq!(inherited.kinds(), kinds);
    let next = Service::bind_or_take(&config, inherited).unwrap();
    assert_eq!(next.redis(), before.redis());
    let _next = Running::serve(&config, next);
    drop(offered);
    drop(before);
    assert_eq!(waiting.ask("GET products:1"), Reply::text(r#"{"id":1}"#));
}

#[test]
fn the_listener_has_the_tls_of_the_data_listener() {
    let authority = Authority::new();
    let mut config = with_redis(config());
    config.transport.tls = Some(authority.tls(ClientCertificates::Ignored));
    let service = Running::start(&config);
    let mut roots = RootCertStore::empty();
    roots.add(authority.root()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let address = service.redis.unwrap();
    let client = ClientConnection::new(Arc::new(client), address.ip().into()).unwrap();
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut client = RedisClient::over(StreamOwned::new(client, socket));
    assert_eq!(client.ask("GET products:1"), Reply::text(r#"{"id":1}"#));
    assert_eq!(client.ask("QUIT"), Reply::ok());
    // A browser offers HTTP, and is no client of this port.
    let ca = authority.path("ca.pem");
    let printed = openssl(&ca, address, "", &["-alpn", "h2,http/1.1"]);
    assert!(printed.contains("no application protocol"), "{printed}");
    let mut plain = RedisClient::connect(service.redis);
    assert!(!plain.send(array("PING")).rest().contains("PONG"));
}
