//! Transports: TLS, Unix sockets, IPv6, names; and the requests on them.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::posted;
use crate::scripted::{Server, Step, config, ok, outcome, try_run};
use hotrow_load::ids::{Distribution, Ids};
use hotrow_load::request::{RequestMix, RequestSpec};
use hotrow_load::run::{Config, RunError};
use hotrow_transport::target::{Address, Url};
use hotrow_transport::tls::{Tls, TlsError, TlsOptions, Trust};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

fn certificate(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../crates/transport/tests/certificates")
        .join(name)
}

/// Server name and protocol that each TLS client requested.
type TlsRequests = Arc<Mutex<Vec<(Option<String>, Option<Vec<u8>>)>>>;

type TlsConnection = StreamOwned<ServerConnection, TcpStream>;

/// A long answer, split into several TLS records.
fn long_answer(stream: &mut TlsConnection) -> std::io::Result<()> {
    let body = "x".repeat(50_000);
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 50000\r\n\r\n{body}")
}

fn tls_server(name: &str) -> (SocketAddr, TlsRequests) {
    tls_server_with(name, long_answer)
}

/// Starts a server with `NAME.pem` and `NAME.key`, which ends a connection when `answer` fails.
fn tls_server_with(
    name: &str,
    answer: fn(&mut TlsConnection) -> std::io::Result<()>,
) -> (SocketAddr, TlsRequests) {
    let chain = vec![
        CertificateDer::from_pem_file(certificate(&format!("{name}.pem"))).expect("a certificate"),
    ];
    let key = PrivateKeyDer::from_pem_file(certificate(&format!("{name}.key"))).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions");
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key).expect("they fit");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let requested = TlsRequests::default();
    let record = requested.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(stream), config, record) = (stream, config.clone(), record.clone()) else {
                return;
            };
            std::thread::spawn(move || {
                let mut stream =
                    StreamOwned::new(ServerConnection::new(config).expect("a connection"), stream);
                let mut buffer = [0; 16 * 1024];
                let mut first = true;
                while let Ok(1..) = stream.read(&mut buffer) {
                    if std::mem::take(&mut first) {
                        let name = stream.conn.server_name().map(str::to_owned);
                        let protocol = stream.conn.alpn_protocol().map(<[u8]>::to_vec);
                        record.lock().expect("no panic").push((name, protocol));
                    }
                    if answer(&mut stream).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, requested)
}

fn tls(host: &str, trust: &Trust) -> Result<Tls, TlsError> {
    Tls::new(host, &TlsOptions { trust: trust.clone(), ..TlsOptions::default() })
}

fn secure(address: SocketAddr, host: &str, trust: &Trust) -> Config {
    let mut config = config(address, 100);
    (config.connections, config.threads) = (3, 2);
    config.tls = Some(tls(host, trust).expect("TLS"));
    config
}

#[test]
fn https_requests_the_name_and_http_1_1() {
    let (address, requested) = tls_server("server");
    for trust in [Trust::Authority(certificate("authority.pem")), Trust::Anyone] {
        let counts = outcome(&secure(address, "localhost", &trust)).total.counts;
        assert_eq!(
            (counts.ok, counts.reconnects, counts.bytes_received),
            (100, 0, 100 * (50_000 + 42))
        );
    }
    let requested = requested.lock().expect("no panic");
    assert_eq!(requested.len(), 6);
    assert!(
        requested.iter().all(|a| *a == (Some("localhost".to_owned()), Some(b"http/1.1".to_vec()))),
        "{requested:?}"
    );
}

/// An answer that the end of the stream delimits is complete only if TLS says so: anyone on the
/// path can close a TCP connection.
#[test]
fn the_end_of_a_tls_stream_must_be_announced() {
    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\n\r\nuntil the end";
    let announced: fn(&mut TlsConnection) -> std::io::Result<()> = |stream| {
        stream.write_all(ANSWER)?;
        stream.conn.send_close_notify();
        stream.flush()?;
        Err(std::io::ErrorKind::Other.into())
    };
    let cut: fn(&mut TlsConnection) -> std::io::Result<()> = |stream| {
        stream.write_all(ANSWER)?;
        stream.flush()?;
        Err(std::io::ErrorKind::Other.into())
    };
    let run = |answer| {
        let (address, _) = tls_server_with("server", answer);
        let trust = Trust::Authority(certificate("authority.pem"));
        let mut config = secure(address, "localhost", &trust);
        config.plan.stop.requests = Some(6);
        outcome(&config)
    };
    assert_eq!(run(announced).total.counts.ok, 6);
    let cut = run(cut);
    assert_eq!((cut.total.counts.ok, cut.total.counts.errors.closed), (0, 6));
    assert!(cut.failure_messages[0].0.contains("close_notify"), "{:?}", cut.failure_messages);
}

#[test]
fn tls_failures_have_a_reason() {
    let (address, _) = tls_server("server");
    let authority = Trust::Authority(certificate("authority.pem"));
    for (config, words) in [
        (secure(address, "other.example", &authority), "for another name"),
        (secure(address, "localhost", &Trust::Authority(certificate("server.pem"))), "--insecure"),
    ] {
        match try_run(&config) {
            Err(RunError::NoConnection { why, .. }) => {
                assert!(why.contains(words), "{words:?} in {why}")
            }
            other => panic!("{words:?}: {other:?}"),
        }
    }
    let missing = tls("localhost", &Trust::Authority(certificate("missing.pem")));
    assert!(missing.is_err_and(|e| e.to_string().contains("missing.pem has no certificates")));
}

/// A certificate of `openssl req -x509` is an authority and a server at once.
#[test]
fn a_self_signed_certificate_is_accepted_only_by_name() {
    let (address, _) = tls_server("self-signed");
    for trust in [Trust::Authority(certificate("self-signed.pem")), Trust::Anyone] {
        assert_eq!(
            outcome(&secure(address, "localhost", &trust)).total.counts.ok,
            100,
            "{trust:?}"
        );
    }
    for (host, file, words) in [
        ("localhost", "authority.pem", "if it is self-signed, name it itself with --cacert"),
        ("other.example", "self-signed.pem", "for another name"),
    ] {
        match try_run(&secure(address, host, &Trust::Authority(certificate(file)))) {
            Err(RunError::NoConnection { why, .. }) => {
                assert!(why.contains(words), "{words:?} in {why}")
            }
            other => panic!("{words:?}: {other:?}"),
        }
    }
}

/// Answers every request of every connection.
fn answer_all<S: Read + Write + Send + 'static>(
    accept: impl Fn() -> std::io::Result<S> + Send + 'static,
) {
    std::thread::spawn(move || {
        while let Ok(mut stream) = accept() {
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(1..) = stream.read(&mut buffer) {
                    stream.write_all(&ok()).expect("the client reads");
                }
            });
        }
    });
}

