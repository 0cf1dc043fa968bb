//! Requests for several records, by GET and by POST.

use serde_json::{Value, json};

use hotrow_testkit::harness::{Answer, Client, Config, Database, Server};
#[cfg(feature = "failpoints")]
use hotrow_testkit::harness::{Gate, SOON, await_until, client::request_bytes};

fn product(id: u32) -> String {
    format!(r#"{{"id":{id},"name":"p{id}","price":{}}}"#, 100 * id)
}

fn start(database: &Database) -> Server {
    Server::start(&Config::new(database.path()).collection("products"))
}

/// Requests the same ids in the query and in a body.
fn both_ways(client: &mut Client, path: &str, query: &str, ids: &Value) -> [Answer; 2] {
    [
        client.get(&format!("{path}?ids={query}")),
        client.post(path, json!({ "ids": ids }).to_string()),
    ]
}

#[test]
fn found_and_missing_are_distinguished_in_the_order_of_the_request_each_once() {
    let database = Database::with_products(5);
    let server = start(&database);
    let mut client = server.client();
    for (query, ids, items, missing) in [
        ("1", json!([1]), vec![1], ""),
        ("1,2,3", json!([1, 2, 3]), vec![1, 2, 3], ""),
        ("3,1,2", json!(["3", 1, "2"]), vec![3, 1, 2], ""),
        ("9,1,-5", json!([9, 1, -5]), vec![1], r#""9","-5""#),
        ("9", json!(["9"]), vec![], r#""9""#),
        ("2,2,9,2,9", json!([2, "2", 9, 2, 9]), vec![2], r#""9""#),
    ] {
        let items: Vec<String> =
            items.iter().map(|id| format!(r#""{id}":{}"#, product(*id))).collect();
        let expected = format!(r#"{{"items":{{{}}},"missing":[{missing}]}}"#, items.join(","));
        for answer in both_ways(&mut client, "/products", query, &ids) {
            assert_eq!((answer.status, answer.text()), (200, expected.clone()), "{query}");
            assert_eq!(answer.header("content-type"), Some("application/json"));
            assert_eq!(answer.header("content-length"), Some(expected.len().to_string().as_str()));
            assert_eq!(answer.header("etag"), None);
            assert_eq!(answer.header("cache-control"), Some("no-cache"));
            assert_eq!(answer.header("age"), Some("0"));
            let _grammar = answer.position();
        }
    }
}

#[test]
fn ids_of_text_keep_their_url_form_and_their_commas() {
    let database = Database::new();
    database.execute(
        "CREATE TABLE words(id TEXT PRIMARY KEY, v INTEGER);
         INSERT INTO words VALUES ('a,b',1), ('a b',2), ('x/y',3), ('ü',4), ('1',5);
         CREATE TABLE orders(number INTEGER, line TEXT, v INTEGER, PRIMARY KEY(number, line));
         INSERT INTO orders VALUES (7,'a',1), (7,'b,c',2)",
    );
    let config = Config::new(database.path())
        .collection("words")
        .set("collections.orders.key", r#"["number","line"]"#);
    let server = Server::start(&config);
    let mut client = server.client();
    let names = |answer: &Answer| -> Vec<String> {
        answer.json()["items"].as_object().unwrap().keys().cloned().collect()
    };
    let sorted = |mut names: Vec<String>| {
        names.sort_unstable();
        names
    };
    let by_get = client.get("/words?ids=a%2Cb,a%20b,x%2fy,%C3%BC,no%2Cne");
    assert_eq!(sorted(names(&by_get)), ["%C3%BC", "a%20b", "a%2Cb", "x%2fy"], "as in the request");
    assert_eq!(by_get.json()["missing"], json!(["no%2Cne"]));
    let by_post = client.post("/words", r#"{"ids":["a,b","a b","x/y","ü",1,"no,ne"]}"#);
    assert_eq!(sorted(names(&by_post)), ["%C3%BC", "1", "a%20b", "a%2Cb", "x%2Fy"]);
    assert_eq!(by_post.json()["items"]["a%2Cb"]["v"], 1);
    assert_eq!(by_post.json()["missing"], json!(["no%2Cne"]));
    // Two spellings of one key are two ids and one record.
    let twice = client.get("/words?ids=a%20b,%61%20b");
    assert_eq!(sorted(names(&twice)), ["%61%20b", "a%20b"]);
    let composite = client.post("/orders", r#"{"ids":[[7,"a"],["7","b,c"],[8,"a"]]}"#);
    assert_eq!(composite.status, 200, "{composite:?}");
    assert_eq!(composite.json()["items"]["7,b%2Cc"]["v"], 2);
    assert_eq!(composite.json()["items"]["7,a"]["v"], 1);
    assert_eq!(composite.json()["missing"], json!(["8,a"]));
    for method in ["GET", "HEAD"] {
        let answer = client.request(method, "/orders?ids=7,a", &[], b"");
        assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")), "{method}");
    }
}

#[test]
fn an_encoded_comma_separates_integers() {
    let database = Database::with_products(5);
    let server = start(&database);
    let mut client = server.client();
    for query in ["1,2,3", "1%2C2%2C3", "1%2c2,3"] {
        let answer = client.get(&format!("/products?ids={query}"));
        assert_eq!(answer.json()["items"].as_object().unwrap().len(), 3, "{query}");
        assert_eq!(answer.json()["missing"], json!([]));
    }
}

#[test]
fn malformed_batches_are_400_and_never_reach_the_database() {
    let database = Database::with_products(5);
    let server = Server::start(
        &Config::new(database.path()).collection("products").set("limits.max_batch", "10"),
    );
    let mut client = server.client();
    let many = (1..=11).map(|i| i.to_string()).collect::<Vec<_>>().join(",");
    let too_many = format!("?ids={many}");
    for query in [
        "",
        "?",
        "?ids",
        "?ids=",
        "?ids=,",
        "?ids=1,",
        "?ids=,1",
        "?ids=1,,2",
        "?ids=a",
        "?ids=1,2.5",
        "?ids=01",
        "?ids=%zz",
        "?ids=1&ids=2",
        &too_many,
    ] {
        let answer = client.get(&format!("/products{query}"));
        assert_eq!(answer.problem(400).0, "Bad batch", "{query}");
    }
    let deep = "[".repeat(100_000);
    let too_many = format!("{{\"ids\":[{many}]}}");
    for body in [
        "",
        "{",
        "null",
        "[]",
        "[1,2]",
        "7",
        "\"ids\"",
        "{}",
        r#"{"ids":[]}"#,
        r#"{"ids":1}"#,
        r#"{"ids":"1,2"}"#,
        r#"{"ids":{"0":1}}"#,
        r#"{"ids":null}"#,
        r#"{"ids":[null]}"#,
        r#"{"ids":[true]}"#,
        r#"{"ids":[{}]}"#,
        r#"{"ids":[1.5]}"#,
        r#"{"ids":[1e300]}"#,
        r#"{"ids":["x"]}"#,
        r#"{"ids":["01"]}"#,
        r#"{"ids":[""]}"#,
        r#"{"ids":[[]]}"#,
        r#"{"ids":[[1,2]]}"#,
        r#"{"ids":[[[1]]]}"#,
        r#"{"ids":[9223372036854775808]}"#,
        r#"{"ids":[-9223372036854775809]}"#,
        r#"{"ids":[1e999]}"#,
        r#"{"ids":[123456789012345678901234567890]}"#,
        r#"{"ids":[1],"more":true}"#,
        r#"{"ids":[1]} x"#,
        r#"{"ids":[1,]}"#,
        r#"{'ids':[1]}"#,
        "\u{feff}{\"ids\":[1]}",
        &too_many,
        &deep,
    ] {
        let answer = client.post("/products", body);
        assert_eq!(answer.problem(400).0, "Bad batch", "{}", &body[..body.len().min(80)]);
    }
    assert_eq!(client.post("/products", b"{\"ids\":[\"\xff\"]}").problem(400).0, "Bad batch");
    assert_eq!(server.queries(), 0);
    let ten = (1..=10).map(|i| i.to_string()).collect::<Vec<_>>().join(",");
    assert_eq!(client.get(&format!("/products?ids={ten}")).status, 200, "as many as allowed");
    let nested = client.post("/products", r#"{"ids":[[1]]}"#);
    assert_eq!(nested.json()["items"]["1"]["id"], 1, "an array of one for a key of one column");
}

#[test]
fn the_cold_ids_of_a_batch_are_one_query() {
    let database = Database::with_products(2000);
    let server = start(&database);
    let mut client = server.client();
    let ids = |range: std::ops::RangeInclusive<u32>| {
        range.map(|id| id.to_string()).collect::<Vec<_>>().join(",")
    };
    let cold = client.get(&format!("/products?ids={}", ids(1..=1000)));
    assert_eq!((cold.status, cold.cache()), (200, "miss"));
    assert_eq!(cold.json()["items"].as_object().unwrap().len(), 1000);
    assert_eq!(server.queries(), 1);
    let mixed = client.get(&format!("/products?ids={}", ids(901..=1100)));
    assert_eq!((mixed.json()["items"].as_object().unwrap().len(), mixed.cache()), (200, "miss"));
    assert_eq!(server.queries(), 2);
    let warm =
        client.post("/products", json!({ "ids": (1..=1000).collect::<Vec<_>>() }).to_string());
    assert_eq!((warm.json()["items"].as_object().unwrap().len(), warm.cache()), (1000, "hit"));
    let head = client.request("HEAD", "/products?ids=1,2,3", &[], b"");
    let full = client.get("/products?ids=1,2,3");
    assert_eq!(head.header("content-length"), full.header("content-length"));
    let gone =
        client.get(&format!("/products?ids={}", ids(1..=999)).replace("ids=1,", "ids=5000,"));
    assert_eq!((gone.cache(), &gone.json()["missing"]), ("miss", &json!(["5000"])));
    assert_eq!(server.queries(), 3);
    let metrics = server.metrics();
    let of = [("collection", "products")];
    assert_eq!(metrics.sum("hotrow_batch_keys_total", &of), 1101.0);
    assert_eq!(metrics.sum("hotrow_merged_queries_total", &of), 3.0);
}

#[cfg(feature = "failpoints")]
#[test]
fn a_batch_reports_its_worst_outcome_and_its_largest_position() {
    let database = Database::with_products(5);
    let gate = Gate::new("slow/1");
    database.add_table("slow", 2);
    let config = Config::new(database.path())
        .collection("products")
        .collection("slow")
        .set("collections.products.allow_no_cache", "true");
    let server = Server::start(&config.gate(&gate));
    let mut client = server.client();
    let old = client.get("/products/1").position();
    database.execute("UPDATE products SET price = 1 WHERE id = 2");
    let end = database.log_end();
    await_until("the feed to reach the change", SOON, || {
        client.get("/products/2");
        server.metrics().sum("hotrow_feed_position", &[]) as u64 >= end
    });
    let new = client.get_with("/products/2", &[("Cache-Control", "no-cache")]);
    assert_eq!(new.cache(), "bypass");
    assert!(new.position().at >= end && new.position().at > old.at);
    for ids in ["1,2", "2,1"] {
        let batch = client.get(&format!("/products?ids={ids}"));
        assert_eq!((batch.cache(), batch.position()), ("hit", new.position()), "{ids}");
    }
    assert_eq!(client.get("/products?ids=1,3").cache(), "miss");
    assert_eq!(
        client.get_with("/products?ids=1,3", &[("Cache-Control", "no-cache")]).cache(),
        "bypass"
    );
    // A batch that joins a running read and also hits: `coalesced` is worse than `hit`.
    client.get("/slow/2");
    let mut reading = server.client();
    reading.send(request_bytes("GET", "/slow/1", &[], b""));
    await_until("the read to begin", SOON, || {
        server.metrics().sum("hotrow_queries_in_flight", &[("collection", "slow")]) > 0.0
    });
    client.send(request_bytes("GET", "/slow?ids=2,1", &[], b""));
    await_until("both to wait", SOON, || {
        server.metrics().sum("hotrow_requests_waiting", &[]) == 2.0
    });
    gate.open();
    assert_eq!(client.answer().cache(), "coalesced");
    assert_eq!(reading.answer().cache(), "miss");
}
