//! Requests for one record: every status and header of the contract.

use hotrow_testkit::harness::{Config, Database, Server};

const BODY: &str = r#"{"id":1,"name":"p1","price":100}"#;

fn products(database: &Database) -> Config {
    Config::new(database.path()).collection("products")
}

#[test]
fn a_record_is_answered_with_exactly_the_headers_of_the_contract() {
    let database = Database::with_products(3);
    let server = Server::start(&products(&database));
    let mut client = server.client();
    for cache in ["miss", "hit", "hit"] {
        let answer = client.get("/products/1");
        assert_eq!((answer.status, answer.text().as_str()), (200, BODY));
        assert_eq!(answer.cache(), cache);
        let mut names: Vec<&str> = answer.headers.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        let expected = [
            "age",
            "cache-control",
            "content-length",
            "content-type",
            "date",
            "etag",
            "hotrow-cache",
            "hotrow-position",
            "vary",
        ];
        assert_eq!(names, expected);
        assert_eq!(answer.version, "HTTP/1.1");
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.header("content-length"), Some(BODY.len().to_string().as_str()));
        assert_eq!(answer.header("cache-control"), Some("no-cache"));
        assert_eq!(answer.header("age"), Some("0"));
        let etag = answer.header("etag").unwrap();
        let digits = etag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).unwrap();
        assert!(
            digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_hexdigit()),
            "strong: {etag}"
        );
        let _grammar = answer.position();
    }
}

#[test]
fn head_is_get_without_the_body() {
    let database = Database::with_products(3);
    let server = Server::start(&products(&database));
    let mut client = server.client();
    for path in ["/products/1", "/products/999", "/products/x", "/nothing/1", "/products?ids=1,999"]
    {
        let full = client.get(path);
        let head = client.request("HEAD", path, &[], b"");
        assert_eq!(head.status, full.status, "{path}");
        assert!(head.body.is_empty());
        for name in ["content-length", "content-type", "etag", "cache-control", "hotrow-position"] {
            assert_eq!(head.header(name), full.header(name), "{path}: {name}");
        }
    }
    // An uncached record too: no part of a body is left on the connection.
    assert_eq!(client.request("HEAD", "/products/2", &[], b"").cache(), "miss");
    assert_eq!(client.get("/products/2").cache(), "hit");
}

#[test]
fn if_none_match_is_answered_304() {
    let database = Database::with_products(3);
    let server = Server::start(&products(&database));
    let mut client = server.client();
    let full = client.get("/products/1");
    let etag = full.header("etag").unwrap().to_owned();
    let weak = format!("W/{etag}");
    let list = format!("\"x\" ,W/\"y\",{etag}");
    for tags in [etag.as_str(), "*", &weak, &list] {
        let answer = client.get_with("/products/1", &[("If-None-Match", tags)]);
        assert_eq!(answer.status, 304, "{tags}");
        assert_eq!(answer.header("etag"), Some(etag.as_str()));
        assert_eq!(answer.header("cache-control"), Some("no-cache"));
        assert_eq!((answer.cache(), answer.header("age")), ("hit", Some("0")));
        assert_eq!(answer.position(), full.position());
        assert_eq!(answer.header("content-type"), None);
    }
    let two_lines =
        client.get_with("/products/1", &[("If-None-Match", "\"x\""), ("If-None-Match", &etag)]);
    assert_eq!(two_lines.status, 304);
    let head = client.request("HEAD", "/products/1", &[("If-None-Match", &etag)], b"");
    assert_eq!(head.status, 304);
    for tags in ["\"x\"", "", &etag[1..17], "W/\"x\", \"y\""] {
        assert_eq!(
            client.get_with("/products/1", &[("If-None-Match", tags)]).status,
            200,
            "{tags}"
        );
    }
    // A missing record: no tag matches, not even `*`.
    for tags in [etag.as_str(), "*"] {
        assert_eq!(client.get_with("/products/999", &[("If-None-Match", tags)]).status, 404);
    }
}

#[test]
fn a_missing_record_is_404_and_the_second_time_from_the_cache() {
    let database = Database::with_products(3);
    let server = Server::start(&products(&database));
    let mut client = server.client();
    for cache in ["miss", "hit"] {
        let answer = client.get("/products/999");
        assert_eq!(answer.problem(404).0, "No such record");
        assert_eq!((answer.cache(), answer.header("age")), (cache, Some("0")));
        assert_eq!(answer.header("cache-control"), Some("no-cache"));
        assert_eq!(answer.header("etag"), None);
        let _grammar = answer.position();
    }
    assert_eq!(server.queries(), 1);
    for (path, title) in [
        ("/nothing/1", "No such collection"),
        ("/Products/1", "No such collection"),
        ("/nothing?ids=1", "No such collection"),
        ("/products/1/", "No such path"),
        ("/products/1/2", "No such path"),
        ("//1", "No such path"),
    ] {
        let answer = client.get(path);
        assert_eq!(answer.problem(404).0, title, "{path}");
        assert_eq!(answer.header("hotrow-cache"), None, "{path}: nothing was looked up");
    }
}

