//! The admin API.

use std::collections::BTreeSet;

use serde_json::Value;

use hotrow_testkit::harness::{Client, Config, Database, SOON, Server, await_until};

const TOKEN: &str = "0123456789abcdefSECRET";

fn start(settings: &[(&str, &str)]) -> (Database, Server) {
    let database = Database::with_products(10);
    let server = Server::start(&Config::new(database.path()).collection("products").with(settings));
    (database, server)
}

#[test]
fn health_metrics_status_and_page_exist_and_nothing_else() {
    let (_database, server) = start(&[]);
    let mut admin = server.admin_client();
    for (path, kind) in [
        ("/healthz", "text/plain; charset=utf-8"),
        ("/readyz", "application/json"),
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8"),
        ("/status", "application/json"),
        ("/history", "application/json"),
        ("/hot-keys", "application/json"),
        ("/", "text/html; charset=utf-8"),
    ] {
        let answer = admin.get(path);
        assert_eq!((answer.status, answer.header("content-type")), (200, Some(kind)), "{path}");
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}");
        let head = admin.request("HEAD", path, &[], b"");
        assert_eq!((head.status, head.body.len()), (200, 0), "{path}");
        for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
            let refused = admin.request(method, path, &[], b"");
            refused.problem(405);
            assert_eq!(refused.header("allow"), Some("GET, HEAD"), "{method} {path}");
        }
    }
    for path in
        ["/nothing", "/metrics/", "/purge", "/status/products", "/products/1", "/products?ids=1"]
    {
        assert_eq!(admin.get(path).problem(404).0, "No such path", "{path}");
    }
    let mut data = server.client();
    for path in ["/healthz", "/readyz", "/metrics", "/status", "/history", "/hot-keys"] {
        data.get(path).problem(404);
    }
    data.post("/purge/products", "").problem(404);
}

#[test]
fn status_has_its_documented_shape() {
    let (_database, server) =
        start(&[("limits.max_batch", "7"), ("cache.when_stale", "\"stale\"")]);
    let mut client = server.client();
    client.get("/products/1");
    client.get("/products/1");
    client.get("/products/99");
    client.get("/products/99");
    let status = server.status();
    let kind = |pointer: &str| match status.pointer(pointer) {
        Some(Value::Number(_)) => "number",
        Some(Value::Bool(_)) => "bool",
        Some(Value::String(_)) => "string",
        Some(Value::Object(_)) => "object",
        _ => "nothing",
    };
    for (pointer, expected) in [
        ("/version", "string"),
        ("/uptime_s", "number"),
        ("/cache/enabled", "bool"),
        ("/cache/entries", "number"),
        ("/cache/bytes", "number"),
        ("/cache/capacity_bytes", "number"),
        ("/sources/default/feed/current", "bool"),
        ("/sources/default/feed/staleness_ms", "number"),
        ("/sources/default/feed/max_staleness_ms", "number"),
        ("/sources/default/feed/when_stale", "string"),
        ("/sources/default/feed/position", "string"),
        ("/sources/default/feed/changes", "number"),
        ("/sources/default/feed/starts", "number"),
        ("/sources/default/feed/gaps", "number"),
        ("/sources/default/feed/watch", "string"),
        ("/sources/default/reachable", "bool"),
        ("/sources/default/queries", "number"),
        ("/requests/waiting", "number"),
        ("/requests/privileged_waiting", "number"),
        ("/connections", "number"),
        ("/limits/max_batch", "number"),
        ("/limits/waiting_keys", "number"),
        ("/overload/breaker", "string"),
        ("/overload/level", "string"),
        ("/overload/pressure", "object"),
        ("/overload/shedding", "bool"),
        ("/collections/products/evictions", "object"),
        ("/collections/products/hit_ratio", "number"),
        ("/collections/products/staleness_ms", "number"),
    ] {
        assert_eq!(kind(pointer), expected, "{pointer} in {status:#}");
    }
    let products = &status["collections"]["products"];
    for (member, expected) in [
        ("hits", 1),
        ("negative", 1),
        ("misses", 2),
        ("coalesced", 0),
        ("entries", 2),
        ("negative_entries", 1),
        ("queries", 2),
    ] {
        assert_eq!(products[member], expected, "{member} in {status:#}");
    }
    assert_eq!(
        (&status["sources"]["default"]["feed"]["when_stale"], &status["limits"]["max_batch"]),
        (&"stale".into(), &7.into())
    );
    assert!(
        products["bytes"].as_u64().unwrap() > 50 && status["cache"]["bytes"].as_u64().unwrap() > 50
    );
    assert_eq!(products["hit_ratio"], 0.5);
    let top: BTreeSet<&str> = status.as_object().unwrap().keys().map(String::as_str).collect();
    let expected = [
        "access",
        "admin",
        "budgets",
        "cache",
        "changes",
        "collections",
        "concurrency",
        "configuration",
        "connections",
        "limits",
        "miss_ratio_curve",
        "overload",
        "purges",
        "readiness",
        "redis",
        "requests",
        "sources",
        "uptime_s",
        "version",
        "warm_start",
    ];
    assert_eq!(top, BTreeSet::from(expected));
}

