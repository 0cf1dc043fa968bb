//! Keys of tokens from a URL, with real servers of HTTP and HTTPS.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::common::authority::Authority;
use crate::common::http2::Http2Connection;
use crate::common::load::{Ask, under_load};
use crate::common::service::{Running, access, config, policy};
use crate::common::{self, Client, wait_until};
use hotrow_access::key_refresh::RefreshConfig;
use hotrow_config::Config;
use hotrow_config::access::{TokenKeys, Tokens};
use hotrow_config::transport::Transport;
use hotrow_testkit::tokens::{SigningKey, jwks};
use parking_lot::Mutex;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;

/// A server that answers every request with the same bytes, until they are replaced.
struct Issuer {
    address: SocketAddr,
    answer: Arc<Mutex<Vec<u8>>>,
    requests: Arc<AtomicUsize>,
}

impl Issuer {
    fn start(answer: Vec<u8>, tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (answer, requests) = (Arc::new(Mutex::new(answer)), Arc::new(AtomicUsize::new(0)));
        let (to_send, count) = (answer.clone(), requests.clone());
        // Ends with the process: the listener has no other user.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (to_send, count, tls) = (to_send.clone(), count.clone(), tls.clone());
                std::thread::spawn(move || {
                    let stream: TcpStream = stream.unwrap();
                    match tls {
                        None => serve(stream, &to_send, &count),
                        Some(tls) => {
                            let connection = ServerConnection::new(tls).unwrap();
                            serve(StreamOwned::new(connection, stream), &to_send, &count);
                        }
                    }
                });
            }
        });
        Self { address, answer, requests }
    }

    fn set(&self, answer: Vec<u8>) {
        *self.answer.lock() = answer;
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

/// Answers one request. A client that refuses the certificate sends none.
fn serve(mut stream: impl Read + Write, answer: &Mutex<Vec<u8>>, requests: &AtomicUsize) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return,
        }
    }
    requests.fetch_add(1, Ordering::Relaxed);
    let text = String::from_utf8(head).unwrap().to_ascii_lowercase();
    assert!(
        text.starts_with("get /keys?v=1 http/1.1\r\n") && text.contains("\r\nhost: 127.0.0.1:")
    );
    let answer = answer.lock().clone();
    // The client may have had enough.
    let _ = stream.write_all(&answer).and_then(|()| stream.flush());
}

fn ok(text: &str) -> Vec<u8> {
    let length = text.len();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{text}").into()
}

const SHORT: Duration = Duration::from_millis(20);

fn refresh() -> RefreshConfig {
    RefreshConfig {
        interval: SHORT,
        retry: SHORT,
        unknown_key_interval: SHORT,
        age_max: common::DEADLINE,
    }
}

fn start(scheme: &str, issuer: &Issuer, ca: Option<PathBuf>, refresh: RefreshConfig) -> Running {
    let url = format!("{scheme}://{}/keys?v=1", issuer.address).parse().unwrap();
    let (mut access, _) = access();
    access.tokens = Some(Tokens { policy: policy(), keys: TokenKeys::Url { url, ca, refresh } });
    Running::start(&Config { access: Some(access), ..config() })
}

/// Starts a server with two workers that speaks HTTP/2 too.
fn start_http2(issuer: &Issuer) -> Running {
    let url = format!("http://{}/keys?v=1", issuer.address).parse().unwrap();
    let (mut access, _) = access();
    let keys = TokenKeys::Url { url, ca: None, refresh: refresh() };
    access.tokens = Some(Tokens { policy: policy(), keys });
    let transport = Transport { http2: true, ..Transport::default() };
    Running::start(&Config { access: Some(access), transport, workers: 2, ..config() })
}

fn token(key: &SigningKey) -> String {
    token_of(key, 0)
}

/// Tokens with other numbers are other tokens.
fn token_of(key: &SigningKey, number: usize) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let mut claims =
        json!({"iss": "issuer", "aud": "hotrow", "exp": now + 600, "roles": ["reader"]});
    claims["jti"] = json!(number);
    key.token(&claims)
}

