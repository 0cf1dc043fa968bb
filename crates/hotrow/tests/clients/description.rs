//! `/openapi.json`: its structure, its agreement with the answers, and what validators and a fuzzer
//! of APIs say.

use std::collections::BTreeSet;
use std::process::Command;

use hotrow_testkit::harness::{Config, Database, SOON, Server, await_until};
use serde_json::Value;

use crate::programs::{python_with, succeed};

/// A key and its entry in the configuration: role `reader`.
const KEY_ID: &str = "0101010101010101";

/// Columns of many types, with keys of one and of two columns.
fn database() -> Database {
    let database = Database::with_products(3);
    database.execute(
        "CREATE TABLE prices(product INTEGER NOT NULL, currency TEXT NOT NULL, cents INT NOT NULL,
           rate REAL, raw BLOB, note ANY, PRIMARY KEY (product, currency)) STRICT;
         INSERT INTO prices VALUES (1, 'EUR', 100, 1.5, x'00ff', 'x'), (1, 'a,b', 7, NULL, NULL, 3);
         CREATE TABLE countries(code TEXT PRIMARY KEY, name TEXT);
         INSERT INTO countries VALUES ('de', 'Germany'), ('a/b', NULL);
         CREATE TABLE files(id BLOB PRIMARY KEY, name TEXT);
         INSERT INTO files VALUES (x'00112233445566778899aabbccddeeff', 'f')",
    );
    database
}

fn config(database: &Database) -> Config {
    Config::new(database.path())
        .collection("products")
        .set("collections.countries.key", "\"code\"")
        .set("collections.prices.key", r#"["product", "currency"]"#)
        .set("collections.files.key_type", "\"uuid\"")
        .set("collections.countries.allow_no_cache", "true")
        .set("listen.openapi", "true")
}

fn document(server: &Server) -> Value {
    let answer = server.admin_client().get("/openapi.json");
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    answer.json()
}

/// Calls `check` with every reference of the document.
fn references(value: &Value, check: &mut impl FnMut(&str)) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get("$ref") {
                check(reference);
            }
            members.values().for_each(|member| references(member, check));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, check)),
        _ => {}
    }
}

