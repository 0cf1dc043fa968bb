//! Requests that cost a database read, if allowed: `no-cache`, and `Hotrow-Min-Position` (contract,
//! point 3).

use std::time::{Duration, Instant};

use hotrow_testkit::harness::{Client, Config, Database, SOON, Server, await_until};

fn granting(database: &Database) -> Config {
    Config::new(database.path())
        .set("collections.products.allow_no_cache", "true")
        .set("collections.products.allow_min_position", "true")
        .set("collections.plain.table", "\"products\"")
}

#[test]
fn no_cache_reads_the_database_if_allowed() {
    let database = Database::with_products(3);
    let server = Server::start(&granting(&database));
    let mut client = server.client();
    for directive in ["no-cache", "max-age=0, No-Cache"] {
        let before = server.queries();
        assert_eq!(
            client.get_with("/products/1", &[("Cache-Control", directive)]).cache(),
            "bypass"
        );
        assert_eq!(server.queries(), before + 1);
    }
    assert_eq!(client.get("/products/1").cache(), "hit", "the entry was refreshed");
    assert_eq!(client.get_with("/products/9", &[("Cache-Control", "no-cache")]).cache(), "bypass");
    for header in
        [("Cache-Control", "max-age=0"), ("Pragma", "no-cache"), ("Cache-Control", "no-cachet")]
    {
        assert_eq!(client.get_with("/products/1", &[header]).cache(), "hit", "{header:?}");
    }
    client.get("/plain/1");
    assert_eq!(
        client.get_with("/plain/1", &[("Cache-Control", "no-cache")]).cache(),
        "hit",
        "not granted: ignored"
    );
}

/// Requests product 1 with a minimum position.
fn at_least(client: &mut Client, position: &str) -> hotrow_testkit::harness::Answer {
    client.get_with("/products/1", &[("Hotrow-Min-Position", position)])
}

#[test]
fn a_writer_sees_its_own_writes_at_once_on_every_instance() {
    let database = Database::with_products(50);
    let servers = [Server::start(&granting(&database)), Server::start(&granting(&database))];
    let mut clients = servers.each_ref().map(Server::client);
    let log = clients[0].get("/products/1").position();
    for client in &mut clients {
        for id in 1..=50 {
            client.get(&format!("/products/{id}"));
        }
    }
    for round in 1..=300 {
        let id = round % 50 + 1;
        database.execute(&format!("UPDATE products SET price = {round} WHERE id = {id}"));
        let token = log.with(database.log_end()).to_string();
        let headers = [("Hotrow-Min-Position", token.as_str())];
        for client in &mut clients {
            let answer = client.get_with(&format!("/products/{id}"), &headers);
            assert_eq!(
                (answer.status, &answer.json()["price"]),
                (200, &serde_json::json!(round)),
                "{answer:?}"
            );
            assert!(answer.position().at >= log.with(0).at);
        }
        let batch = clients[round % 2].get_with(&format!("/products?ids=7,{id}"), &headers);
        assert_eq!(batch.json()["items"][id.to_string()]["price"], round);
        let posted = clients[round % 2].request(
            "POST",
            "/products",
            &headers,
            format!("{{\"ids\":[{id}]}}").as_bytes(),
        );
        assert_eq!(posted.json()["items"][id.to_string()]["price"], round);
    }
    database.execute("DELETE FROM products WHERE id = 1");
    let token = log.with(database.log_end()).to_string();
    for client in &mut clients {
        assert_eq!(at_least(client, &token).status, 404);
    }
}

#[test]
fn a_position_is_a_session_token_between_instances() {
    let database = Database::with_products(3);
    let servers = [Server::start(&granting(&database)), Server::start(&granting(&database))];
    let mut clients = servers.each_ref().map(Server::client);
    clients.iter_mut().for_each(|client| assert_eq!(client.get("/products/1").status, 200));
    for round in 1..=100 {
        database.execute(&format!("UPDATE products SET price = {round} WHERE id = 1"));
        let seen = clients[round % 2].get_with("/products/1", &[("Cache-Control", "no-cache")]);
        assert_eq!(seen.json()["price"], round);
        let token = seen.position().to_string();
        let there = at_least(&mut clients[(round + 1) % 2], &token);
        assert_eq!(there.json()["price"], round, "the other instance, with {token}: {there:?}");
        // The token is in a 304 too.
        let etag = there.header("etag").unwrap().to_owned();
        let headers = [("Hotrow-Min-Position", token.as_str()), ("If-None-Match", &etag)];
        let unchanged = clients[round % 2].get_with("/products/1", &headers);
        assert_eq!(unchanged.status, 304);
        let _grammar = unchanged.position();
    }
}

