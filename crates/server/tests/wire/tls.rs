//! TLS connections, by the clients that people use: curl and OpenSSL.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Deref;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use crate::common::{self, DEADLINE, Server, limits, wait_until};
use hotrow_answer::metrics::CloseCause;
use hotrow_config::Limits;
use hotrow_config::transport::{ClientCertificates, Transport};
use rcgen::CertificateParams;
use rustls::client::Resumption;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

const LAST: &str = "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
/// Exit status of curl: the server's certificate cannot be verified.
const CURL_UNVERIFIED: i32 = 60;

/// The common authority, with servers of these tests.
struct Authority(common::authority::Authority);

impl Deref for Authority {
    type Target = common::authority::Authority;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Authority {
    fn new() -> Self {
        Self(common::authority::Authority::new())
    }

    fn ca(&self) -> String {
        self.path("ca.pem").display().to_string()
    }

    /// Writes `{name}.pem` and `{name}.key` for a host, valid until `end`.
    fn sign_for(&self, name: &str, host: &str, end: SystemTime) {
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        params.not_after = end.into();
        self.sign(name, &params);
    }

    /// A server with a valid certificate for 127.0.0.1.
    fn server(&self, limits: Limits, workers: usize) -> Server {
        self.server_with(limits, workers, ClientCertificates::Ignored, DEADLINE)
    }

    fn server_with(
        &self,
        limits: Limits,
        workers: usize,
        clients: ClientCertificates,
        handshake_timeout: Duration,
    ) -> Server {
        let tls = Some(self.tls(clients));
        let transport = Transport { tls, handshake_timeout, ..Transport::default() };
        Server::start_over(limits, workers, transport)
    }

    /// A server that speaks HTTP/2 too.
    fn http2_server(&self) -> Server {
        let tls = Some(self.tls(ClientCertificates::Ignored));
        let transport = Transport { tls, http2: true, ..Transport::default() };
        Server::start_over(limits(), 1, transport)
    }

    /// A client that trusts the authority and resumes nothing.
    fn client(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.root()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        Arc::new(config)
    }

    fn curl(&self, address: SocketAddr, target: &str, arguments: &[&str]) -> Output {
        self.0.curl(&format!("https://{address}{target}"), arguments)
    }

    /// Sends one request with `openssl s_client` and returns what it printed.
    fn openssl(&self, address: SocketAddr, request: &str, arguments: &[&str]) -> String {
        let arguments = [&["-verify_return_error", "-ign_eof"], arguments].concat();
        common::authority::openssl(&self.path("ca.pem"), address, request, &arguments)
    }
}

fn later() -> SystemTime {
    SystemTime::now() + Duration::from_secs(86_400)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn requests_bodies_and_large_answers_pass() {
    let authority = Authority::new();
    let server = authority.server(limits(), 1);
    let got = authority.curl(server.address, "/a", &["-w", " %{http_code} %{http_version}"]);
    assert_eq!(text(&got), "GET /a  200 1.1", "{got:?}");
    let body = "x".repeat(9_000);
    let posted = authority.curl(server.address, "/b", &["-d", &body]);
    assert_eq!(text(&posted), format!("POST /b {body}"));
    let size = ["-o", "/dev/null", "-w", "%{size_download}"];
    assert_eq!(text(&authority.curl(server.address, "/big", &size)), (64 << 20).to_string());
    let many: Vec<String> = (0..100).map(|i| format!("https://{}/{i}", server.address)).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let accepted = server.metrics().accepted.get();
    let all = text(&authority.curl(server.address, "/last", &many));
    assert_eq!(all.matches("GET /").count(), 101);
    assert_eq!(server.metrics().accepted.get(), accepted + 1, "kept alive");
}

#[test]
fn certificates_that_do_not_fit_are_refused_by_the_client() {
    let authority = Authority::new();
    let server = authority.server(limits(), 1);
    let port = server.address.port();
    let resolve = format!("other.test:{port}:127.0.0.1");
    let other = format!("https://other.test:{port}/a");
    let wrong = Command::new("curl")
        .args(["-sS", "--cacert", &authority.ca(), "--resolve", &resolve, &other])
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(CURL_UNVERIFIED), "{wrong:?}");
    let here = format!("https://{}/a", server.address);
    let unknown = Command::new("curl").args(["-sS", &here]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(CURL_UNVERIFIED), "{unknown:?}");
    drop(server);
    authority.sign_for("server", "127.0.0.1", SystemTime::now() - Duration::from_secs(3_600));
    let server = authority.server_with(limits(), 1, ClientCertificates::Ignored, DEADLINE);
    let expired = authority.curl(server.address, "/a", &[]);
    assert_eq!(expired.status.code(), Some(CURL_UNVERIFIED), "{expired:?}");
    assert!(String::from_utf8_lossy(&expired.stderr).contains("expired"), "{expired:?}");
    drop(server);
    authority.sign_for("server", "elsewhere.test", later());
    let server = authority.server_with(limits(), 1, ClientCertificates::Ignored, DEADLINE);
    let elsewhere = authority.curl(server.address, "/a", &[]);
    assert_eq!(elsewhere.status.code(), Some(CURL_UNVERIFIED), "{elsewhere:?}");
}

#[test]
fn only_tls_1_2_and_1_3_with_authenticated_encryption_and_forward_secrecy() {
    let authority = Authority::new();
    let server = authority.server(limits(), 1);
    let weak = "DEFAULT@SECLEVEL=0";
    for (arguments, is_served) in [
        (&["-tls1_3"][..], true),
        (&["-tls1_2"], true),
        (&["-tls1_1", "-cipher", weak], false),
        (&["-tls1", "-cipher", weak], false),
        (&["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"], true),
        (&["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA256"], false),
        (&["-tls1_2", "-cipher", "AES128-GCM-SHA256"], false),
        (&["-tls1_2", "-cipher", "NULL@SECLEVEL=0"], false),
        (&["-alpn", "http/1.1"], true),
        (&["-alpn", "ftp"], false),
    ] {
        let printed = authority.openssl(server.address, LAST, arguments);
        assert_eq!(printed.contains("HTTP/1.1 200 OK"), is_served, "{arguments:?}: {printed}");
        assert!(!printed.contains("unexpected eof"), "{arguments:?}: {printed}");
    }
}

#[test]
fn sessions_are_resumed_on_any_worker() {
    const WORKERS: usize = 4;
    let authority = Authority::new();
    let server = authority.server(limits(), WORKERS);
    for version in ["-tls1_3", "-tls1_2"] {
        let session = authority.path("session").display().to_string();
        let first = authority.openssl(server.address, LAST, &[version, "-sess_out", &session]);
        assert!(first.contains("New, TLSv1."), "{first}");
        // All on the worker of the first have a chance of 1 in 4^11.
        for _ in 0..12 {
            let again = authority.openssl(server.address, LAST, &[version, "-sess_in", &session]);
            assert!(again.contains("Reused, TLSv1."), "{version}: {again}");
            assert!(again.contains("HTTP/1.1 200 OK"), "{version}: {again}");
        }
    }
}

#[test]
fn client_certificates_are_required_or_optional() {
    let authority = Authority::new();
    authority.sign_for("client", "client.test", later());
    let stranger = Authority::new();
    stranger.sign_for("client", "client.test", later());
    let certificate = |authority: &Authority| {
        let path = |name| authority.path(name).display().to_string();
        ["--cert".to_owned(), path("client.pem"), "--key".to_owned(), path("client.key")]
    };
    let (own, foreign) = (certificate(&authority), certificate(&stranger));
    let roots = authority.path("ca.pem");
    for (clients, without) in [
        (ClientCertificates::Required(roots.clone()), false),
        (ClientCertificates::Optional(roots), true),
    ] {
        let server = authority.server_with(limits(), 1, clients, DEADLINE);
        for (arguments, is_served) in [(&[][..], without), (&own, true), (&foreign, false)] {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let got = authority.curl(server.address, "/a", &arguments);
            assert_eq!(text(&got) == "GET /a ", is_served, "{arguments:?}: {got:?}");
        }
    }
}

#[test]
fn a_handshake_that_does_not_end_delays_no_other_client() {
    const HALF_OPEN: usize = 50;
    let authority = Authority::new();
    let limits = Limits { connections: 1_000, ..limits() };
    let timeout = Duration::from_secs(1);
    let server = authority.server_with(limits, 1, ClientCertificates::Ignored, timeout);
    // Nothing; the begin of a record; a record that announces a message of 16 MB.
    let begins: [&[u8]; 3] =
        [b"", b"\x16\x03\x01\x02\x00", b"\x16\x03\x01\x00\x04\x01\xff\xff\xff"];
    let mut open: Vec<_> = (0..HALF_OPEN)
        .map(|i| {
            let mut client = server.connect();
            client.send(begins[i % 2]);
            client
        })
        .collect();
    assert_eq!(text(&authority.curl(server.address, "/a", &[])), "GET /a ");
    open.iter_mut().for_each(|client| assert!(client.rest().answers.is_empty()));
    server.await_closed(CloseCause::HandshakeTimeout, HALF_OPEN as u64);
    for refused in [begins[2], LAST.as_bytes()] {
        // An alert, and the end.
        let mut client = server.connect();
        client.send(refused);
        let mut bytes = Vec::new();
        _ = client.0.read_to_end(&mut bytes);
        assert!(bytes.len() < 10, "{bytes:?}");
    }
    server.await_closed(CloseCause::Handshake, 2);
}

#[test]
fn an_idle_connection_and_a_drain_end_with_a_goodbye() {
    let authority = Authority::new();
    let limits = Limits { idle_timeout: Duration::from_millis(200), ..limits() };
    let server = authority.server(limits, 1);
    let request = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";
    let idle = authority.openssl(server.address, request, &[]);
    assert!(idle.contains("GET /a") && !idle.contains("unexpected eof"), "{idle}");
    server.await_closed(CloseCause::Idle, 1);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| authority.curl(server.address, "/wait", &["-i"]));
        wait_until(|| server.limiter.waiting.load(Ordering::Relaxed) == 1);
        server.shutdown.drain();
        server.limiter.open();
        let answer = text(&waiting.join().unwrap());
        assert!(answer.contains("connection: close") && answer.ends_with("GET /wait "), "{answer}");
    });
    server.join().unwrap();
}