#[test]
fn it_describes_every_collection_and_all_references_lead_somewhere() {
    let database = database();
    let server = Server::start(&config(&database));
    let document = document(&server);
    assert_eq!(document["openapi"], "3.1.1");
    let paths: BTreeSet<&str> =
        document["paths"].as_object().unwrap().keys().map(String::as_str).collect();
    let expected = ["countries", "files", "prices", "products"];
    let mut both = expected.map(|name| [format!("/{name}"), format!("/{name}/{{id}}")]).concat();
    both.push("/_snapshot".to_owned());
    assert_eq!(paths, both.iter().map(String::as_str).collect());
    let mut count = 0;
    references(&document, &mut |reference| {
        count += 1;
        let pointer = reference.strip_prefix('#').expect("a local reference");
        assert!(document.pointer(pointer).is_some(), "{reference}");
    });
    assert!(count > 50, "{count} references");
    assert!(document.get("security").is_none());
    assert_eq!(document["servers"][0]["url"], format!("http://{}", server.data));
    let item = &document["paths"]["/products/{id}"]["get"];
    for status in ["200", "304", "400", "404", "405", "412", "429", "503", "504"] {
        assert!(item["responses"].get(status).is_some(), "{status}");
    }
    assert!(item["responses"].get("401").is_none());
    let names = |operation: &Value| -> Vec<String> {
        let parameters = operation["parameters"].as_array().unwrap();
        parameters.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    assert!(!names(item).contains(&"Cache-Control".to_owned()));
    let country = &document["paths"]["/countries/{id}"]["get"];
    assert!(names(country).contains(&"Cache-Control".to_owned()), "as configured");
    let prices = document["paths"]["/prices"].as_object().unwrap();
    assert_eq!(prices.keys().collect::<Vec<_>>(), ["post"], "a query names no composite keys");
}

#[test]
fn it_has_the_types_that_the_catalogue_promises() {
    let database = database();
    let server = Server::start(&config(&database));
    let document = document(&server);
    let property = |path: &str| document.pointer(&format!("/components/schemas/{path}")).unwrap();
    assert_eq!(property("products/properties/id/type"), "integer");
    assert_eq!(property("products/properties/name/type"), "string");
    let scalar = serde_json::json!(["integer", "number", "string", "null"]);
    assert_eq!(property("products/properties/price/type"), &scalar, "not a STRICT table");
    assert_eq!(property("prices/properties/cents/type"), "integer");
    assert_eq!(property("prices/properties/raw/contentEncoding"), "base64");
    assert_eq!(property("files/properties/id/format"), "uuid");
    for (collection, id) in [("products", "1"), ("prices", "1,EUR"), ("countries", "de")] {
        let record = server.get(&format!("/{collection}/{id}")).json();
        let described = property(&format!("{collection}/properties")).as_object().unwrap();
        let fields: BTreeSet<&String> = record.as_object().unwrap().keys().collect();
        assert_eq!(fields, described.keys().collect(), "{collection}");
    }
}

#[test]
fn it_follows_the_catalogue() {
    let database = database();
    let server = Server::start(&config(&database));
    let has = |field: &str| {
        document(&server)["components"]["schemas"]["products"]["properties"].get(field).is_some()
    };
    assert!(!has("colour"));
    database.execute("ALTER TABLE products ADD COLUMN colour TEXT");
    await_until("the new column is described", SOON, || has("colour"));
}

#[test]
fn the_data_listener_serves_it_only_if_allowed() {
    let database = database();
    let server = Server::start(&config(&database).set("listen.openapi", "false"));
    assert!(server.get("/openapi.json").problem(404).1.contains("admin address"));
    document(&server);
    let server = Server::start(&config(&database));
    let answer = server.get("/openapi.json");
    assert_eq!((answer.status, answer.header("cache-control")), (200, Some("no-cache")));
    let described = answer.json();
    assert_eq!(described["paths"], document(&server)["paths"]);
    assert!(described.get("servers").is_none(), "the same address");
    let head = server.client().request("HEAD", "/openapi.json", &[], b"");
    assert_eq!((head.status, head.body.len()), (200, 0));
    let refused = server.client().request("POST", "/openapi.json", &[], b"");
    refused.problem(405);
    assert_eq!(refused.header("allow"), Some("GET, HEAD"));
}

#[test]
fn it_names_the_credentials_and_needs_one() {
    let database = database();
    let server = Server::start(&config(&database).with(&[
        ("access.roles.reader.collections", r#"["products"]"#),
        ("access.keys.billing.id", &format!("{KEY_ID:?}")),
        ("access.keys.billing.sha256", &format!("\"{}\"", "0".repeat(64))),
        ("access.keys.billing.roles", r#"["reader"]"#),
    ]));
    server.get("/openapi.json").problem(401);
    let document = document(&server);
    let schemes = &document["components"]["securitySchemes"];
    assert_eq!(schemes["bearer"]["scheme"], "bearer");
    assert_eq!(schemes["apiKey"]["name"], "X-API-Key");
    let item = &document["paths"]["/products/{id}"]["get"];
    assert!(item["responses"].get("401").is_some() && item["responses"].get("403").is_some());
}

#[test]
#[ignore = "long: installs openapi-spec-validator from PyPI"]
fn a_validator_finds_nothing() {
    let database = database();
    let server = Server::start(&config(&database));
    let folder = tempfile::tempdir().unwrap();
    let programs = python_with(folder.path(), &["openapi-spec-validator"]);
    let file = folder.path().join("openapi.json");
    std::fs::write(&file, document(&server).to_string()).unwrap();
    succeed(Command::new(programs.join("openapi-spec-validator")).arg(&file));
}

#[test]
#[ignore = "long: installs schemathesis from PyPI"]
fn a_fuzzer_of_apis_finds_nothing() {
    let database = database();
    // A deadline makes late answers of good requests, and hits do not look at it; a large batch is
    // too long for a URL before it has too many ids.
    let config = config(&database).with(&[
        ("listen.openapi", "false"),
        ("limits.concurrency.deadline_header", "false"),
        ("limits.max_batch", "20"),
    ]);
    let server = Server::start(&config);
    let folder = tempfile::tempdir().unwrap();
    let programs = python_with(folder.path(), &["schemathesis"]);
    std::fs::write(folder.path().join("openapi.json"), document(&server).to_string()).unwrap();
    // A condition that does not hold is an answer too.
    let settings = "[checks.positive_data_acceptance]\n\
                    expected-statuses = [\"2xx\", 304, 404, 412]\n";
    std::fs::write(folder.path().join("schemathesis.toml"), settings).unwrap();
    let mut fuzzer = Command::new(programs.join("schemathesis"));
    fuzzer.current_dir(folder.path()).args(["run", "openapi.json", "--max-examples", "100"]);
    fuzzer.args(["--phases", "examples,coverage,fuzzing", "--no-color", "--seed", "1"]);
    succeed(fuzzer.arg("--url").arg(format!("http://{}", server.data)));
}
