//! Grants, rate limits and the Redis protocol: a snapshot batch is no way around a limit.

use serde_json::Value;

use super::{change, snapshots, with_parts};
use crate::e2e::redis::{redis_cli, with_redis};
use hotrow_testkit::harness::{Config, Database, Ended, SOON, Server};

const BOTH: &str = r#"{"parts":[1,2],"prices":[1]}"#;

/// Returns the configuration with an API key of this role.
fn granted(database: &Database, role: &[(&str, &str)]) -> (Config, String) {
    let made = Ended::run(&["key", "new", "--name", "shop", "--role", "shop", "--json"], SOON);
    let made: Value = serde_json::from_str(&made.output).expect("a key");
    let config = snapshots(Config::new(database.path()))
        .with(role)
        .set("access.keys.shop.id", &made["id"].to_string())
        .set("access.keys.shop.sha256", &made["sha256"].to_string())
        .set("access.keys.shop.roles", "\"shop\"");
    (config, format!("Bearer {}", made["key"].as_str().expect("a text")))
}

#[test]
fn grants_are_those_of_each_collection() {
    let database = with_parts(Database::new());
    let of_parts = [
        ("access.roles.shop.collections", r#"["parts"]"#),
        ("access.roles.shop.columns.parts.names", r#"["id"]"#),
    ];
    let (config, credential) = granted(&database, &of_parts);
    let server = Server::start(&config);
    let mut client = server.client();
    let mut post = |body: &str, headers: &[(&str, &str)]| {
        let answer = client.request("POST", "/_snapshot", headers, body.as_bytes());
        (answer.status, answer.text())
    };
    let own = [("Authorization", &*credential)];
    assert_eq!(post(BOTH, &[]).0, 401);
    assert_eq!(post(BOTH, &own).0, 403, "one of them is not granted");
    let (status, text) = post(r#"{"parts":[1,99]}"#, &own);
    assert_eq!(status, 200, "{text}");
    assert!(text.contains(r#"{"parts":{"items":{"1":{"id":1}},"missing":["99"]}}"#), "{text}");
    let position = ("Hotrow-Min-Position", "0000000000000001-1");
    let (status, text) = post(r#"{"parts":[1]}"#, &[own[0], position]);
    assert_eq!(status, 403, "positions are a grant of their own: {text}");
}

#[test]
fn rate_limits_count_all_ids() {
    let database = with_parts(Database::new());
    let rule = [("limits.rate.clients.rate", "\"1/h\""), ("limits.rate.clients.burst", "10")];
    let server = Server::start(&snapshots(Config::new(database.path())).with(&rule));
    let mut client = server.client();
    assert_eq!(client.post("/_snapshot", BOTH).status, 200, "three ids");
    assert_eq!(client.get("/parts?ids=1,2,2&snapshot=true").status, 200, "two");
    assert_eq!(client.post("/_snapshot", "{").status, 400, "a malformed one costs one");
    assert_eq!(client.post("/_snapshot", BOTH).status, 200);
    assert_eq!(client.post("/_snapshot", r#"{"parts":[1],"prices":[1]}"#).status, 429);
}

#[test]
fn a_command_has_the_records_of_one_point_in_the_order_of_its_keys() {
    let database = with_parts(Database::new());
    database.execute(&change(2));
    let server = Server::start(&with_redis(snapshots(Config::new(database.path()))));
    let ask = |more: &[&str]| redis_cli(&server, &[&["HOTROW.MGET"], more].concat());
    let all = ["prices:1", "parts:5", "parts:99", "parts:1", "parts:5"];
    let expected = [1, 5, 0, 1, 5].map(|id| match id {
        0 => String::new(),
        id => format!(r#"{{"id":{id},"n":2}}"#),
    });
    for word in ["SNAPSHOT", "snapshot"] {
        assert_eq!(ask(&[&all[..], &[word]].concat()), expected.join("\n"));
    }
    assert!(ask(&["parts:1", "parts:2"]).starts_with("ERR syntax error; use HOTROW.MGET"));
    assert!(ask(&["parts:1"]).starts_with("ERR wrong number of arguments"));
    assert!(ask(&["others:1", "SNAPSHOT"]).starts_with("ERR no such collection"));
}
