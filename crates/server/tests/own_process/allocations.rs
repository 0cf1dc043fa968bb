//! Allocations of the hit path, counted. The allocator is that of the whole process.
#![allow(unsafe_code, reason = "an allocator is unsafe; it forwards to the system's")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::Client;
use crate::common::frames::{Frame, Http2Client, literal};
use crate::common::redis::{self, RedisClient, Reply, with_redis};
use crate::common::service::{Running, access, config};
use hotrow_access::jwks::KeySet;
use hotrow_config::Config;
use hotrow_config::access::{TokenKeys, Tokens};
use hotrow_config::observability::{AccessLog, AccessLogOutput, Observability};
use hotrow_config::purge::{KeyField, Surrogates};
use hotrow_config::trace::Trace;
use hotrow_config::transport::Transport;
use hotrow_testkit::tokens::SigningKey;
use serde_json::json;

/// Hits of one count.
const HITS: u64 = 512;
/// Most allocations of everything else in that time: the worker's timers, background threads.
const OTHERS_MAX: u64 = HITS / 8;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// `true` on the thread of the client.
    static IS_CLIENT: Cell<bool> = const { Cell::new(false) };
}

struct Counting;

// SAFETY: forwards everything to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !IS_CLIENT.get() {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the allocations of the server while it answers [`HITS`] times, in the given number of
/// requests at once.
fn allocations(client: &mut Client, request: &str, status: u16, at_once: u64) -> u64 {
    let requests = request.repeat(at_once as usize);
    let mut ask = |times: u64| {
        for _ in 0..times / at_once {
            client.send(&requests);
            (0..at_once).for_each(|_| assert_eq!(client.next_status(), status));
        }
    };
    // Fills the cache, and the buffers of the worker.
    ask(4 * at_once);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    ask(HITS);
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

/// Returns the same for requests of HTTP/2, each on the next stream.
fn http2_allocations(
    client: &mut Http2Client,
    stream: &mut u32,
    request: impl Fn(u32) -> Frame,
    at_once: u64,
) -> u64 {
    let mut ask = |times: u64| {
        for _ in 0..times / at_once {
            let mut requests = Vec::new();
            for _ in 0..at_once {
                requests.extend(request(*stream).bytes());
                *stream += 2;
            }
            // Room for the next answers.
            requests.extend(Frame::window_update(0, 16 * 1024).bytes());
            client.write(&requests).unwrap();
            (0..at_once).for_each(|_| drop(client.await_frame(Frame::ends_stream)));
        }
    };
    ask(4 * at_once);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    ask(HITS);
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

/// Returns the same for commands of the Redis protocol.
fn redis_allocations(client: &mut RedisClient, key: &str, expected: &Reply, at_once: u64) -> u64 {
    let commands = redis::array(&format!("GET {key}")).repeat(at_once as usize);
    let mut ask = |times: u64| {
        for _ in 0..times / at_once {
            client.send(&commands);
            (0..at_once).for_each(|_| assert_eq!(client.reply(), *expected));
        }
    };
    ask(4 * at_once);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    ask(HITS);
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

fn count_redis_hits(server: &Running, what: &str) {
    let mut client = RedisClient::connect(server.redis);
    let record = Reply::text(r#"{"id":1}"#);
    for (key, expected) in [("products:1", &record), ("products:2", &Reply::Null)] {
        for at_once in [1, 16] {
            let count = redis_allocations(&mut client, key, expected, at_once);
            let text = format!("{what}: GET {key}, {at_once} at once: {count} in {HITS} hits");
            assert!(count <= OTHERS_MAX, "{text}");
        }
    }
}

#[test]
fn hits_do_not_allocate() {
    let _alone = crate::alone();
    IS_CLIENT.set(true);
    count_redis_hits(&Running::start(&with_redis(config())), "commands");
    // One after the other: the count is that of the whole process.
    count_hits_over_http2();
    count_hits(&Running::start(&config()), "without access", "");
    let mut purged = config();
    let field = KeyField::SurrogateKey;
    purged.collections[0].surrogates = Some(Surrogates { field, needs_canonical_url: true });
    count_hits(&Running::start(&purged), "surrogate keys", "");
    let log = AccessLog {
        output: AccessLogOutput::Stderr,
        sample: 0.0,
        slow: Duration::from_hours(1),
        has_ids: true,
    };
    let observability = Observability { access_log: Some(log), ..Observability::default() };
    let server = Running::start(&with_redis(Config { observability, ..config() }));
    count_hits(&server, "an access log without a line of it", "");
    count_redis_hits(&server, "an access log without a line of it");
    let trace = Trace {
        endpoint: "http://127.0.0.1:9/v1/traces".parse().unwrap(),
        ca_file: None,
        headers_file: None,
        sample: 1.0,
        service_name: "hotrow".to_owned(),
        requests_per_s_max: 100,
        has_keys: false,
    };
    let observability = Observability { trace: Some(trace), ..Observability::default() };
    let not_recorded = "traceparent: 00-000000000000000000000000000000ff-00f067aa0ba902b7-00\r\n";
    for (how, field) in [("traces", ""), ("a trace that is not recorded", not_recorded)] {
        let observability = observability.clone();
        let server = Running::start(&Config { observability, ..config() });
        count_hits(&server, how, field);
    }
    let secret = [7; 32];
    let (mut access, key) = access();
    access.tokens = Some(Tokens {
        policy: crate::common::service::policy(),
        keys: TokenKeys::Secret(Arc::new(KeySet::from_secret(&secret).unwrap())),
    });
    let server = Running::start(&Config { access: Some(access), ..config() });
    count_hits(&server, "an API key", &format!("X-API-Key: {key}\r\n"));
    let claims = json!({"iss": "issuer", "aud": "hotrow", "exp": 1e12, "roles": "reader"});
    let token = SigningKey::secret(&secret).token(&claims);
    count_hits(&server, "a token", &format!("Authorization: Bearer {token}\r\n"));
}

fn count_hits(server: &Running, how: &str, credential: &str) {
    let mut client = Client::connect(server.address);
    for (what, target, field, status) in [
        ("a record", "1", "", 200),
        ("a missing record", "2", "", 404),
        ("a known record", "1", "If-None-Match: *\r\n", 304),
    ] {
        let fields = format!("{credential}{field}");
        let request = format!("GET /products/{target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        for at_once in [1, 16] {
            let count = allocations(&mut client, &request, status, at_once);
            let context = format!("{what}, {how}, {at_once} at once");
            assert!(count <= OTHERS_MAX, "{context}: {count} in {HITS} hits");
        }
    }
}

fn count_hits_over_http2() {
    let transport = Transport { http2: true, ..Transport::default() };
    let server = Running::start(&Config { transport, ..config() });
    let mut client = Http2Client::connect(server.address);
    let mut stream = 1;
    for (what, target, field) in [
        ("a record", "/products/1", None),
        ("a missing record", "/products/2", None),
        ("a known record", "/products/1", Some(("if-none-match", "*"))),
    ] {
        for at_once in [1, 16] {
            let request = |stream| {
                let mut request = Frame::request(stream, "GET", target, false);
                if let Some((name, value)) = field {
                    literal(&mut request.payload, name, value);
                }
                request
            };
            let count = http2_allocations(&mut client, &mut stream, request, at_once);
            let context = format!("{what} over HTTP/2, {at_once} at once");
            assert!(count <= OTHERS_MAX, "{context}: {count} in {HITS} hits");
        }
    }
}
