//! HTTP/2 against servers that behave in a scripted way: limits, ends of connections, refused and
//! reset streams, and the times that requests wait.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::posted;
use crate::scripted::{config, outcome, try_run};
use bytes::Bytes;
use h2::server::{Connection, SendResponse};
use h2::{Reason, RecvStream};
use hotrow_load::outcome::Outcome;
use hotrow_load::plan::{Arrivals, LoadModel, Rate};
use hotrow_load::run::{Config, RunError};
use hotrow_transport::tls::{HttpVersion, Tls, TlsOptions, Trust};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

type Request = (http::Request<RecvStream>, SendResponse<Bytes>);

/// What a server does with the request of this number on its connection, from 0.
#[derive(Clone, Copy)]
enum Step {
    /// Answers with a body of this many bytes.
    Answer(usize),
    /// Answers after this time.
    After(Duration),
    /// Resets the stream.
    Reset(Reason),
    /// Announces the end of the connection, and answers.
    Farewell,
    /// Ends the connection with an error.
    Abrupt,
    /// Leaves the stream without an answer.
    Silence,
}

/// A server on a thread of its own.
struct Server {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    /// Most streams that were open at once on one connection.
    streams: Arc<AtomicUsize>,
}

impl Server {
    /// `limit`: concurrent streams that the server allows.
    fn start(limit: u32, step: fn(usize) -> Step) -> Self {
        Self::start_with(limit, None, step)
    }

    fn start_with(limit: u32, tls: Option<Arc<ServerConfig>>, step: fn(usize) -> Step) -> Self {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let connections = Arc::new(AtomicUsize::new(0));
        let streams = Arc::new(AtomicUsize::new(0));
        let (count, most) = (connections.clone(), streams.clone());
        let serving = async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let (tls, most) = (tls.clone(), most.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, limit, step, most).await,
                        Some(config) => {
                            let acceptor = tokio_rustls::TlsAcceptor::from(config);
                            // A client may refuse the certificate.
                            if let Ok(stream) = acceptor.accept(stream).await {
                                serve(stream, limit, step, most).await;
                            }
                        }
                    }
                });
            }
        };
        std::thread::spawn(move || runtime.block_on(serving));
        Self { address, connections, streams }
    }
}

async fn serve<T: AsyncRead + AsyncWrite + Unpin>(
    stream: T,
    limit: u32,
    step: fn(usize) -> Step,
    most: Arc<AtomicUsize>,
) {
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(limit);
    let Ok(mut connection) = builder.handshake::<T, Bytes>(stream).await else { return };
    let open = Arc::new(AtomicUsize::new(0));
    let mut index = 0;
    while let Some(Ok(request)) = connection.accept().await {
        let now = open.fetch_add(1, Ordering::Relaxed) + 1;
        most.fetch_max(now, Ordering::Relaxed);
        handle(&mut connection, request, step(index), open.clone());
        index += 1;
    }
}

fn handle<T: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut Connection<T, Bytes>,
    (mut request, mut respond): Request,
    step: Step,
    open: Arc<AtomicUsize>,
) {
    let (delay, body) = match step {
        Step::Answer(bytes) => (Duration::ZERO, bytes),
        Step::After(delay) => (delay, 2),
        Step::Reset(reason) => {
            open.fetch_sub(1, Ordering::Relaxed);
            respond.send_reset(reason);
            return;
        }
        Step::Farewell => {
            connection.graceful_shutdown();
            (Duration::ZERO, 2)
        }
        Step::Abrupt => {
            connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
            return;
        }
        Step::Silence => {
            // Neither dropped nor answered.
            tokio::spawn(async move {
                let _held = (request, respond);
                std::future::pending::<()>().await;
            });
            return;
        }
    };
    tokio::spawn(async move {
        while let Some(Ok(piece)) = request.body_mut().data().await {
            let _ = request.body_mut().flow_control().release_capacity(piece.len());
        }
        tokio::time::sleep(delay).await;
        open.fetch_sub(1, Ordering::Relaxed);
        // The client may have gone.
        if let Ok(mut stream) = respond.send_response(http::Response::new(()), body == 0)
            && body > 0
        {
            let _ = stream.send_data(Bytes::from(vec![b'x'; body]), true);
        }
    });
}

