//! Many clients that send too slowly, and many that do not read.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::overload::crowd::{Crowd, request_until, resident_bytes, room_for};
use hotrow_testkit::harness::{Config, Database, SOON, Server, await_until};

const SLOW_CLIENTS: usize = 5_000;
const HEAD: &[u8] = b"GET /products/1 HTTP/1.1\r\nHost: h\r\nX: ";
const BODY: &[u8] =
    b"POST /products HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n{\"ids\":[";
/// Long enough to open all connections on a busy machine.
const TIMEOUT: &str = "\"6s\"";
/// Pause between two bytes of a slow client.
const PAUSE: Duration = Duration::from_millis(200);
/// Largest average memory of a slow client: a read buffer, a head, a request that waits for its
/// body.
const SLOW_CLIENT_BYTES: u64 = 32 << 10;

fn closed_by(server: &Server, cause: &str) -> f64 {
    server.metrics().sum("hotrow_http_connections_closed_total", &[("cause", cause)])
}

#[test]
fn slow_clients_are_answered_408_in_time_and_cost_little() {
    let count = room_for(SLOW_CLIENTS);
    let database = Database::with_products(100);
    let timeouts = [("limits.header_timeout", TIMEOUT), ("limits.body_timeout", TIMEOUT)];
    let server =
        Server::start(&Config::new(database.path()).collection("products").with(&timeouts));
    let mut client = server.client();
    assert_eq!(client.get("/products/1").status, 200);
    let before = resident_bytes(&server);
    let done = AtomicBool::new(false);
    let answers = std::thread::scope(|scope| {
        let asking = scope.spawn(|| request_until(&server, &mut client, &done));
        let mut crowd = Crowd::open(server.data, count);
        crowd.send(|at| if at % 2 == 0 { HEAD } else { BODY });
        await_until("all of them to be connected", SOON, || {
            server.metrics().sum("hotrow_http_connections", &[]) >= count as f64
        });
        let each = resident_bytes(&server).saturating_sub(before) / count as u64;
        println!("{count} slow clients cost {each} bytes each");
        assert!(each <= SLOW_CLIENT_BYTES, "{each} bytes per slow client");
        crowd.drip_until_closed(b"1", PAUSE, 2 * SOON);
        done.store(true, Ordering::Relaxed);
        for member in &crowd.members {
            let start = String::from_utf8_lossy(&member.received);
            assert!(start.starts_with("HTTP/1.1 408 "), "{start:?}");
        }
        asking.join().unwrap()
    });
    println!("at the same time another client got {answers} answers");
    assert!(answers >= 100, "{answers}");
    let heads = count.div_ceil(2) as f64;
    let bodies = (count / 2) as f64;
    await_until("all of them to be counted", SOON, || {
        (closed_by(&server, "header_timeout"), closed_by(&server, "body_timeout"))
            == (heads, bodies)
    });
    assert_eq!(server.queries(), 1, "none of their requests was read");
}

const GREEDY_CLIENTS: usize = 200;
/// Answers that each client requests without reading any: 100 MB.
const REQUESTED: usize = 1_000;
/// Largest memory of such a client: buffers of hyper and of the HTTP/1 connection for its answers
/// and requests.
const GREEDY_CLIENT_BYTES: u64 = 256 << 10;

#[test]
fn clients_that_never_read_are_cut_off_in_time_and_cost_little() {
    let count = room_for(GREEDY_CLIENTS);
    let database = Database::with_products(100);
    database.execute(
        "ALTER TABLE products ADD COLUMN text TEXT; UPDATE products SET text = \
         hex(zeroblob(50000)) WHERE id = 2",
    );
    let server = Server::start(
        &Config::new(database.path()).collection("products").set("limits.write_timeout", "\"2s\""),
    );
    let mut client = server.client();
    assert_eq!(client.get("/products/1").status, 200);
    assert!(server.get("/products/2").body.len() > 100_000);
    let before = resident_bytes(&server);
    let done = AtomicBool::new(false);
    let requests = b"GET /products/2 HTTP/1.1\r\nHost: h\r\n\r\n".repeat(REQUESTED);
    let mut crowd = Crowd::open(server.data, count);
    let answers = std::thread::scope(|scope| {
        let asking = scope.spawn(|| request_until(&server, &mut client, &done));
        crowd.send(|_| &requests);
        let mut most = 0;
        await_until("all of them to be cut off", 2 * SOON, || {
            most = resident_bytes(&server).max(most);
            closed_by(&server, "write_timeout") == count as f64
        });
        done.store(true, Ordering::Relaxed);
        let each = most.saturating_sub(before) / count as u64;
        println!("{count} clients that never read cost {each} bytes each");
        assert!(each <= GREEDY_CLIENT_BYTES, "{each} bytes per client");
        asking.join().unwrap()
    });
    println!("at the same time another client got {answers} answers");
    assert!(answers >= 100, "{answers}");
}
