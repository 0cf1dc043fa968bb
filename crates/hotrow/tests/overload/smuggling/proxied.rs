//! Every case through a real proxy that keeps one connection to Hotrow for all its clients.
//!
//! The proxy and Hotrow must agree on where each message ends. So for each case: Hotrow answers as many requests as the proxy
//! sent and got answers to, by the counts of either, and the next client gets its own answer, not what somebody left in the
//! connection. What the proxy refuses by itself did not reach us.

use std::time::{Duration, Instant};

use super::case::Case;
use super::cases;
use crate::fronts::{Haproxy, Nginx, Proxy, Upstream};
use crate::harness::{Client, Config, Database, SOON, Server};

/// Comes behind every case; the client that sends it is the attacker, so whose answer it gets is its own business.
const PROBE: &str = "GET /products/9 HTTP/1.1\r\nHost: probe\r\n\r\n";
/// How long the attacker waits for more before it stops sending: a proxy that sees the end of a client's input may give up
/// what it has not begun.
const QUIET: Duration = Duration::from_millis(20);
/// How long the counts may take to agree. Only where a request was cut off they need not.
const SETTLED: Duration = Duration::from_secs(1);
/// The first record that clean clients ask for; each asks for another one.
const CLEAN_FROM: usize = 1_000;

/// How the two sides stand.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    proxy: Upstream,
    /// Requests that Hotrow answered.
    handled: u64,
}

impl Counts {
    fn now(server: &Server, proxy: &impl Proxy) -> Self {
        Self {
            proxy: proxy.upstream(),
            handled: server.metrics().sum_or_zero("hotrow_http_requests_total", &[]) as u64,
        }
    }

    /// Both sides counted the same since `before`.
    fn agree_since(&self, before: &Self) -> bool {
        let handled = self.handled - before.handled;
        let (sent, answered) = (self.proxy.sent - before.proxy.sent, self.proxy.answered - before.proxy.answered);
        sent == handled && answered == handled
    }

    /// Hotrow answered nothing that was not sent, and the proxy got nothing that was not answered. A request that was cut
    /// off on its way may be counted by one side only.
    fn sound(&self) -> bool {
        (self.proxy.answered..=self.proxy.sent).contains(&self.handled)
    }
}

/// What became of the cases.
#[derive(Debug, Default)]
struct Tally {
    /// At least one request of the case reached Hotrow.
    reached: usize,
    /// The proxy refused all of it.
    refused: usize,
    /// A request was cut off on its way.
    cut: usize,
    complaints: Vec<String>,
}

/// Sends a case and takes whatever comes back until the proxy closes.
fn attack(proxy: &impl Proxy, case: &Case) -> Result<(), String> {
    let mut client = Client::connect(proxy.address());
    let _ = client.try_send([&case.bytes, PROBE.as_bytes()].concat());
    if client.rest(QUIET).is_ok() {
        return Ok(());
    }
    client.try_end_sending();
    client.rest(SOON).map(|_| ()).map_err(|fault| format!("{}: the proxy does not close: {fault:?}", case.what))
}

/// A client that did nothing wrong asks twice.
fn clean(proxy: &impl Proxy, at: usize, case: &Case) -> Result<(), String> {
    let mut client = Client::connect(proxy.address());
    for id in [CLEAN_FROM + 2 * at, CLEAN_FROM + 2 * at + 1] {
        client.send(format!("GET /products/{id} HTTP/1.1\r\nHost: clean\r\n\r\n"));
        match client.try_answer("GET", SOON) {
            Ok(answer) if answer.status == 200 && answer.json_or_null()["id"] == id => {}
            other => return Err(format!("{}: the next client asked for {id} and got {other:?}", case.what)),
        }
    }
    Ok(())
}

fn settle(server: &Server, proxy: &impl Proxy, before: &Counts) -> (Counts, bool) {
    let end = Instant::now() + SETTLED;
    loop {
        let now = Counts::now(server, proxy);
        let agree = now.agree_since(before);
        if agree || Instant::now() > end {
            return (now, agree);
        }
    }
}

fn run<P: Proxy>(start: impl FnOnce(&Server) -> P, name: &str) {
    let database = Database::with_products(4_000);
    let server = Server::start(&Config::new(database.path()).collection("products"));
    let proxy = start(&server);
    let mut tally = Tally::default();
    let cases = cases();
    clean(&proxy, cases.len(), &cases[0]).expect("a proxy that works");
    let mut before = Counts::now(&server, &proxy);
    for (at, case) in cases.iter().enumerate() {
        tally.complaints.extend(attack(&proxy, case).and_then(|()| clean(&proxy, at, case)).err());
        let (now, agree) = settle(&server, &proxy, &before);
        if !now.sound() {
            tally.complaints.push(format!("{}: before {before:?}, then {now:?}", case.what));
        }
        tally.cut += usize::from(!agree);
        // Two are the clean client's.
        if now.proxy.sent - before.proxy.sent > 2 {
            tally.reached += 1
        } else {
            tally.refused += 1
        }
        before = now;
    }
    println!(
        "{name}: {} cases, {} reached Hotrow, {} refused by the proxy, {} cut off",
        cases.len(),
        tally.reached,
        tally.refused,
        tally.cut
    );
    assert!(tally.complaints.is_empty(), "{} complaints:\n{}", tally.complaints.len(), tally.complaints.join("\n"));
    assert!(tally.reached >= 40, "the proxy must let cases through to be of use: {tally:?}");
    assert!(tally.cut <= cases.len() / 10, "counts that agree are the rule: {tally:?}");
    assert_reused(&server, &proxy);
}

/// Without a shared connection none of this would show anything.
fn assert_reused(server: &Server, proxy: &impl Proxy) {
    let accepted = || server.metrics().sum("hotrow_http_connections_accepted_total", &[]);
    Client::connect(proxy.address()).get("/products/1");
    let before = accepted();
    for id in 1..=20 {
        assert_eq!(Client::connect(proxy.address()).get(&format!("/products/{id}")).status, 200);
    }
    assert!(accepted() - before <= 1.0, "clients must share a connection: {} were opened", accepted() - before);
}

#[test]
fn nginx_that_buffers_and_hotrow_agree_where_messages_end() {
    run(|server| Nginx::start(server.data, ""), "nginx");
}

#[test]
fn nginx_that_passes_on_all_it_can_and_hotrow_agree_where_messages_end() {
    let tolerant = "proxy_request_buffering off; ignore_invalid_headers off; underscores_in_headers on;";
    run(|server| Nginx::start(server.data, tolerant), "nginx, tolerant");
}

#[test]
fn haproxy_and_hotrow_agree_where_messages_end() {
    run(|server| Haproxy::start(server.data, ""), "HAProxy");
}

#[test]
fn haproxy_that_accepts_invalid_requests_and_hotrow_agree_where_messages_end() {
    run(|server| Haproxy::start(server.data, "option accept-invalid-http-request"), "HAProxy, tolerant");
}