fn http2(address: SocketAddr, requests: u64, streams: usize) -> Config {
    let mut config = config(address, requests);
    (config.version, config.depth, config.connections) = (HttpVersion::Http2, streams, 2);
    config
}

fn run(server: &Server, requests: u64, streams: usize) -> Outcome {
    outcome(&http2(server.address, requests, streams))
}

#[test]
fn streams_share_a_connection_and_bodies_of_every_size_arrive() {
    for (bytes, requests) in [(0, 400), (2, 400), (3 << 20, 40)] {
        let step: fn(usize) -> Step = match bytes {
            0 => |_| Step::Answer(0),
            2 => |_| Step::Answer(2),
            _ => |_| Step::Answer(3 << 20),
        };
        let server = Server::start(100, step);
        let outcome = run(&server, requests, 10);
        let counts = &outcome.total.counts;
        assert_eq!((counts.ok, counts.sent, counts.errors.total()), (requests, requests, 0));
        assert_eq!((counts.connections_opened, outcome.max_in_flight), (0, 20));
        assert_eq!(server.connections.load(Ordering::Relaxed), 2);
        assert!(counts.bytes_received >= requests * bytes, "{counts:?}");
        assert!(counts.bytes_sent > requests, "{counts:?}");
        assert_eq!(outcome.total.first_byte.count(), requests);
        assert!(outcome.failure_messages.is_empty(), "{:?}", outcome.failure_messages);
    }
}

#[test]
fn a_body_larger_than_every_window_is_sent() {
    let server = Server::start(100, |_| Step::Answer(2));
    let body = vec![b'x'; 3 << 20];
    let mut config = http2(server.address, 12, 3);
    config.requests = posted(&body);
    let counts = outcome(&config).total.counts;
    assert_eq!((counts.ok, counts.errors.total()), (12, 0));
    assert!(counts.bytes_sent > 12 * (3 << 20), "{counts:?}");
}

/// Requests beyond the server's limit wait unsent, and the wait is in their latency but not in the
/// service time.
#[test]
fn the_servers_limit_of_streams_is_kept_and_waiting_counts() {
    const ANSWER_MS: u64 = 20;
    let server = Server::start(2, |_| Step::After(Duration::from_millis(ANSWER_MS)));
    let mut config = http2(server.address, 24, 12);
    config.connections = 1;
    // All are due within the first milliseconds.
    let rate = Rate::new(100_000.0, 100_000.0).expect("a rate");
    config.plan.model = LoadModel::Open { rate, arrivals: Arrivals::Uniform };
    let outcome = outcome(&config);
    let counts = &outcome.total.counts;
    assert_eq!((counts.ok, counts.errors.total()), (24, 0));
    assert!(server.streams.load(Ordering::Relaxed) <= 2);
    // Two at a time: the last waits for eleven pairs before it.
    let latency = outcome.total.latency.quantile(1.0).expect("samples").ns();
    assert!(latency >= 12 * ANSWER_MS * 990_000, "{latency}");
    let waited = outcome.total.schedule_lag.max();
    assert!(waited >= 11 * ANSWER_MS * 990_000, "{waited}");
    let said = &outcome.failure_messages;
    assert!(said.iter().any(|(words, _)| words.contains("allows 2 streams")), "{said:?}");
}

#[test]
fn streams_refused_or_reset_are_counted_by_reason() {
    let refused = Server::start(100, |index| {
        if index % 4 == 3 { Step::Reset(Reason::REFUSED_STREAM) } else { Step::Answer(2) }
    });
    let run = |server: &Server| {
        let mut config = http2(server.address, 400, 5);
        config.connections = 1;
        outcome(&config)
    };
    let errors = run(&refused).total.counts.errors;
    assert_eq!((errors.refused_stream, errors.total()), (100, 100));
    let reset = Server::start(100, |index| {
        if index % 4 == 3 { Step::Reset(Reason::INTERNAL_ERROR) } else { Step::Answer(2) }
    });
    let outcome = run(&reset);
    let counts = &outcome.total.counts;
    assert_eq!((counts.errors.stream_reset, counts.errors.total(), counts.ok), (100, 100, 300));
    assert_eq!(reset.connections.load(Ordering::Relaxed), 1, "the connection stays");
}