#[test]
fn positions_that_cannot_be_reached_are_refused() {
    let database = Database::with_products(3);
    let server = Server::start(&granting(&database).set("limits.position_wait", "\"50ms\""));
    let mut client = server.client();
    let here = client.get("/products/1").position();
    for malformed in [
        "",
        "7",
        "-",
        "x-1",
        "0123456789abcdef",
        "0123456789abcdef-",
        "0123456789abcdef--1",
        "0123456789abcdef-01",
        "0123456789ABCDEF-1",
        "123456789abcdef-1",
        "0123456789abcdef-18446744073709551616",
        "0123456789abcdef-1 x",
    ] {
        assert_eq!(at_least(&mut client, malformed).problem(400).0, "Bad header", "{malformed:?}");
    }
    let incarnation = if here.incarnation == "0123456789abcdef" {
        "f".repeat(16)
    } else {
        "0123456789abcdef".to_owned()
    };
    let foreign = at_least(&mut client, &format!("{incarnation}-1"));
    assert!(foreign.problem(400).1.contains("another database"), "{foreign:?}");
    let begun = Instant::now();
    let beyond = at_least(&mut client, &here.with(database.log_end() + 1_000).to_string());
    assert_eq!(beyond.problem(504).0, "Timed out");
    assert!(begun.elapsed() >= Duration::from_millis(50), "it waited for the feed first");
    assert_eq!(at_least(&mut client, &here.with(u64::MAX).to_string()).status, 504);
    for path in ["/plain/1", "/plain?ids=1"] {
        let answer = client.get_with(path, &[("Hotrow-Min-Position", &here.to_string())]);
        assert!(answer.problem(400).1.contains("allow_min_position"), "{answer:?}");
    }
    assert_eq!(at_least(&mut client, &here.to_string()).status, 200);
    // A request that waits for a position is answered after the write.
    let wanted = here.with(database.log_end() + 1).to_string();
    let patient = Server::start(&granting(&database).set("limits.position_wait", "\"15s\""));
    let mut waiting = patient.client();
    waiting.send(hotrow_testkit::harness::client::request_bytes(
        "GET",
        "/products/1",
        &[("Hotrow-Min-Position", &wanted)],
        b"",
    ));
    await_until("the request to wait", SOON, || {
        patient.metrics().sum("hotrow_privileged_waiting", &[]) == 1.0
    });
    database.execute("UPDATE products SET price = 77 WHERE id = 1");
    assert_eq!(waiting.answer().json()["price"], 77);
}

#[test]
fn waiting_requests_are_bounded() {
    let database = Database::with_products(3);
    let config = granting(&database)
        .set("limits.position_wait", "\"60s\"")
        .set("limits.privileged_waiters", "2");
    let server = Server::start(&config);
    let mut client = server.client();
    let here = client.get("/products/1").position();
    let beyond = here.with(database.log_end() + 1).to_string();
    let request = hotrow_testkit::harness::client::request_bytes(
        "GET",
        "/products/1",
        &[("Hotrow-Min-Position", &beyond)],
        b"",
    );
    let mut waiting: Vec<Client> = (0..2).map(|_| server.client()).collect();
    waiting.iter_mut().for_each(|client| client.send(&request));
    await_until("two to wait", SOON, || {
        server.metrics().sum("hotrow_privileged_waiting", &[]) == 2.0
    });
    for headers in [[("Hotrow-Min-Position", beyond.as_str())], [("Cache-Control", "no-cache")]] {
        for path in ["/products/1", "/products?ids=1"] {
            let refused = client.get_with(path, &headers);
            assert_eq!(refused.problem(503).0, "Overloaded", "{path} {headers:?}");
            assert_eq!(refused.header("retry-after"), Some("1"));
        }
    }
    assert_eq!(
        server.metrics().sum("hotrow_requests_refused_total", &[("limit", "privileged_waiters")]),
        4.0
    );
    assert_eq!(client.get("/products/2").cache(), "miss", "other requests are not refused");
    // A position that the feed has passed does not wait.
    assert_eq!(
        client.get_with("/products/1", &[("Hotrow-Min-Position", &here.to_string())]).status,
        200
    );
    database.execute("UPDATE products SET price = 5 WHERE id = 1");
    for client in &mut waiting {
        assert_eq!(client.answer().json()["price"], 5);
    }
    await_until("their places", SOON, || {
        server.metrics().sum("hotrow_privileged_waiting", &[]) == 0.0
    });
    assert_eq!(client.get_with("/products/1", &[("Cache-Control", "no-cache")]).cache(), "bypass");
}