#[test]
fn other_methods_are_405_with_allow_on_every_route() {
    let database = Database::with_products(3);
    let server = Server::start(&products(&database));
    let mut client = server.client();
    let methods = ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"];
    for (path, allow, also) in [
        ("/products/1", "GET, HEAD", Some("POST")),
        ("/products", "GET, HEAD, POST", None),
        ("/products/x", "GET, HEAD", Some("POST")),
    ] {
        for method in methods.into_iter().chain(also) {
            let answer = client.request(method, path, &[], b"");
            assert_eq!(answer.problem(405).0, "Method not allowed", "{method} {path}");
            assert_eq!(answer.header("allow"), Some(allow), "{method} {path}");
        }
    }
    for method in methods {
        assert_eq!(
            client.request(method, "/nothing/1", &[], b"").status,
            404,
            "{method}: the path has priority"
        );
    }
    // Methods are case-sensitive (RFC 9110, section 9.1).
    assert_eq!(client.request("get", "/products/1", &[], b"").status, 405);
    assert_eq!(server.queries(), 0);
}

#[test]
fn two_instances_give_a_record_the_same_etag_and_different_records_different_ones() {
    let database = Database::with_products(3);
    let one = Server::start(&products(&database));
    let two = Server::start(&products(&database));
    let etag = |server: &Server, path: &str| server.get(path).header("etag").unwrap().to_owned();
    assert_eq!(etag(&one, "/products/1"), etag(&two, "/products/1"));
    assert_ne!(etag(&one, "/products/1"), etag(&one, "/products/2"));
    assert_eq!(
        one.get("/products/1").position().incarnation,
        two.get("/products/1").position().incarnation
    );
}

#[test]
fn cache_control_and_columns_are_as_configured() {
    let database = Database::with_products(3);
    let control = "public, max-age=5";
    let config = products(&database)
        .set("collections.products.cache_control", &format!("\"{control}\""))
        .set("collections.products.columns", r#"["price", "id"]"#)
        .set("collections.names.table", "\"products\"")
        .set("collections.names.exclude", r#"["price"]"#);
    let server = Server::start(&config);
    let mut client = server.client();
    let answer = client.get("/products/1");
    assert_eq!(answer.text(), r#"{"price":100,"id":1}"#);
    assert_eq!(answer.header("cache-control"), Some(control));
    assert_eq!(client.get("/products/9").header("cache-control"), Some(control));
    assert_eq!(client.get("/products?ids=1").header("cache-control"), Some(control));
    let etag = answer.header("etag").unwrap();
    let unchanged = client.get_with("/products/1", &[("If-None-Match", etag)]);
    assert_eq!((unchanged.status, unchanged.header("cache-control")), (304, Some(control)));
    let other = client.get("/names/1");
    assert_eq!(other.text(), r#"{"id":1,"name":"p1"}"#);
    assert_eq!(other.header("cache-control"), Some("no-cache"));
}

#[test]
fn every_storage_class_has_its_json_form() {
    let database = Database::new();
    database.execute(
        "CREATE TABLE things(id INTEGER PRIMARY KEY, v);
         INSERT INTO things VALUES (1, NULL), (2, 9223372036854775807), (3, -0.5),
             (4, 'a\"\\ü' || char(10)), (5, x'00ff'),
             (6, 1e300 * 1e300), (7, 3.0), (8, ''), (9, CAST(x'61ff62' AS TEXT))",
    );
    let server = Server::start(&Config::new(database.path()).collection("things"));
    let mut client = server.client();
    for (id, value) in [
        (1, "null"),
        (2, "9223372036854775807"),
        (3, "-0.5"),
        (4, r#""a\"\\ü\n""#),
        (7, "3.0"),
        (8, r#""""#),
    ] {
        let answer = client.get(&format!("/things/{id}"));
        assert_eq!((answer.status, answer.text()), (200, format!(r#"{{"id":{id},"v":{value}}}"#)));
    }
    // Bytes, infinities and invalid UTF-8 have a documented form; here they must be JSON, and the
    // same each time.
    for id in [5, 6, 9] {
        let answer = client.get(&format!("/things/{id}"));
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(answer.json()["v"].is_string() || answer.json()["v"].is_null(), "{answer:?}");
    }
}

#[cfg(feature = "failpoints")]
#[test]
fn the_first_request_reads_the_second_waits_and_the_third_hits() {
    use hotrow_testkit::harness::{Gate, SOON, await_until};
    let database = Database::new();
    let gate = Gate::new("slow/1");
    database.add_table("slow", 1);
    let server = Server::start(&Config::new(database.path()).collection("slow").gate(&gate));
    let mut first = server.client();
    let mut second = server.client();
    first.send("GET /slow/1 HTTP/1.1\r\nHost: h\r\n\r\n");
    let sum = |metric: &str| server.metrics().sum(metric, &[]);
    await_until("the read to begin", SOON, || sum("hotrow_queries_in_flight") > 0.0);
    second.send("GET /slow/1 HTTP/1.1\r\nHost: h\r\n\r\n");
    await_until("both to wait", SOON, || sum("hotrow_requests_waiting") == 2.0);
    gate.open();
    let first = first.answer();
    let second = second.answer();
    assert_eq!((first.cache(), second.cache()), ("miss", "coalesced"));
    assert_eq!(first.body, second.body);
    assert_eq!(server.get("/slow/1").cache(), "hit");
    assert_eq!(server.queries(), 1);
}
