//! Selection of fields by a request.

use serde_json::json;

use hotrow_testkit::harness::{Answer, Config, Database, SOON, Server, await_until};

fn start(database: &Database) -> Server {
    let config = Config::new(database.path()).collection("products");
    Server::start(&config.set("collections.products.allow_fields", "true"))
}

fn tag(answer: &Answer) -> String {
    answer.header("etag").expect("an ETag").to_owned()
}

#[test]
fn a_record_has_the_selected_fields_in_its_own_order() {
    let database = Database::with_products(3);
    let server = start(&database);
    let mut client = server.client();
    for (query, expected) in [
        ("fields=price,id", r#"{"id":1,"price":100}"#),
        ("fields=name", r#"{"name":"p1"}"#),
        ("fields=name,n%61me&", r#"{"name":"p1"}"#),
        ("", r#"{"id":1,"name":"p1","price":100}"#),
    ] {
        let answer = client.get(&format!("/products/1?{query}"));
        assert_eq!((answer.status, &*answer.text()), (200, expected), "{query}");
        let head = client.request("HEAD", &format!("/products/1?{query}"), &[], b"");
        for name in ["content-length", "content-type", "etag"] {
            assert_eq!(head.header(name), answer.header(name), "{query}: {name}");
        }
    }
    assert_eq!(client.get("/products/9?fields=name").status, 404);
    assert_eq!(server.queries(), 2, "one entry, and the knowledge that 9 is absent");
}

#[test]
fn batches_have_selections_by_get_and_post() {
    let database = Database::with_products(3);
    let server = start(&database);
    let mut client = server.client();
    let expected = r#"{"items":{"2":{"price":200},"1":{"price":100}},"missing":["9"]}"#;
    for _ in ["from the database", "from memory"] {
        let got = client.get("/products?fields=price&ids=2,9,1");
        assert_eq!((got.status, &*got.text()), (200, expected));
        let posted = client.post("/products?fields=price", json!({"ids": [2, 9, 1]}).to_string());
        assert_eq!((posted.status, &*posted.text()), (200, expected));
    }
}

#[test]
fn the_tag_changes_with_the_selected_fields_alone() {
    let database = Database::with_products(1);
    let server = start(&database);
    let mut client = server.client();
    let tags = ["?fields=name", "?fields=price", ""]
        .map(|query| tag(&client.get(&format!("/products/1{query}"))));
    let other: std::collections::BTreeSet<_> = tags.iter().collect();
    assert_eq!(other.len(), 3, "{tags:?}");
    database.execute("UPDATE products SET price = 5 WHERE id = 1");
    await_until("the new price", SOON, || {
        client.get("/products/1?fields=price").text() == r#"{"price":5}"#
    });
    for (query, tag, status) in
        [("?fields=name", &tags[0], 304), ("?fields=price", &tags[1], 200), ("", &tags[2], 200)]
    {
        let path = format!("/products/1{query}");
        assert_eq!(client.get_with(&path, &[("If-None-Match", tag)]).status, status, "{query}");
    }
}

#[test]
fn unknown_fields_are_refused_and_new_columns_are_known_when_they_are_served() {
    let database = Database::with_products(1);
    let server = start(&database);
    let mut client = server.client();
    for path in ["/products/1?fields=size", "/products?ids=1&fields=id,size"] {
        let (title, detail) = client.get(path).problem(400);
        assert_eq!(title, "Bad fields");
        assert!(detail.contains("no field \"size\""), "{detail}");
    }
    let refused = client.request("POST", "/products?fields=", &[], br#"{"ids":[1]}"#);
    assert!(refused.problem(400).1.contains("is empty"));
    let mut client = server.client();
    database.execute("ALTER TABLE products ADD COLUMN size INTEGER DEFAULT 7");
    await_until("the new column", SOON, || {
        let answer = client.get("/products/1?fields=size");
        answer.status == 200 && answer.text() == r#"{"size":7}"#
    });
}
