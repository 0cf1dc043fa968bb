//! Deadlines of clients, and the limit on concurrent queries under normal load.

use std::time::Duration;

use hotrow_testkit::harness::{Config, Database, Server};

const MISS: &str = "miss";

fn counted(server: &Server, name: &str) -> f64 {
    server.metrics().sum(name, &[])
}

#[cfg(feature = "failpoints")]
#[test]
fn a_clients_deadline_is_kept_and_later_reads_are_not_made() {
    use hotrow_testkit::harness::{Gate, SOON, await_until};
    let database = Database::with_products(10);
    let gate = Gate::new("slow/1");
    database.add_table("slow", 2);
    let config = Config::new(database.path())
        .set("source.reads_in_flight", "1")
        .collection("slow")
        .collection("products")
        .gate(&gate);
    let server = Server::start(&config);
    let mut holding = server.client();
    holding.send("GET /slow/1 HTTP/1.1\r\nHost: h\r\n\r\n");
    await_until("the read to start", SOON, || counted(&server, "hotrow_queries_in_flight") == 1.0);
    let mut client = server.client();
    // Requests to the same and to another collection: the limit applies to the source.
    for path in ["/slow/2", "/products/2", "/products?ids=3,4"] {
        let answer = client.get_with(path, &[("Hotrow-Deadline-Ms", "60")]);
        assert_eq!(answer.problem(504).0, "Timed out", "{path}");
    }
    assert_eq!(counted(&server, "hotrow_queries_in_flight"), 1.0, "the slow read still runs");
    gate.open();
    assert_eq!(holding.answer().status, 200);
    assert_eq!(client.get_with("/products/5", &[("Hotrow-Deadline-Ms", "3000")]).status, 200);
    assert_eq!(
        counted(&server, "hotrow_batch_keys_total"),
        2.0,
        "none of the four others was read"
    );
    assert_eq!(
        client.get_with("/products/5", &[("Hotrow-Deadline-Ms", "0")]).cache(),
        "hit",
        "a hit needs no time"
    );
}

#[test]
fn the_time_of_receiving_a_body_does_not_count_as_database_time() {
    const BODY: &str = r#"{"ids":[1,2]}"#;
    let database = Database::with_products(3);
    let config =
        Config::new(database.path()).collection("products").set("limits.request_timeout", "\"2s\"");
    let server = Server::start(&config);
    let mut client = server.client();
    client.send(format!(
        "POST /products HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n",
        BODY.len()
    ));
    std::thread::sleep(Duration::from_millis(2200));
    client.send(BODY);
    let answer = client.answer();
    assert_eq!((answer.status, answer.cache()), (200, "miss"), "{answer:?}");
}

#[test]
fn an_invalid_deadline_is_refused_unless_the_header_is_off() {
    let database = Database::with_products(3);
    let config = Config::new(database.path()).collection("products");
    let server = Server::start(&config);
    for bad in ["", "-1", "1.5", "soon", "1000000000", "250m"] {
        for path in ["/products/2", "/products?ids=1,2"] {
            let answer = server.client().get_with(path, &[("Hotrow-Deadline-Ms", bad)]);
            assert_eq!(answer.problem(400).0, "Bad header", "{bad:?} {path}");
            assert_eq!(server.get("/products/1").status, 200);
        }
        let hit = server.client().get_with("/products/1", &[("Hotrow-Deadline-Ms", bad)]);
        assert_eq!(hit.cache(), "hit", "a hit needs no deadline: {bad:?}");
    }
    let off = Server::start(&config.set("limits.concurrency.deadline_header", "false"));
    assert_eq!(off.client().get_with("/products/1", &[("Hotrow-Deadline-Ms", "soon")]).status, 200);
}

#[test]
fn the_limit_is_reported_and_stays_at_its_bound_under_normal_load() {
    let database = Database::with_products(1000);
    for kind in ["gradient", "aimd", "fixed"] {
        let config = Config::new(database.path())
            .collection("products")
            .set("limits.concurrency.kind", &format!("{kind:?}"))
            .set("source.reads_in_flight", "3");
        let server = Server::start(&config);
        let mut client = server.client();
        (1..=200).for_each(|id| assert_eq!(client.get(&format!("/products/{id}")).cache(), MISS));
        let status = &server.status()["concurrency"];
        assert_eq!((&status["kind"], &status["limit"]), (&kind.into(), &3.into()), "{status}");
        assert_eq!(counted(&server, "hotrow_query_limit"), 3.0);
        assert_eq!(counted(&server, "hotrow_queue_wait_seconds_count"), 200.0);
    }
}
