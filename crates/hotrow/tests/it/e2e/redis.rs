//! The Redis protocol by its own tools, over SQLite: redis-cli and redis-benchmark.

use std::process::{Command, Stdio};

use hotrow_testkit::harness::{Config, Database, Ended, SOON, Server, await_until};
use rustix::process::Signal;

use super::traces;
use crate::collector::{Behaviour, CLIENT, Collector, SERVER};

/// Runs redis-cli on a server, and returns what it prints.
#[track_caller]
pub(crate) fn redis_cli(server: &Server, arguments: &[&str]) -> String {
    let address = server.redis();
    let mut command = Command::new("redis-cli");
    command.args(["-h", &address.ip().to_string(), "-p", &address.port().to_string()]);
    let done = command.args(arguments).stdin(Stdio::null()).output().expect("redis-cli starts");
    let errors = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(done.stdout).expect("UTF-8").trim_end().to_owned()
}

/// Adds the listener.
pub(crate) fn with_redis(config: Config) -> Config {
    config.set("listen.redis", "\"127.0.0.1:0\"")
}

fn product(id: u32, price: u32) -> String {
    format!(r#"{{"id":{id},"name":"p{id}","price":{price}}}"#)
}

#[test]
fn redis_cli_reads_records_and_sees_their_changes() {
    let database = Database::with_products(5);
    let config = Config::new(database.path())
        .collection("products")
        .set("collections.products.allow_min_position", "true");
    let server = Server::start(&with_redis(config));
    for version in ["-2", "-3"] {
        assert_eq!(redis_cli(&server, &[version, "GET", "products:1"]), product(1, 100));
    }
    assert_eq!(redis_cli(&server, &["MGET", "products:1", "products:9"]), product(1, 100));
    assert_eq!(redis_cli(&server, &["EXISTS", "products:1", "products:9"]), "1");
    assert_eq!(redis_cli(&server, &["PING"]), "PONG");
    assert!(redis_cli(&server, &["INFO"]).contains("loading:0"));
    assert!(redis_cli(&server, &["SET", "a", "b"]).starts_with("ERR unknown command 'SET'"));
    database.execute("UPDATE products SET price = 7 WHERE id = 1");
    await_until("the change", SOON, || redis_cli(&server, &["GET", "products:1"]) == product(1, 7));
    database.execute("DELETE FROM products WHERE id = 1");
    await_until("the end of the record", SOON, || {
        redis_cli(&server, &["EXISTS", "products:1"]) == "0"
    });
    let answer = server.get("/products/2");
    let position = answer.header("hotrow-position").expect("a position");
    let at_least = redis_cli(&server, &["HOTROW.GET", "products:2", "MINPOS", position]);
    assert_eq!(at_least, product(2, 200));
}

#[test]
fn ids_of_every_kind_are_keys() {
    let database = Database::new();
    database.execute(
        "CREATE TABLE words(id TEXT PRIMARY KEY, v INTEGER);
         INSERT INTO words VALUES ('a',1), ('a/b',2), ('a,b',3), ('a:b',4), ('a b',5), ('ü',6),
             ('100%',7), ('',8), ('%41',9), ('A',10);
         CREATE TABLE orders(number INTEGER, line TEXT, v INTEGER, PRIMARY KEY(number, line))
             WITHOUT ROWID;
         INSERT INTO orders VALUES (7,'3',11), (7,'b,c',12)",
    );
    let config = Config::new(database.path())
        .collection("words")
        .set("collections.orders.key", r#"["number", "line"]"#);
    let server = Server::start(&with_redis(config));
    for (key, value) in [
        ("words:a", 1),
        ("words:a/b", 2),
        ("words:a,b", 3),
        ("words:a:b", 4),
        ("words:a b", 5),
        ("words:ü", 6),
        ("words:100%", 7),
        ("words:", 8),
        ("words:%41", 9),
        ("orders:7,3", 11),
    ] {
        let record = redis_cli(&server, &["GET", key]);
        assert!(record.ends_with(&format!("\"v\":{value}}}")), "{key}: {record}");
    }
    let parts = redis_cli(&server, &["GET", "orders:7,b,c"]);
    assert!(parts.starts_with("ERR bad id: the id has 3 parts"), "{parts}");
    assert_eq!(redis_cli(&server, &["GET", "words:b"]), "");
}

#[test]
fn redis_cli_sends_an_api_key() {
    let database = Database::with_products(2);
    let made = Ended::run(&["key", "new", "--name", "client", "--role", "reader", "--json"], SOON);
    let made: serde_json::Value = serde_json::from_str(&made.output).expect("JSON");
    let config = Config::new(database.path()).collection("products").with(&[
        ("access.roles.reader.collections", r#"["products"]"#),
        ("access.keys.client.id", &made["id"].to_string()),
        ("access.keys.client.sha256", &made["sha256"].to_string()),
        ("access.keys.client.roles", r#"["reader"]"#),
    ]);
    let server = Server::start(&with_redis(config));
    let key = made["key"].as_str().expect("a key");
    let get = ["GET", "products:1"];
    assert_eq!(redis_cli(&server, &get), "NOAUTH Authentication required.");
    let with_key = |arguments: &[&str]| {
        let credential = ["--no-auth-warning", "-a", key];
        redis_cli(&server, &[&credential[..], arguments].concat())
    };
    assert_eq!(with_key(&get), product(1, 100));
    assert_eq!(with_key(&["-3", "GET", "products:1"]), product(1, 100));
    assert_eq!(with_key(&["--user", "default", "GET", "products:1"]), product(1, 100));
}

#[test]
fn redis_benchmark_is_served_without_an_error() {
    const COMMANDS: u32 = 20_000;
    let database = Database::with_products(100);
    let server = Server::start(&with_redis(Config::new(database.path()).collection("products")));
    let address = server.redis();
    for pipeline in ["1", "16"] {
        let mut command = Command::new("redis-benchmark");
        command.args(["-h", &address.ip().to_string(), "-p", &address.port().to_string()]);
        command.args(["-q", "-c", "20", "-P", pipeline, "-n", &COMMANDS.to_string()]);
        let done = command.args(["GET", "products:7"]).output().expect("redis-benchmark starts");
        let printed = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(done.status.success(), "{printed}");
        assert!(printed.contains("requests per second"), "{printed}");
    }
    let metrics = server.metrics();
    let served =
        |labels: &[(&str, &str)]| metrics.sum_or_zero("hotrow_redis_commands_total", labels);
    assert_eq!(served(&[("command", "get")]), f64::from(2 * COMMANDS));
    assert_eq!(served(&[("command", "get"), ("outcome", "error")]), 0.0);
}

/// It would have no server span, and its query no parent.
#[test]
fn a_command_of_the_redis_protocol_is_not_traced() {
    let database = Database::with_products(3);
    let collector = Collector::start(Behaviour::ok());
    let config = traces::config(&database, &collector).set("trace.sample", "1");
    let server = Server::start(&with_redis(config));
    assert!(redis_cli(&server, &["GET", "products:1"]).contains("\"id\":1"));
    assert!(redis_cli(&server, &["MGET", "products:2", "products:9"]).contains("\"id\":2"));
    assert_eq!(server.get("/products/3").cache(), "miss");
    server.signal(Signal::TERM);
    assert_eq!(server.ended(SOON).code(), 0);
    let spans = collector.spans();
    let requests: Vec<_> = spans.iter().filter(|span| span.kind == SERVER).collect();
    assert_eq!(requests.len(), 1, "{spans:?}");
    let queries: Vec<_> = spans.iter().filter(|span| span.kind == CLIENT).collect();
    assert_eq!(queries.len(), 1, "{spans:?}");
    assert_eq!(queries[0].parent_span_id, requests[0].span_id);
}