#[test]
fn metrics_count_the_requests() {
    let (_database, server) = start(&[]);
    let mut client = server.client();
    for path in [
        "/products/1",
        "/products/1",
        "/products/1",
        "/products/99",
        "/products/x",
        "/products?ids=1,2",
    ] {
        client.get(path);
    }
    let metrics = server.metrics();
    let requests = |labels: &[(&str, &str)]| metrics.sum("hotrow_http_requests_total", labels);
    assert_eq!(requests(&[]), 6.0);
    assert_eq!(requests(&[("status", "200"), ("cache", "hit")]), 2.0);
    assert_eq!(requests(&[("status", "200"), ("cache", "miss")]), 2.0);
    assert_eq!(requests(&[("status", "404")]), 1.0);
    assert_eq!(requests(&[("status", "400")]), 1.0);
    let durations =
        |cache| metrics.sum("hotrow_http_request_duration_seconds_count", &[("cache", cache)]);
    assert_eq!((durations("hit"), durations("miss")), (2.0, 3.0));
    let lookups = |result| metrics.sum("hotrow_lookups_total", &[("outcome", result)]);
    assert_eq!((lookups("hit"), lookups("miss"), lookups("negative")), (3.0, 3.0, 0.0));
    assert_eq!(metrics.sum("hotrow_distinct_ids", &[("day", "today")]), 3.0);
    assert_eq!(metrics.sum("hotrow_source_queries_total", &[]), 3.0);
    assert_eq!(metrics.sum("hotrow_cache_entries", &[]), 3.0);
    assert_eq!(metrics.sum("hotrow_feed_current", &[]), 1.0);
    assert!(metrics.sum("hotrow_feed_staleness_seconds", &[]) < 1.0);
    assert_eq!(metrics.sum("hotrow_build_info", &[("version", env!("CARGO_PKG_VERSION"))]), 1.0);
}