#[test]
fn names_and_ipv6_work() {
    let answer = |listener: TcpListener| answer_all(move || listener.accept().map(|of| of.0));
    let v4 = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let mut urls = vec![format!("http://localhost:{}/", v4.local_addr().expect("bound").port())];
    answer(v4);
    // Some machines have no IPv6.
    if let Ok(v6) = TcpListener::bind("[::1]:0") {
        urls.push(format!("http://[::1]:{}/", v6.local_addr().expect("bound").port()));
        answer(v6);
    }
    for url in urls {
        let to =
            Url::parse(&url).expect("a URL").resolve(Duration::from_secs(5)).expect("an address");
        let mut config = config("127.0.0.1:1".parse().expect("an address"), 50);
        (config.address, config.connections) = (to, 3);
        assert_eq!(outcome(&config).total.counts.ok, 50, "{url}");
    }
}

/// A body larger than the socket buffers is sent completely and once, on connections that
/// alternate.
#[test]
fn large_bodies_arrive_whole() {
    const BODY_BYTES: usize = 64 << 20;
    let body: Arc<[u8]> = (0..BODY_BYTES).map(|i| (i % 251) as u8).collect();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let expected = body.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(mut stream), expected) = (stream, expected.clone()) else { return };
            std::thread::spawn(move || {
                let mut reader = std::io::BufReader::new(stream.try_clone().expect("a socket"));
                loop {
                    let mut line = String::new();
                    while line != "\r\n" {
                        line.clear();
                        if std::io::BufRead::read_line(&mut reader, &mut line).unwrap_or(0) == 0 {
                            return;
                        }
                    }
                    let mut body = vec![0; BODY_BYTES];
                    reader.read_exact(&mut body).expect("a whole body");
                    assert!(body == *expected, "the body differs from the one sent");
                    stream.write_all(&ok()).expect("the client reads");
                }
            });
        }
    });
    let mut config = config(address, 6);
    (config.connections, config.timeout) = (2, Duration::from_secs(60));
    config.requests = posted(&body);
    let counts = outcome(&config).total.counts;
    assert_eq!((counts.ok, counts.errors.total(), counts.timeouts), (6, 0, 0));
}

