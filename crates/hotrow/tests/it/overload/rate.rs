//! Rate limits: the size of a burst, the content of a refusal, the counted client, and changes by
//! operators.

use std::time::{Duration, Instant, SystemTime};

use crate::overload::forwarding::Nginx;
use hotrow_testkit::harness::{Answer, Client, Config, Database, SOON, Server, await_until};

const TOKEN: &str = "a-token-of-20-chars!";

fn start(settings: &[(&str, &str)]) -> (Database, Server) {
    let database = Database::with_products(100);
    let server = Server::start(&Config::new(database.path()).collection("products").with(settings));
    assert_eq!(server.get("/products/1").status, 200, "the first is always admitted");
    (database, server)
}

/// Sends requests and returns how many were answered 200; all others must be 429.
fn admitted(client: &mut Client, requests: usize, headers: &[(&str, &str)]) -> usize {
    let statuses = (0..requests).map(|_| client.get_with("/products/1", headers).status);
    let (ok, refused): (Vec<u16>, Vec<u16>) = statuses.partition(|status| *status == 200);
    assert!(refused.iter().all(|status| *status == 429), "{refused:?}");
    ok.len()
}

/// Parses a list of items of structured fields (RFC 9651): a name in quotes, then whole numbers by
/// parameter.
fn items(field: &str) -> Vec<(String, Vec<(String, u64)>)> {
    let item = |text: &str| {
        let (name, parameters) = text.strip_prefix('"').expect(text).split_once('"').expect(text);
        let parameters = parameters.split(';').skip(1).map(|pair| {
            let (key, number) = pair.split_once('=').expect(text);
            assert!(key.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{text}");
            (key.to_owned(), number.parse().expect(text))
        });
        (name.to_owned(), parameters.collect())
    };
    field.split(", ").map(item).collect()
}

fn numbers(pairs: &[(&str, u64)]) -> Vec<(String, u64)> {
    pairs.iter().map(|(key, number)| ((*key).to_owned(), *number)).collect()
}

fn retry_after_s(answer: &Answer) -> u64 {
    answer.header("retry-after").expect("Retry-After").parse().expect("whole seconds")
}

#[test]
fn a_burst_gets_exactly_its_size_and_then_a_complete_429() {
    let (_database, server) =
        start(&[("limits.rate.clients.rate", "\"6/m\""), ("limits.rate.clients.burst", "20")]);
    let mut client = server.client();
    assert_eq!(admitted(&mut client, 40, &[]), 19, "one was spent on the first");
    let refused = client.get("/products/1");
    let (title, detail) = refused.problem(429);
    assert_eq!(title, "Too many requests");
    assert_eq!(detail, "the limit \"clients\" allows 6/m and bursts of 20");
    let wait_s = retry_after_s(&refused);
    assert!((1..=10).contains(&wait_s), "{wait_s}");
    let policy = numbers(&[("q", 6), ("w", 60), ("hotrow-burst", 20)]);
    assert_eq!(
        items(refused.header("ratelimit-policy").unwrap()),
        [("clients".to_owned(), policy)]
    );
    let limit = numbers(&[("r", 0), ("t", wait_s)]);
    assert_eq!(items(refused.header("ratelimit").unwrap()), [("clients".to_owned(), limit)]);
    let head = client.request("HEAD", "/products/1", &[], b"");
    assert_eq!((head.status, head.body.len()), (429, 0));
    // A second may have passed.
    assert!((wait_s.saturating_sub(1)..=wait_s).contains(&retry_after_s(&head)), "{head:?}");
    let missing = client.get("/products/no-id");
    assert_eq!(missing.status, 429, "an invalid id costs as much as a valid one");
    assert_eq!(client.get("/nothing/1").status, 404, "an unknown collection costs nothing");
    let metrics = server.metrics();
    assert_eq!(metrics.sum("hotrow_rate_limited_total", &[("rule", "clients")]), 24.0);
    assert_eq!(metrics.sum("hotrow_rate_keys", &[("rule", "clients")]), 1.0);
    assert_eq!(metrics.sum("hotrow_http_requests_total", &[("status", "429")]), 24.0);
    let rule = &server.status()["limits"]["rate"]["clients"];
    assert_eq!(
        (&rule["rate"], &rule["burst"], &rule["limited"]),
        (&"6/m".into(), &20.into(), &24.into())
    );
    assert_eq!(server.admin_client().get("/healthz").status, 200, "the admin side is not limited");
}

#[test]
fn a_client_that_waits_for_retry_after_is_admitted() {
    let (_database, server) =
        start(&[("limits.rate.clients.rate", "\"1/s\""), ("limits.rate.clients.burst", "3")]);
    let mut client = server.client();
    admitted(&mut client, 5, &[]);
    let wait_s = retry_after_s(&client.get("/products/1"));
    assert_eq!(wait_s, 1);
    // Retry-After is a time, so the test must wait.
    std::thread::sleep(Duration::from_secs(wait_s));
    assert_eq!(client.get("/products/1").status, 200);
}

#[test]
fn values_of_a_header_have_budgets_of_their_own() {
    let rule =
        [("limits.rate.keys.rate", "\"5/h\""), ("limits.rate.keys.per", "\"header:X-Api-Key\"")];
    let (_database, server) = start(&rule);
    let mut client = server.client();
    assert_eq!(admitted(&mut client, 9, &[("X-Api-Key", "a")]), 5);
    assert_eq!(admitted(&mut client, 9, &[("x-api-key", "b")]), 5);
    assert_eq!(
        admitted(&mut client, 9, &[]),
        4,
        "requests without the header share one, of which the first took some"
    );
    assert_eq!(admitted(&mut client, 9, &[("X-Api-Key", "a")]), 0);
}

#[test]
fn a_batch_costs_its_ids_or_one() {
    let by_ids = [("limits.rate.clients.rate", "\"10/h\""), ("limits.rate.clients.burst", "101")];
    let (_database, server) = start(&by_ids);
    let mut client = server.client();
    assert_eq!(client.get("/products?ids=1,2,3,4,5,6,7,8,9,9,9").status, 200, "nine distinct ids");
    let ids: Vec<u32> = (1..=90).collect();
    let body = serde_json::json!({ "ids": ids }).to_string();
    assert_eq!(client.post("/products", &body).status, 200);
    let refused = client.get("/products?ids=1,2");
    refused.problem(429);
    assert_eq!(items(refused.header("ratelimit").unwrap())[0].1[0], ("r".to_owned(), 1));
    client.post("/products", &body).problem(429);
    assert_eq!((client.get("/products/1").status, client.get("/products/1").status), (200, 429));
    let mut by_request = by_ids.to_vec();
    by_request[1].1 = "3";
    by_request.push(("limits.rate.clients.batch_cost", "\"request\""));
    let (_database, server) = start(&by_request);
    let mut client = server.client();
    let statuses: Vec<u16> = (0..3).map(|_| client.post("/products", &body).status).collect();
    assert_eq!(statuses, [200, 200, 429]);
}

#[test]
fn a_batch_beyond_every_burst_is_refused_with_the_reason() {
    let (_database, server) = start(&[("limits.rate.clients.rate", "\"5/s\"")]);
    let refused = server.get("/products?ids=1,2,3,4,5,6");
    let (_, detail) = refused.problem(400);
    assert_eq!(refused.header("retry-after"), None, "waiting does not help");
    assert!(
        detail.contains("costs 6") && detail.contains("never admits more than 5 at once"),
        "{detail}"
    );
}

#[test]
fn a_leaky_bucket_delays_and_refuses_requests_that_would_wait_too_long() {
    let (_database, server) = start(&[
        ("limits.rate.even.rate", "\"20/s\""),
        ("limits.rate.even.kind", "\"leaky_bucket\""),
        ("limits.rate.even.max_wait", "\"500ms\""),
    ]);
    let mut client = server.client();
    client.get("/products/1");
    let begun = Instant::now();
    (0..5).for_each(|_| assert_eq!(client.get("/products/1").cache(), "hit"));
    // Five intervals of 50 ms, the first of which may have started before.
    assert!(begun.elapsed() >= Duration::from_millis(200), "{:?}", begun.elapsed());
    let mut clients: Vec<Client> = (0..60).map(|_| server.client()).collect();
    clients
        .iter_mut()
        .for_each(|client| client.send("GET /products/1 HTTP/1.1\r\nHost: h\r\n\r\n"));
    let statuses: Vec<u16> = clients.iter_mut().map(|client| client.answer().status).collect();
    let refused = statuses.iter().filter(|status| **status == 429).count();
    assert!(statuses.iter().all(|status| matches!(status, 200 | 429)), "{statuses:?}");
    // Ten wait for at most 500 ms; on a slow machine some are admitted before the last is sent.
    assert!((1..=50).contains(&refused), "{statuses:?}");
    assert!(server.metrics().sum("hotrow_rate_delayed_total", &[("rule", "even")]) >= 10.0);
}

#[test]
fn a_request_over_the_limit_is_refused_before_its_body_is_read() {
    let (_database, server) = start(&[("limits.rate.clients.rate", "\"1/h\"")]);
    let mut client = server.client();
    client.send("POST /products HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n");
    client.answer().problem(429);
}

#[test]
fn a_turn_after_the_deadline_is_not_waited_for() {
    let (_database, server) = start(&[
        ("limits.rate.even.rate", "\"6/m\""),
        ("limits.rate.even.kind", "\"leaky_bucket\""),
        ("limits.rate.even.max_wait", "\"60s\""),
        ("limits.request_timeout", "\"5s\""),
    ]);
    // The turn is ten seconds after the first; then twenty, with a deadline from the client.
    for headers in [&[][..], &[("Hotrow-Deadline-Ms", "3000")]] {
        let begun = Instant::now();
        let (title, detail) = server.client().get_with("/products/1", headers).problem(503);
        assert!(title == "Overloaded" && detail.contains("beyond its deadline"), "{detail}");
        assert!(begun.elapsed() < Duration::from_secs(3), "at once");
    }
}

#[test]
fn delayed_requests_are_bounded() {
    let (_database, server) = start(&[
        ("limits.rate.even.rate", "\"20/m\""),
        ("limits.rate.even.kind", "\"leaky_bucket\""),
        ("limits.rate.even.max_wait", "\"60s\""),
        ("limits.requests_in_flight", "2"),
        ("limits.request_timeout", "\"60s\""),
    ]);
    let mut held: Vec<Client> = (0..2).map(|_| server.client()).collect();
    held.iter_mut().for_each(|client| client.send("GET /products/1 HTTP/1.1\r\nHost: h\r\n\r\n"));
    await_until("two to wait", SOON, || {
        server.metrics().sum("hotrow_requests_waiting", &[]) == 2.0
    });
    assert_eq!(server.get("/products/1").problem(503).0, "Overloaded");
    drop(held);
    // Their places are freed at their turns, because a client that has closed its sending side may
    // still want its answer.
    await_until("the abandoned requests to free their places", SOON, || {
        server.metrics().sum("hotrow_requests_waiting", &[]) == 0.0
    });
}

#[test]
fn a_fixed_window_ends_on_the_hour() {
    let (_database, server) = start(&[
        ("limits.rate.hourly.rate", "\"7/h\""),
        ("limits.rate.hourly.kind", "\"fixed_window\""),
    ]);
    let to_the_hour = || {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        3600 - unix.as_secs() % 3600
    };
    let before = to_the_hour();
    let mut client = server.client();
    let admitted_count = admitted(&mut client, 20, &[]);
    let wait_s = retry_after_s(&client.get("/products/1"));
    let after = to_the_hour();
    if after > before {
        // The hour ended during the test: the new window may be partly used.
        return assert!(admitted_count <= 14 && wait_s <= 3600);
    }
    assert_eq!(admitted_count, 6);
    assert!((after..=before + 1).contains(&wait_s), "{wait_s} is not between {after} and {before}");
}

#[test]
fn several_rules_must_all_admit() {
    let (_database, server) = start(&[
        ("limits.rate.all.rate", "\"12/h\""),
        ("limits.rate.all.per", "\"global\""),
        ("limits.rate.each.rate", "\"5/h\""),
        ("limits.rate.each.per", "\"header:X-Api-Key\""),
    ]);
    let mut client = server.client();
    assert_eq!(admitted(&mut client, 50, &[("X-Api-Key", "a")]), 5, "by its own limit");
    assert_eq!(
        admitted(&mut client, 50, &[("X-Api-Key", "b")]),
        5,
        "refused requests took nothing from the other rules"
    );
    assert_eq!(admitted(&mut client, 50, &[("X-Api-Key", "c")]), 1, "twelve in total");
    let refused = client.get_with("/products/1", &[("X-Api-Key", "d")]);
    assert!(refused.problem(429).1.contains("\"all\""));
}

#[test]
fn admitted_answers_report_the_remaining_budget_if_configured() {
    let settings = [("limits.rate.clients.rate", "\"100/h\""), ("limits.rate.headers", "true")];
    let (_database, server) = start(&settings);
    let mut client = server.client();
    let first = client.get("/products/1");
    let etag = first.header("etag").expect("ETag").to_owned();
    let answers = [
        first,
        client.get_with("/products/1", &[("If-None-Match", &etag)]),
        client.get("/products/999"),
    ];
    for (answer, (status, left)) in answers.iter().zip([(200, 98), (304, 97), (404, 96)]) {
        assert_eq!(answer.status, status);
        let policy = items(answer.header("ratelimit-policy").expect("the policy"));
        assert_eq!(policy, [("clients".to_owned(), numbers(&[("q", 100), ("w", 3600)]))]);
        let limit = items(answer.header("ratelimit").expect("what is left"));
        assert_eq!(limit[0].1[0], ("r".to_owned(), left));
    }
    let (_database, server) = start(&settings[..1]);
    assert_eq!(server.get("/products/1").header("ratelimit"), None, "off by default");
}

#[test]
fn rules_can_be_changed_during_operation_by_authorized_requests_only() {
    let token = format!("\"{TOKEN}\"");
    let database = Database::with_products(10);
    let config = Config::new(database.path())
        .collection("products")
        .set("limits.rate.clients.rate", "\"3/h\"");
    let server = Server::start(&config.set("admin.token", &token));
    let mut client = server.client();
    assert_eq!(admitted(&mut client, 5, &[]), 3);
    let mut admin = server.admin_client();
    let bearer = format!("Bearer {TOKEN}");
    let path = "/limits/rate/clients";
    assert_eq!(admin.post(path, r#"{"burst":10}"#).status, 401);
    let fields = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    let mut post = |path: &str, body: &str| admin.request("POST", path, &fields, body.as_bytes());
    let changed = post(path, r#"{"burst":10}"#);
    let now = changed.json();
    assert_eq!(
        (changed.status, &now["rule"], &now["rate"], &now["burst"]),
        (200, &"clients".into(), &"3/h".into(), &10.into())
    );
    let until = "the process ends, or a reload finds the rule changed in the file";
    assert_eq!(now["until"], until);
    assert_eq!(admitted(&mut client, 10, &[]), 7, "ten, of which three were used");
    assert_eq!(post(path, r#"{"rate":"100/s"}"#).json()["rate"], "100/s");
    await_until("the new rate to refill", SOON, || client.get("/products/1").status == 200);
    for (path, body, status) in [
        ("/limits/rate/others", r#"{"burst":1}"#, 404),
        (path, r#"{"burst":0}"#, 400),
        (path, r#"{"rate":"fast"}"#, 400),
        (path, r#"{"speed":1}"#, 400),
        (path, "", 400),
    ] {
        post(path, body).problem(status);
    }
    let get = server.admin_client().get_with(path, &[("Authorization", &bearer)]);
    assert_eq!((get.status, get.header("allow")), (405, Some("POST")));
    await_until("the change to be logged", SOON, || {
        let log = server.log();
        log.contains("rate limit changed by request") && log.contains("100/s")
    });
}

#[test]
fn behind_a_real_nginx_each_client_counts_for_itself_and_a_forged_field_does_not_help() {
    let (_database, server) = start(&[
        ("limits.rate.clients.rate", "\"5/h\""),
        ("limits.rate.trusted_proxies", "[\"127.0.0.1\"]"),
        ("limits.rate.client_header", "\"x-forwarded-for\""),
    ]);
    let nginx = Nginx::start(server.data);
    let ask = |from: &str, forged: &str| {
        nginx.status(from, "/products/1", &format!("X-Forwarded-For: {forged}"))
    };
    let of = |from: &str, forged: &dyn Fn(usize) -> String| -> Vec<u16> {
        (0..8).map(|i| ask(from, &forged(i))).collect()
    };
    let five_of_eight = [200, 200, 200, 200, 200, 429, 429, 429];
    assert_eq!(of("127.0.0.2", &|i| format!("9.9.9.{i}")), five_of_eight);
    assert_eq!(
        of("127.0.0.3", &|i| format!("9.9.9.{i}, 127.0.0.1")),
        five_of_eight,
        "a trusted address in the claim"
    );
    assert_eq!(of("127.0.0.4", &|_| "nonsense, \"".to_owned()), five_of_eight);
    // Without the proxy, from an address that is not trusted: its header has no effect.
    let direct = |i: usize| {
        nginx.status_at(
            server.data,
            "127.0.0.5",
            "/products/1",
            &format!("X-Forwarded-For: 8.8.8.{i}"),
        )
    };
    assert_eq!((0..8).map(direct).collect::<Vec<u16>>(), five_of_eight);
}
