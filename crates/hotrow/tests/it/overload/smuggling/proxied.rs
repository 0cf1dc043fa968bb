//! Every case through a real proxy that keeps one connection to Hotrow for all its clients.
//!
//! The proxy and Hotrow must agree on the end of each message. For each case Hotrow must answer as
//! many requests as the proxy sent and got answers to, by the counts of both, and the next client
//! must get its own answer, not one left in the connection. Requests that the proxy refuses itself
//! do not reach Hotrow.

use std::time::{Duration, Instant};

use super::Case;
use super::cases;
use crate::overload::fronts::{Haproxy, Nginx, Proxy, Upstream};
use hotrow_testkit::harness::{Client, Config, Database, SOON, Server};

/// Request after every case. Its client is the attacker, so its answer does not matter.
const PROBE: &str = "GET /products/9 HTTP/1.1\r\nHost: probe\r\n\r\n";
/// Time that the attacker waits for more bytes before it stops sending, because a proxy may cancel
/// unstarted requests when a client's input ends.
const QUIET: Duration = Duration::from_millis(20);
/// Time limit for the counts to agree. Only after an interrupted request they need not agree.
const SETTLED: Duration = Duration::from_secs(1);
/// First record of the clean clients; each request is for another record.
const CLEAN_FROM: usize = 1_000;

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

    /// Returns whether both sides counted the same since `before`.
    fn agree_since(&self, before: &Self) -> bool {
        let handled = self.handled - before.handled;
        let sent = self.proxy.sent - before.proxy.sent;
        let answered = self.proxy.answered - before.proxy.answered;
        sent == handled && answered == handled
    }

    /// Returns whether Hotrow answered only requests that were sent, and the proxy received only
    /// answers that Hotrow sent. An interrupted request may be counted by one side only.
    fn sound(&self) -> bool {
        (self.proxy.answered..=self.proxy.sent).contains(&self.handled)
    }
}

/// Numbers of cases by result.
#[derive(Debug, Default)]
struct Tally {
    /// At least one request of the case reached Hotrow.
    reached: usize,
    /// The proxy refused the whole case.
    refused: usize,
    /// A request was interrupted on its way.
    cut: usize,
    complaints: Vec<String>,
}

/// Sends a case and reads everything until the proxy closes.
fn attack(proxy: &impl Proxy, case: &Case) -> Result<(), String> {
    let mut client = Client::connect(proxy.address());
    let _ = client.try_send([&case.bytes, PROBE.as_bytes()].concat());
    if client.rest(QUIET).is_ok() {
        return Ok(());
    }
    client.try_end_sending();
    client
        .rest(SOON)
        .map(|_| ())
        .map_err(|fault| format!("{}: the proxy does not close: {fault:?}", case.what))
}

/// Sends two requests of a client without malformed bytes and checks the answers.
fn clean(proxy: &impl Proxy, at: usize, case: &Case) -> Result<(), String> {
    let mut client = Client::connect(proxy.address());
    for id in [CLEAN_FROM + 2 * at, CLEAN_FROM + 2 * at + 1] {
        client.send(format!("GET /products/{id} HTTP/1.1\r\nHost: clean\r\n\r\n"));
        match client.try_answer("GET", SOON) {
            Ok(answer) if answer.status == 200 && answer.json_or_null()["id"] == id => {}
            other => {
                return Err(format!(
                    "{}: the next client requested {id} and got {other:?}",
                    case.what
                ));
            }
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
    // A proxy may log a request after its client has the answer.
    let (mut before, agree) = settle(&server, &proxy, &Counts::default());
    assert!(agree, "counts must agree before the first case: {before:?}");
    for (at, case) in cases.iter().enumerate() {
        tally.complaints.extend(attack(&proxy, case).and_then(|()| clean(&proxy, at, case)).err());
        let (now, agree) = settle(&server, &proxy, &before);
        if !now.sound() {
            tally.complaints.push(format!("{}: before {before:?}, then {now:?}", case.what));
        }
        tally.cut += usize::from(!agree);
        // Two of them are the clean client's.
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
    assert!(
        tally.complaints.is_empty(),
        "{} complaints:\n{}",
        tally.complaints.len(),
        tally.complaints.join("\n")
    );
    assert!(tally.reached >= 40, "the proxy must forward cases to be useful: {tally:?}");
    assert!(tally.cut <= cases.len() / 10, "counts must agree in most cases: {tally:?}");
    assert_reused(&server, &proxy);
}

/// Asserts that clients share a connection; otherwise the test would show nothing.
fn assert_reused(server: &Server, proxy: &impl Proxy) {
    let accepted = || server.metrics().sum("hotrow_http_connections_accepted_total", &[]);
    Client::connect(proxy.address()).get("/products/1");
    let before = accepted();
    for id in 1..=20 {
        assert_eq!(Client::connect(proxy.address()).get(&format!("/products/{id}")).status, 200);
    }
    assert!(
        accepted() - before <= 1.0,
        "clients must share a connection: {} were opened",
        accepted() - before
    );
}

#[test]
fn nginx_that_buffers_and_hotrow_agree_where_messages_end() {
    run(|server| Nginx::start(server.data, ""), "nginx");
}

#[test]
fn tolerant_nginx_without_buffering_and_hotrow_agree_where_messages_end() {
    let tolerant =
        "proxy_request_buffering off; ignore_invalid_headers off; underscores_in_headers on;";
    run(|server| Nginx::start(server.data, tolerant), "nginx, tolerant");
}

#[test]
fn haproxy_and_hotrow_agree_where_messages_end() {
    run(|server| Haproxy::start(server.data, ""), "HAProxy");
}

#[test]
fn haproxy_that_accepts_invalid_requests_and_hotrow_agree_where_messages_end() {
    run(
        |server| Haproxy::start(server.data, "option accept-invalid-http-request"),
        "HAProxy, tolerant",
    );
}