fn status(server: &Running, token: &str) -> u16 {
    let request = format!(
        "GET /products/1 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\nConnection: \
         close\r\n\r\n"
    );
    Client::connect(server.address).send(request).rest().answers.pop().unwrap().status
}

fn admin(server: &Running, target: &str) -> common::Answer {
    let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    Client::connect(server.admin).send(request).rest().answers.pop().unwrap()
}

/// Returns the value of a counter.
fn reads(server: &Running, result: &str) -> u64 {
    let name = format!("hotrow_jwks_reads_total{{result=\"{result}\"}} ");
    let text = admin(server, "/metrics").body;
    text.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
}

#[test]
fn keys_come_over_https_from_a_server_that_is_trusted() {
    let (authority, key) = (Authority::new(), SigningKey::p256("a"));
    let issuer = Issuer::start(ok(&jwks(&[&key])), Some(authority.server_config()));
    let server = start("https", &issuer, Some(authority.path("ca.pem")), refresh());
    wait_until(|| status(&server, &token(&key)) == 200);
    assert!(admin(&server, "/metrics").body.contains("hotrow_jwks_keys 1\n"));
    // Another authority, no authority, and no TLS at all: nothing is requested.
    let other = Authority::new();
    drop(server);
    let before = issuer.requests();
    for (scheme, ca) in [
        ("https", Some(other.path("ca.pem"))),
        ("https", Some(other.path("server.key"))),
        ("https", Some(other.path("missing"))),
        ("http", None),
    ] {
        let server = start(scheme, &issuer, ca, refresh());
        wait_until(|| reads(&server, "failed") > 2);
        assert_eq!((status(&server, &token(&key)), reads(&server, "ok")), (503, 0));
        assert_eq!(admin(&server, "/readyz").status, 503);
    }
    assert_eq!(issuer.requests(), before);
}

#[test]
fn an_answer_that_cannot_be_used_leaves_the_keys_in_force() {
    let (old, new) = (SigningKey::ed25519("old", 1), SigningKey::ed25519("new", 2));
    let issuer = Issuer::start(ok(&jwks(&[&old])), None);
    let server = start("http", &issuer, None, refresh());
    wait_until(|| status(&server, &token(&old)) == 200);
    let large = format!("{{\"keys\":[]}}{}", " ".repeat(64 * 1024));
    let endless = format!("HTTP/1.1 200 OK\r\n\r\n{}", " ".repeat(1 << 20));
    let deep = format!("{{\"keys\":{}{}}}", "[".repeat(100), "]".repeat(100));
    let redirect = "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n";
    let head = format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "x".repeat(100_000));
    let good = jwks(&[&new]);
    let cut = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{good}", good.len() + 1);
    let error = format!("HTTP/1.1 500 Oops\r\nContent-Length: {}\r\n\r\n{good}", good.len());
    for answer in [
        ok(""),
        ok("{}"),
        ok("{\"keys\":[]}"),
        ok(&large),
        ok(&deep),
        endless.into_bytes(),
        redirect.into(),
        head.into_bytes(),
        cut.into_bytes(),
        error.into_bytes(),
        b"no HTTP".to_vec(),
        Vec::new(),
    ] {
        issuer.set(answer.clone());
        let failed = reads(&server, "failed");
        // One may have begun with the answer before this one.
        wait_until(|| reads(&server, "failed") >= failed + 2);
        let shown = String::from_utf8_lossy(&answer[..answer.len().min(60)]).into_owned();
        assert_eq!(status(&server, &token(&old)), 200, "{shown}");
        assert_eq!(status(&server, &token(&new)), 401, "{shown}");
        issuer.set(ok(&jwks(&[&old])));
        let ok = reads(&server, "ok");
        wait_until(|| reads(&server, "ok") > ok);
    }
    // Both are published for a while; then the tokens of the old one end.
    issuer.set(ok(&jwks(&[&old, &new])));
    wait_until(|| {
        assert_eq!(status(&server, &token(&old)), 200);
        status(&server, &token(&new)) == 200
    });
    issuer.set(ok(&jwks(&[&new])));
    wait_until(|| {
        assert_eq!(status(&server, &token(&new)), 200);
        status(&server, &token(&old)) == 401
    });
}

