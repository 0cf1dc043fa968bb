//! Requests over HTTP that mistake a path, an id or a parameter.

use hotrow_testkit::harness::{Client, Config, Database, Server};

use super::{Mistake, check};

/// Targets at the data address.
const DATA: &[Mistake] = &[
    ("/stock/BER/1", "404 No such path: a key of 2 columns has commas between them: /stock/BER,1"),
    ("/stock/BER/1/2", "404 No such path: a path is /{collection}/{id} or"),
    ("/stock/BER", "400 Bad id: the id has 1 part, this collection's key has 2; separate"),
    ("/stock/BER,x", "400 Bad id: part 2 of the id is not a decimal integer"),
    ("/products/x", "400 Bad id: the id is not a decimal integer"),
    ("/product/1", "404 No such collection: this server serves no collection of that name; GET /"),
    ("/metrics", "404 No such path: this path is one of the admin address, port {admin}"),
    ("/products/1?fields=name", "400 Bad fields: this collection has no selection of fields: see"),
    (
        "/products/1?a=1",
        "400 Unknown parameter: the parameter \"a\" is unknown; this path has none",
    ),
    ("/products?id=1", "400 Unknown parameter: the parameter \"id\" is unknown; known here: ids"),
    ("/products?ids=1&utm_source=x", "\"utm_source\" is unknown; known here: ids"),
    ("/prices?ids=1&_=7", "\"_\" is unknown; known here: ids, snapshot, fields"),
    ("/_changes/prices?since=1", "\"since\" is unknown; known here: after, ids"),
];

/// Targets at the admin address.
const ADMIN: &[Mistake] = &[
    ("/products/1", "404 No such path: this path is one of the data address, port {data}"),
    ("/_changes/prices", "one of the data address, port {data}"),
    ("/nothing/1", "404 No such path: the admin address has /, /openapi.html and /healthz, "),
];

fn database() -> Database {
    let database = Database::new();
    database.execute(
        "CREATE TABLE products(id INTEGER PRIMARY KEY, name TEXT) STRICT;
         CREATE TABLE prices(id INTEGER PRIMARY KEY, price INTEGER) STRICT;
         CREATE TABLE stock(place TEXT, item INTEGER, n INTEGER, PRIMARY KEY(place, item)) STRICT;
         INSERT INTO products VALUES (1, 'a'); INSERT INTO stock VALUES ('BER', 1, 4);",
    );
    database
}

fn config(database: &Database) -> Config {
    Config::new(database.path())
        .collection("products")
        .set("collections.prices.allow_fields", "true")
        .set("collections.prices.changes", "true")
        .set("collections.stock.key", r#"["place", "item"]"#)
}

#[test]
fn requests() {
    let database = database();
    let server = Server::start(&config(&database));
    let ports = |text: String| {
        text.replace(&format!("port {}", server.admin.port()), "port {admin}")
            .replace(&format!("port {}", server.data.port()), "port {data}")
    };
    for (table, address) in [(DATA, server.data), (ADMIN, server.admin)] {
        check(table, |target| {
            let answer = Client::connect(address).get(target);
            let (title, detail) = answer.problem(answer.status);
            let page = answer.json()["type"].as_str().unwrap_or_default().to_owned();
            let section = title.to_lowercase().replace(' ', "-");
            assert_eq!(page, format!("/docs/reference/errors.md#{section}"), "{target}");
            ports(format!("{} {title}: {detail}", answer.status))
        });
    }
    let page = server.get("/docs/reference/errors.md");
    assert_eq!((page.status, page.header("x-content-type-options")), (200, Some("nosniff")));
    assert_eq!(server.admin_client().get("/docs/reference/errors.md").body, page.body);
    assert_eq!(server.queries(), 0, "none of them reached the database");
}

/// `/` lists what the caller may read, as JSON or as a page.
#[test]
fn the_index_lists_what_the_caller_may_read() {
    let database = database();
    let server = Server::start(&config(&database));
    let answer = server.get("/");
    assert_eq!(answer.header("vary"), Some("accept"));
    assert_eq!(
        answer.json(),
        serde_json::json!({
            "collections": [
                { "name": "prices", "record": "/prices/1", "batch": "/prices?ids=1",
                  "changes": "/_changes/prices" },
                { "name": "products", "record": "/products/1", "batch": "/products?ids=1" },
                { "name": "stock", "record": "/stock/text,1" },
            ],
            "errors": "/docs/reference/errors.md",
        })
    );
    let browser = [("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")];
    let page = server.client().get_with("/", &browser);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(page.body, server.get("/openapi.html").body);
    let policy = page.header("content-security-policy").unwrap_or_default();
    assert!(policy.starts_with("default-src 'none'; script-src 'self'"), "{policy}");
    drop(server);
    let access = config(&database)
        .set("listen.unknown_parameters", "\"ignore\"")
        .set("listen.openapi", "true")
        .set("access.anonymous_role", "\"reader\"")
        .set("access.roles.reader.collections", "[\"stock\"]");
    let server = Server::start(&access);
    let index = server.get("/").json();
    let stock = serde_json::json!([{ "name": "stock", "record": "/stock/text,1" }]);
    assert_eq!(server.get("/stock/BER,1?utm_source=x").json()["n"], 4);
    assert_eq!((&index["collections"], &index["description"]), (&stock, &"/openapi.json".into()));
}