#[test]
fn a_client_that_does_not_read_is_reset() {
    let authority = Authority::new();
    let limits = Limits { write_timeout: Duration::from_millis(300), ..limits() };
    let server = authority.server(limits, 1);
    let mut stuck = Command::new("openssl")
        .args(["s_client", "-quiet", "-connect", &server.address.to_string()])
        .stdin(Stdio::piped())
        // The pipe has no reader.
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = stuck.stdin.take().unwrap();
    input.write_all(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    server.await_closed(CloseCause::WriteTimeout, 1);
    stuck.kill().unwrap();
    stuck.wait().unwrap();
}

#[test]
fn http2_is_agreed_on_where_both_want_it() {
    let authority = Authority::new();
    let version = ["-w", "%{http_version}"];
    let http2 = authority.http2_server();
    assert_eq!(text(&authority.curl(http2.address, "/a", &version)), "GET /a 2");
    let http1 = [&version[..], &["--http1.1"]].concat();
    assert_eq!(text(&authority.curl(http2.address, "/a", &http1)), "GET /a 1.1");
    let size = ["-o", "/dev/null", "-w", "%{size_download} %{http_version}"];
    assert_eq!(text(&authority.curl(http2.address, "/big", &size)), format!("{} 2", 64 << 20));
    let load = Command::new("h2load")
        .args(["-n", "2000", "-c", "4", "-m", "20", &format!("https://{}/a", http2.address)])
        .output()
        .unwrap();
    assert!(text(&load).contains("2000 succeeded, 0 failed, 0 errored"), "{load:?}");
    let only_http1 = authority.server(limits(), 1);
    assert_eq!(text(&authority.curl(only_http1.address, "/a", &version)), "GET /a 1.1");
}

/// Performs a whole handshake, sends one request, and returns the server's certificate.
fn leaf(address: SocketAddr, config: &Arc<ClientConfig>) -> Result<Vec<u8>, String> {
    let failed = |what: &dyn std::fmt::Display| what.to_string();
    let client = ClientConnection::new(Arc::clone(config), address.ip().into());
    let client = client.map_err(|error| failed(&error))?;
    let socket = TcpStream::connect(address).map_err(|error| failed(&error))?;
    exchange(StreamOwned::new(client, socket))
}

/// Sends one request over a stream.
fn exchange(mut stream: StreamOwned<ClientConnection, TcpStream>) -> Result<Vec<u8>, String> {
    let failed = |what: &dyn std::fmt::Display| what.to_string();
    stream.write_all(LAST.as_bytes()).map_err(|error| failed(&error))?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(|error| failed(&error))?;
    if !answer.ends_with("GET /a ") {
        return Err(answer);
    }
    let chain = stream.conn.peer_certificates().unwrap_or_default();
    chain.first().map(|leaf| leaf.to_vec()).ok_or_else(|| "no certificate".to_owned())
}

#[test]
fn certificates_are_replaced_under_load() {
    let authority = Authority::new();
    let server = authority.server(limits(), 2);
    let config = authority.client();
    let seen = Mutex::new(Vec::new());
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    let leaf = leaf(server.address, &config);
                    let mut seen = seen.lock().unwrap();
                    if !seen.contains(&leaf) {
                        seen.push(leaf);
                    }
                }
            });
        }
        for count in 2..=3 {
            wait_until(|| seen.lock().unwrap().len() == count - 1);
            // One file after the other, and not at once.
            authority.sign_for("server", "127.0.0.1", later());
            wait_until(|| seen.lock().unwrap().len() >= count);
        }
        ended.store(true, Ordering::Relaxed);
    });
    let seen = seen.into_inner().unwrap();
    assert!(seen.iter().all(Result::is_ok) && seen.len() == 3, "{seen:?}");
}

#[test]
fn the_header_of_a_proxy_precedes_the_handshake() {
    let authority = Authority::new();
    let tls = Some(authority.tls(ClientCertificates::Ignored));
    let proxies = vec!["127.0.0.1".parse().unwrap()];
    let server =
        Server::start_over(limits(), 1, Transport { tls, proxies, ..Transport::default() });
    let config = authority.client();
    let connect = |header: &[u8]| {
        let client = ClientConnection::new(Arc::clone(&config), server.address.ip().into());
        let mut socket = TcpStream::connect(server.address).unwrap();
        socket.write_all(header).unwrap();
        exchange(StreamOwned::new(client.unwrap(), socket))
    };
    let addresses = [192, 0, 2, 1, 192, 0, 2, 2, 0xdc, 4, 1, 0xbb];
    let header = [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"[..], &addresses].concat();
    assert!(connect(&header).is_ok());
    assert!(connect(b"").is_err(), "a handshake is no header");
    server.await_closed(CloseCause::Handshake, 1);
}
