//! More connections than allowed, and connections that send requests without end.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::overload::crowd::{Crowd, request_until, room_for};
use hotrow_testkit::harness::{Config, Database, SOON, Server, await_until};

const FLOOD: usize = 3_000;
/// Limit on open files of the server: far fewer than the flood would use.
const SERVER_FILES: u32 = 600;

#[test]
fn a_flood_of_connections_leaves_descriptors_to_the_admin_side_and_evicts_its_idle_ones() {
    let database = Database::with_products(100);
    let config = Config::new(database.path()).collection("products").set("listen.workers", "2");
    // The active client is never idle for so long, even if the machine pauses for a second.
    let server =
        Server::start_with_files(&config.set("limits.idle_reclaim", "\"4s\""), SERVER_FILES);
    server.await_log("limits.connections does not fit");
    let limit = server.status()["limits"]["connections"].as_f64().unwrap();
    let mut client = server.client();
    assert_eq!(client.get("/products/1").status, 200);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The active client's connection is never idle for long, so it is not evicted.
        let asking = scope.spawn(|| request_until(&server, &mut client, &done));
        let mut crowd = Crowd::open(server.data, room_for(FLOOD));
        await_until("all places to be taken", SOON, || {
            server.metrics().sum("hotrow_http_connections", &[]) >= limit
        });
        // Silent connections become idle; then a new client is accepted.
        await_until("a new client to be accepted", SOON, || {
            let mut client = server.client();
            let sent = client.try_send("GET /products/2 HTTP/1.1\r\nHost: h\r\n\r\n");
            sent.is_ok() && client.try_answer("GET", SOON).is_ok_and(|answer| answer.status == 200)
        });
        crowd.read();
        let rejected = crowd
            .members
            .iter()
            .filter(|member| member.received.starts_with(b"HTTP/1.1 503 "))
            .count();
        println!("{FLOOD} connections, {limit} places, {rejected} rejected with an answer");
        assert!(rejected > 0);
        done.store(true, Ordering::Relaxed);
        assert!(asking.join().unwrap() >= 100);
    });
    let metrics = server.metrics();
    assert_eq!(
        metrics.sum("hotrow_http_accept_errors_total", &[]),
        0.0,
        "descriptors never ran out"
    );
    assert!(metrics.sum("hotrow_http_connections_closed_total", &[("cause", "reclaimed")]) >= 1.0);
    assert!(metrics.sum("hotrow_http_refused_total", &[("limit", "connections")]) >= 1.0);
}

const FLOODERS: usize = 4;
const POLITE_REQUESTS: usize = 300;

#[test]
fn pipelining_floods_do_not_starve_a_client_on_the_same_worker() {
    let database = Database::with_products(100);
    let server = Server::start(&Config::new(database.path()).collection("products"));
    assert_eq!(server.get("/products/1").status, 200);
    let done = AtomicBool::new(false);
    let flooded = AtomicUsize::new(0);
    let requests = b"GET /products/1 HTTP/1.1\r\nHost: h\r\n\r\n".repeat(200);
    std::thread::scope(|scope| {
        for _ in 0..FLOODERS {
            scope.spawn(|| {
                let mut client = server.client();
                client.send(&requests);
                while !done.load(Ordering::Relaxed) {
                    // Sends the next requests before the last answers, so that the server always
                    // has work.
                    client.send(&requests);
                    (0..200).for_each(|_| assert_eq!(client.answer().status, 200));
                    flooded.fetch_add(200, Ordering::Relaxed);
                }
            });
        }
        await_until("the flood to run", SOON, || flooded.load(Ordering::Relaxed) >= 200 * FLOODERS);
        let mut polite = server.client();
        for _ in 0..POLITE_REQUESTS {
            assert_eq!(polite.get("/products/1").cache(), "hit");
        }
        assert_eq!(server.admin_client().get("/healthz").status, 200);
        done.store(true, Ordering::Relaxed);
    });
    println!(
        "{POLITE_REQUESTS} answers for the polite client beside {} for the flood",
        flooded.load(Ordering::Relaxed)
    );
}
