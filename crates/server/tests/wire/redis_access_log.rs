//! The access log of commands of the Redis protocol: which have a line, and what it says.

use crate::access_log::{lines, logged, named_access};
use crate::common::redis::{RedisClient, Reply, array, with_redis};
use crate::common::service::{Running, config};
use hotrow_config::Config;
use serde_json::{Value, json};

/// Removes the bytes of errors, whose texts other tests check.
fn without_error_bytes(mut line: Value) -> Value {
    let members = line.as_object_mut().unwrap();
    if members["status"].as_u64().unwrap() >= 400 && members.get("bytes") != Some(&json!(0)) {
        let bytes = members.remove("bytes");
        assert!(bytes.is_none_or(|bytes| bytes.as_u64().unwrap() > 10));
    }
    line
}

#[test]
fn a_command_has_the_line_of_its_request_over_http() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let (access, key) = named_access();
    let config = with_redis(Config { access: Some(access), ..config() });
    let server = Running::start(&logged(config, &path, 1.0, true));
    let mut client = RedisClient::connect(server.redis);
    for (command, word) in [
        ("GET products:1", "NOAUTH"),
        ("AUTH a-secret", "WRONGPASS"),
        (&*format!("AUTH {key}"), ""),
        ("GET products:1", ""),
        ("get products:1", ""),
        ("HELLO 3", ""),
        ("PING", ""),
        ("GET products:2", ""),
        ("EXISTS products:1", ""),
        ("PTTL products:2", ""),
        ("MGET products:1 products:2 products:1", ""),
        ("MGET products:1 products:12x", "ERR"),
        ("GET prices:1", "NOPERM"),
        ("MGET prices:1 products:1", "NOPERM"),
        ("GET nothing:1", "ERR"),
        ("GET", "ERR"),
        ("SET a-secret b", "ERR"),
        ("HOTROW.GET products:1 MAXPOS 1", "ERR"),
    ] {
        assert_eq!(client.ask(command).word(), word, "{command}");
    }
    for command in ["MULTI", "GET products:1", "EXEC"] {
        client.ask(command);
    }
    client.send("*x\r\n");
    assert!(client.rest().starts_with("-ERR Protocol error: "));
    drop(server);
    let without_sender = |line: Value| {
        let mut all = json!({"protocol": "RESP3", "cache": "none"});
        all.as_object_mut().unwrap().extend(line.as_object().unwrap().clone());
        all
    };
    let by_sender = |line: Value| {
        let mut line = without_sender(line);
        line["roles"] = json!(["reader"]);
        line["key"] = "billing".into();
        line
    };
    let one = |method: &str, path: &str, cache: &str, bytes: u64| {
        by_sender(json!({
            "method": method, "path": path, "collection": "products", "status": 200,
            "cache": cache, "bytes": bytes,
        }))
    };
    let version_2 = |mut line: Value| {
        line["protocol"] = "RESP2".into();
        line
    };
    let missing = |mut line: Value| {
        line["status"] = 404.into();
        line
    };
    let keys = "products:1 products:2 products:1";
    let expected = [
        version_2(without_sender(json!({
            "method": "GET", "path": "products:1", "status": 401,
        }))),
        version_2(without_sender(json!({"method": "AUTH", "status": 401}))),
        version_2(one("GET", "products:1", "miss", 8)),
        version_2(one("GET", "products:1", "hit", 8)),
        missing(one("GET", "products:2", "miss", 0)),
        one("EXISTS", "products:1", "hit", 0),
        missing(one("PTTL", "products:2", "hit", 0)),
        one("MGET", keys, "hit", 16),
        by_sender(json!({
            "method": "MGET", "path": "products:1 products:12x", "collection": "products",
            "status": 400,
        })),
        by_sender(json!({
            "method": "GET", "path": "prices:1", "collection": "prices", "status": 403,
        })),
        // Of two collections.
        by_sender(json!({"method": "MGET", "path": "prices:1 products:1", "status": 403})),
        by_sender(json!({"method": "GET", "path": "nothing:1", "status": 404})),
        without_sender(json!({"method": "GET", "status": 400})),
        // Not its arguments.
        without_sender(json!({"method": "UNKNOWN", "status": 405})),
        by_sender(json!({"method": "HOTROW.GET", "path": "products:1", "status": 400})),
        one("GET", "products:1", "hit", 8),
        without_sender(json!({"status": 400})),
    ];
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains("secret") && !text.contains(&key), "{text}");
    let found = lines(&path);
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(without_error_bytes(found.clone()), *expected);
    }
    assert_eq!(found.len(), expected.len());
}

#[test]
fn a_command_that_waits_has_its_worst_outcome_and_others_are_sampled() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let server = Running::start(&logged(with_redis(config()), &path, 0.0, false));
    let mut client = RedisClient::connect(server.redis);
    let commands = array("GET products:1").repeat(100);
    client.send(commands);
    (0..100).for_each(|_| assert_eq!(client.reply(), Reply::text(r#"{"id":1}"#)));
    assert_eq!(client.ask("GET products:12x").word(), "ERR");
    drop((client, server));
    let found = lines(&path);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((&found[0]["status"], &found[0]["collection"]), (&json!(400), &json!("products")));
    assert!(!found[0].to_string().contains("12x"), "{found:?}");

    let path = folder.path().join("all.log");
    let server = Running::start(&logged(with_redis(config()), &path, 1.0, true));
    let mut client = RedisClient::connect(server.redis);
    assert_eq!(client.ask("GET products:1"), Reply::text(r#"{"id":1}"#));
    let reply = client.ask("MGET products:1 products:3");
    assert_eq!(reply, Reply::Array(vec![Reply::text(r#"{"id":1}"#), Reply::Null]));
    client.ask("MGET products:1 prices:1");
    drop((client, server));
    let line = |method: &str, keys: &str, bytes: u64| {
        json!({
            "protocol": "RESP2", "method": method, "path": keys, "collection": "products",
            "status": 200, "cache": "miss", "bytes": bytes,
        })
    };
    let mut of_two = line("MGET", "products:1 prices:1", 16);
    of_two.as_object_mut().unwrap().remove("collection");
    let expected = [line("GET", "products:1", 8), line("MGET", "products:1 products:3", 8), of_two];
    assert_eq!(lines(&path), expected);
}