#[test]
fn purge_drops_one_record_or_all() {
    let (_database, server) = start(&[]);
    let mut client = server.client();
    let mut admin = server.admin_client();
    let cached = |client: &mut Client, path: &str| client.get(path).cache().to_owned();
    for path in ["/products/1", "/products/2", "/products/99"] {
        client.get(path);
    }
    let purged = admin.change("/purge/products/1", "");
    assert_eq!(purged.json(), serde_json::json!({"purged": "record", "was_cached": true}));
    assert_eq!(admin.change("/purge/products/5", "").json()["was_cached"], false);
    assert_eq!(
        (cached(&mut client, "/products/1"), cached(&mut client, "/products/2")),
        ("miss".into(), "hit".into())
    );
    assert_eq!(
        admin.change("/purge/products/99", "").json()["was_cached"],
        true,
        "negative entries, too"
    );
    assert_eq!(cached(&mut client, "/products/99"), "miss");
    assert_eq!(
        admin.change("/purge/products", "").json(),
        serde_json::json!({"purged": "collection"})
    );
    for path in ["/products/1", "/products/2", "/products/99"] {
        assert_eq!(cached(&mut client, path), "miss", "{path}");
        assert_eq!(cached(&mut client, path), "hit", "{path}");
    }
    assert_eq!(admin.change("/purge/products/x", "").problem(400).0, "Bad id");
    assert_eq!(admin.change("/purge/nothing", "").problem(404).0, "No such collection");
    assert_eq!(admin.change("/purge/nothing/1", "").problem(404).0, "No such collection");
    for path in ["/purge/products", "/purge/products/1"] {
        let refused = admin.get(path);
        refused.problem(405);
        assert_eq!(refused.header("allow"), Some("POST"));
    }
    assert_eq!(cached(&mut client, "/products/1"), "hit", "a refused purge purges nothing");
    let metrics = server.metrics();
    assert_eq!(metrics.sum("hotrow_cache_evictions_total", &[("cause", "purged")]), 2.0);
}

#[test]
fn the_token_protects_everything_but_health() {
    let (_database, server) = start(&[("admin.token", &format!("\"{TOKEN}\""))]);
    let mut admin = server.admin_client();
    for path in ["/healthz", "/readyz"] {
        assert_eq!(admin.get(path).status, 200, "{path}");
    }
    // `Basic` with the token as password; the user name does not matter.
    let basic = "Basic YWRtaW46MDEyMzQ1Njc4OWFiY2RlZlNFQ1JFVA==";
    let no_name = "Basic OjAxMjM0NTY3ODlhYmNkZWZTRUNSRVQ=";
    let bearer = format!("Bearer {TOKEN}");
    let wrong = [
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        &format!("Bearer {TOKEN}x"),
        &format!("Bearer {}", &TOKEN[1..]),
        TOKEN,
        "Basic",
        "Basic !!!",
        "Basic YWRtaW46d3Jvbmc=",
        "Digest x",
    ];
    for path in ["/metrics", "/status", "/history", "/hot-keys", "/"] {
        for right in [&bearer, basic, no_name] {
            assert_eq!(
                admin.get_with(path, &[("Authorization", right)]).status,
                200,
                "{path} {right}"
            );
        }
        for wrong in wrong {
            let refused = admin.get_with(path, &[("Authorization", wrong)]);
            refused.problem(401);
            assert!(refused.header("www-authenticate").is_some());
            assert!(!refused.text().contains(TOKEN));
        }
        admin.get(path).problem(401);
    }
    let mut client = server.client();
    client.get("/products/1");
    for path in ["/purge/products", "/purge/products/1"] {
        admin.change(path, "").problem(401);
        assert_eq!(client.get("/products/1").cache(), "hit");
    }
    assert_eq!(
        admin
            .request(
                "POST",
                "/purge/products",
                &[("Authorization", &bearer), ("Hotrow-Admin", "1")],
                b""
            )
            .status,
        200
    );
    assert_eq!(client.get("/products/1").cache(), "miss");
    assert!(!server.log().contains(TOKEN), "the token is never logged");
}

#[test]
fn a_purged_record_and_a_changed_one_are_distinguished() {
    let (database, server) = start(&[]);
    let mut client = server.client();
    client.get("/products/1");
    client.get("/products/2");
    server.admin_client().change("/purge/products/1", "");
    database.execute("UPDATE products SET price = 0 WHERE id = 2");
    let evicted =
        |cause: &str| server.status()["collections"]["products"]["evictions"][cause].clone();
    await_until("the change", SOON, || evicted("invalidated") == 1);
    assert_eq!(evicted("purged"), 1);
}