/// Requests on one connection, and so to one worker.
fn ask(client: &mut Client, token: &str) -> u16 {
    let request =
        format!("GET /products/1 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n\r\n");
    client.send(request).next_status()
}

#[test]
fn keys_are_replaced_under_load_as_one_and_without_a_failed_request() {
    let [first, kept, last] = [("first", 1), ("kept", 2), ("last", 3)]
        .map(|(name, seed)| SigningKey::ed25519(name, seed));
    let issuer = Issuer::start(ok(&jwks(&[&first, &kept])), None);
    let server = start_http2(&issuer);
    let [old, new] = [&first, &last].map(token);
    wait_until(|| status(&server, &old) == 200);
    let number = AtomicUsize::new(0);
    // One token that is known, and each time one whose signature is checked.
    let known = token(&kept);
    let next = || {
        let number = number.fetch_add(1, Ordering::Relaxed);
        if number.is_multiple_of(2) { known.clone() } else { token_of(&kept, number) }
    };
    let http1 = || -> Ask<'_> {
        let mut client = Client::connect(server.address);
        Box::new(move || ask(&mut client, &next()))
    };
    under_load(http1, || {
        issuer.set(ok(&jwks(&[&kept, &last])));
        let client = RefCell::new(Client::connect(server.address));
        wait_until(|| {
            let client = &mut *client.borrow_mut();
            let is_new = ask(client, &new) == 200;
            // A worker that accepts the new key has let go of the old one.
            assert!(!is_new || ask(client, &old) == 401);
            is_new
        });
    });
    let http2 = || -> Ask<'_> {
        let mut client = Http2Connection::connect(server.address);
        Box::new(move || {
            let field = format!("Authorization: Bearer {}\r\n", next());
            client.ask("GET", "/products/1", &field, "").status
        })
    };
    under_load(http2, || {
        issuer.set(ok(&jwks(&[&first, &kept])));
        wait_until(|| status(&server, &old) == 200);
    });
}

#[test]
fn unknown_keys_cause_one_fetch_per_interval() {
    let (old, new) = (SigningKey::ed25519("old", 1), SigningKey::ed25519("new", 2));
    let issuer = Issuer::start(ok(&jwks(&[&old])), None);
    let hour = Duration::from_hours(1);
    let rarely = RefreshConfig { interval: hour, unknown_key_interval: hour, ..refresh() };
    let server = start("http", &issuer, None, rarely);
    wait_until(|| status(&server, &token(&old)) == 200);
    assert_eq!(issuer.requests(), 1);
    issuer.set(ok(&jwks(&[&old, &new])));
    wait_until(|| status(&server, &token(&new)) == 200);
    assert_eq!(issuer.requests(), 2);
    for number in 0..200 {
        let unknown = SigningKey::ed25519(&format!("unknown{number}"), 3);
        assert_eq!(status(&server, &token(&unknown)), 401);
    }
    // Another read would have been due at once.
    assert_eq!((issuer.requests(), reads(&server, "ok")), (2, 2));
}

#[test]
fn old_keys_end_when_the_issuer_is_gone() {
    let key = SigningKey::ed25519("a", 1);
    let issuer = Issuer::start(ok(&jwks(&[&key])), None);
    let soon = RefreshConfig { age_max: Duration::from_millis(500), ..refresh() };
    let server = start("http", &issuer, None, soon);
    wait_until(|| status(&server, &token(&key)) == 200);
    wait_until(|| admin(&server, "/readyz").status == 200);
    issuer.set(Vec::new());
    wait_until(|| status(&server, &token(&key)) == 503);
    assert_eq!(admin(&server, "/readyz").status, 503);
    let status_page = admin(&server, "/status").body;
    let page: serde_json::Value = serde_json::from_str(&status_page).unwrap();
    assert_eq!(page["access"]["jwks"]["keys"], 1, "{page}");
    issuer.set(ok(&jwks(&[&key])));
    wait_until(|| status(&server, &token(&key)) == 200);
}