#[test]
fn unix_sockets_work() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).expect("a socket");
    answer_all(move || listener.accept().map(|of| of.0));
    let mut config = config("127.0.0.1:1".parse().expect("an address"), 50);
    (config.address, config.connections) = (Address::Unix(path), 2);
    assert_eq!(outcome(&config).total.counts.ok, 50);
}

/// Ids and weights arrive as configured, and a seed repeats them.
#[test]
fn requests_carry_the_configured_ids_and_weights() {
    let paths: Arc<Mutex<Vec<String>>> = Arc::default();
    let record = paths.clone();
    let server = Server::start(move |request| {
        record.lock().expect("no panic").push(request.path.to_owned());
        vec![Step::Send(ok())]
    });
    let run = |pick| {
        let request = |path, weight| RequestSpec {
            method: "GET",
            path,
            host: "h",
            headers: &[],
            body: None,
            weight,
            keepalive: true,
        };
        let ids = Ids::range(1, 50).expect("a range");
        let mut config = config(server.address, 2000);
        config.requests =
            RequestMix::new(&[request("/a/{id}", 3), request("/b/{id}", 1)], Some((ids, pick)))
                .expect("requests");
        outcome(&config);
        std::mem::take(&mut *paths.lock().expect("no panic"))
    };
    let uniform = run(Distribution::Uniform);
    assert_eq!(uniform, run(Distribution::Uniform), "one connection, one seed");
    let of_a = uniform.iter().filter(|path| path.starts_with("/a/")).count();
    // Five standard deviations of a binomial count.
    assert!(of_a.abs_diff(1500) < 97, "{of_a}");
    let mut counts = BTreeMap::new();
    for path in run(Distribution::Zipf(1.0)) {
        let id: u32 = path.rsplit('/').next().and_then(|id| id.parse().ok()).expect("an id");
        *counts.entry(id).or_insert(0_u32) += 1;
    }
    assert!(counts.keys().all(|id| (1..=50).contains(id)));
    // 1/H(50) = 22 % for the first, half of that for the second.
    assert!(counts[&1].abs_diff(444) < 94 && counts[&2].abs_diff(222) < 71, "{counts:?}");
}

/// The CPU time burned per response is used, and reduces the rate accordingly.
#[test]
fn burned_time_slows_the_generator_down() {
    let server = Server::start(|_| vec![Step::Send(ok())]);
    let mut config = config(server.address, 100);
    config.burn_per_request = Duration::from_millis(2);
    let outcome = outcome(&config);
    assert_eq!(outcome.total.counts.ok, 100);
    // Nothing is burned after the last answer, whose time ends the window.
    assert!(outcome.window >= Duration::from_millis(2 * 99), "{:?}", outcome.window);
}