/// A server that announces the end of a connection answers what it has begun; the rest is sent
/// again on a new connection, once.
#[test]
fn an_announced_end_loses_nothing() {
    let server =
        Server::start(100, |index| if index == 20 { Step::Farewell } else { Step::Answer(2) });
    let outcome = run(&server, 500, 8);
    let counts = &outcome.total.counts;
    assert_eq!((counts.ok, counts.sent, counts.errors.total()), (500, 500, 0), "{outcome:?}");
    assert!(counts.reconnects > 5, "{counts:?}");
}

#[test]
fn an_end_with_an_error_is_counted_as_goaway() {
    let server =
        Server::start(100, |index| if index == 9 { Step::Abrupt } else { Step::Answer(2) });
    let outcome = run(&server, 300, 1);
    let counts = &outcome.total.counts;
    assert!(counts.errors.goaway > 0, "{counts:?}");
    assert_eq!(counts.errors.goaway, counts.errors.total(), "{:?}", outcome.failure_messages);
    assert_eq!(counts.ok + counts.errors.total(), 300);
}

#[test]
fn a_silent_stream_times_out_alone() {
    let server =
        Server::start(100, |index| if index == 3 { Step::Silence } else { Step::Answer(2) });
    let mut config = http2(server.address, 200, 4);
    (config.connections, config.timeout) = (1, Duration::from_millis(200));
    let outcome = outcome(&config);
    let counts = &outcome.total.counts;
    assert_eq!((counts.ok, counts.timeouts, counts.errors.total()), (199, 1, 0));
    assert_eq!(server.connections.load(Ordering::Relaxed), 1, "the connection stays");
    assert!(outcome.total.latency.quantile(1.0).expect("samples").ns() >= 200_000_000);
}

fn certificate(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../crates/transport/tests/certificates")
        .join(name)
}

fn tls_server(alpn: &[&[u8]]) -> Server {
    let chain = vec![CertificateDer::from_pem_file(certificate("server.pem")).expect("a file")];
    let key = PrivateKeyDer::from_pem_file(certificate("server.key")).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions");
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key).expect("they fit");
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    Server::start_with(100, Some(Arc::new(config)), |_| Step::Answer(50_000))
}

fn with_tls(mut config: Config) -> Config {
    let options = TlsOptions {
        trust: Trust::Authority(certificate("authority.pem")),
        version: HttpVersion::Http2,
        ..TlsOptions::default()
    };
    config.tls = Some(Tls::new("localhost", &options).expect("TLS"));
    config
}

#[test]
fn it_runs_over_tls_and_needs_the_servers_consent() {
    let server = tls_server(&[b"h2", b"http/1.1"]);
    let counts = outcome(&with_tls(http2(server.address, 100, 5))).total.counts;
    assert_eq!((counts.ok, counts.errors.total()), (100, 0));
    for alpn in [&[][..], &[&b"http/1.1"[..]]] {
        let server = tls_server(alpn);
        match try_run(&with_tls(http2(server.address, 10, 1))) {
            Err(RunError::NoConnection { why, .. }) => {
                assert!(why.contains("does not offer HTTP/2"), "{why}")
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_server_of_http_1_is_recognized() {
    let server = crate::scripted::Server::start(|_| {
        vec![crate::scripted::Step::Send(crate::scripted::ok())]
    });
    match try_run(&http2(server.address, 10, 1)) {
        Err(RunError::NoConnection { why, .. }) => assert!(!why.is_empty(), "{why}"),
        other => panic!("{other:?}"),
    }
}
