//! Conditional requests: `If-Match` and `If-None-Match`, for every way to answer a record.

use hotrow_testkit::harness::{Client, Config, Database, SOON, Server, await_until};

const OTHER: &str = "\"ffffffffffffffff\"";

fn start(settings: &[(&str, &str)]) -> (Database, Server) {
    let database = Database::with_products(10);
    let server = Server::start(&Config::new(database.path()).collection("products").with(settings));
    (database, server)
}

fn etag_of(client: &mut Client, path: &str) -> String {
    client.get(path).header("etag").expect("an ETag").to_owned()
}

#[test]
fn if_match_compares_strongly() {
    let (_database, server) = start(&[]);
    let mut client = server.client();
    let etag = etag_of(&mut client, "/products/1");
    for tags in [etag.clone(), "*".to_owned(), format!("{OTHER}, {etag}"), format!(" {etag}\t")] {
        let answer = client.get_with("/products/1", &[("If-Match", &tags)]);
        assert_eq!((answer.status, answer.header("etag")), (200, Some(etag.as_str())), "{tags}");
    }
    let two = client.get_with("/products/1", &[("If-Match", OTHER), ("If-Match", &etag)]);
    assert_eq!(two.status, 200, "the lines are one list");
    for tags in [OTHER.to_owned(), format!("W/{etag}"), etag[1..17].to_owned(), String::new()] {
        let answer = client.get_with("/products/1", &[("If-Match", &tags)]);
        assert_eq!(answer.problem(412).0, "Precondition failed", "{tags}");
        assert_eq!(answer.header("etag"), Some(etag.as_str()), "the tag that would match");
        assert_eq!(answer.header("cache-control"), Some("no-store"), "not for another request");
        assert_eq!((answer.cache(), answer.header("age")), ("hit", Some("0")));
        let _grammar = answer.position();
        let head = client.request("HEAD", "/products/1", &[("If-Match", &tags)], b"");
        assert_eq!((head.status, head.body.len()), (412, 0), "{tags}");
    }
}

#[test]
fn an_absent_record_matches_nothing() {
    let (_database, server) = start(&[]);
    let mut client = server.client();
    for cache in ["miss", "hit"] {
        for tags in ["*", OTHER] {
            let answer = client.get_with("/products/999", &[("If-Match", tags)]);
            answer.problem(412);
            assert_eq!(answer.header("etag"), None);
            if tags == "*" {
                assert_eq!(answer.cache(), cache);
            }
        }
    }
    assert_eq!(client.get_with("/products/999", &[("If-None-Match", "*")]).status, 404);
    // Checks of the request come before its conditions (RFC 9110 section 13.2.1).
    assert_eq!(client.get_with("/products/x", &[("If-Match", OTHER)]).status, 400);
    assert_eq!(client.get_with("/nothing/1", &[("If-Match", OTHER)]).status, 404);
    assert_eq!(client.request("DELETE", "/products/1", &[("If-Match", OTHER)], b"").status, 405);
}

#[test]
fn if_match_is_evaluated_before_if_none_match_and_dates_are_ignored() {
    let (_database, server) = start(&[]);
    let mut client = server.client();
    let etag = etag_of(&mut client, "/products/1");
    for (if_match, if_none_match, status) in [
        (OTHER, etag.as_str(), 412),
        (OTHER, "*", 412),
        (OTHER, OTHER, 412),
        (etag.as_str(), etag.as_str(), 304),
        ("*", "*", 304),
        (etag.as_str(), OTHER, 200),
    ] {
        let fields = [("If-None-Match", if_none_match), ("If-Match", if_match)];
        assert_eq!(client.get_with("/products/1", &fields).status, status, "{fields:?}");
    }
    for (name, value) in [
        ("If-Unmodified-Since", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("If-Modified-Since", "Sun, 06 Nov 2094 08:49:37 GMT"),
        ("If-Range", OTHER),
    ] {
        assert_eq!(client.get_with("/products/1", &[(name, value)]).status, 200, "{name}");
    }
}

/// The condition applies to the answer that would be sent, from any origin.
#[test]
fn the_condition_applies_to_the_record_as_read() {
    let (database, server) = start(&[
        ("collections.products.allow_no_cache", "true"),
        ("collections.products.allow_min_position", "true"),
    ]);
    let mut client = server.client();
    let old = etag_of(&mut client, "/products/1");
    database.execute("UPDATE products SET price = 7 WHERE id = 1");
    let mut new = String::new();
    await_until("the change", SOON, || {
        new = etag_of(&mut client, "/products/1");
        new != old
    });
    let position = client.get("/products/1").position().to_string();
    for special in [("Cache-Control", "no-cache"), ("Hotrow-Min-Position", position.as_str())] {
        for (tag, status) in [(&new, 200), (&old, 412)] {
            let answer = client.get_with("/products/1", &[special, ("If-Match", tag)]);
            assert_eq!(answer.status, status, "{special:?}");
            assert_eq!(answer.header("etag"), Some(new.as_str()), "{special:?}");
        }
    }
    let bypass =
        client.get_with("/products/1", &[("Cache-Control", "no-cache"), ("If-Match", &old)]);
    assert_eq!((bypass.status, bypass.cache()), (412, "bypass"), "read from the database");
    // An uncached record: the condition waits for the read.
    let cold = client.get_with("/products/2", &[("If-Match", OTHER)]);
    assert_eq!((cold.status, cold.cache()), (412, "miss"));
    assert_eq!(client.get("/products/2").cache(), "hit", "the record is cached");
}

#[test]
fn a_batch_has_no_tag_to_match() {
    let (_database, server) = start(&[]);
    let mut client = server.client();
    let body = br#"{"ids":[1]}"#;
    for (tags, status) in [("*", 200), (OTHER, 412), ("\"\"", 412)] {
        let answers = [
            client.get_with("/products?ids=1", &[("If-Match", tags)]),
            client.request("POST", "/products", &[("If-Match", tags)], body),
        ];
        for answer in answers {
            assert_eq!((answer.status, answer.header("etag")), (status, None), "{tags}");
        }
    }
    assert_eq!(
        client.get_with("/products?ids=", &[("If-Match", OTHER)]).status,
        400,
        "the batch's own error has priority"
    );
    assert_eq!(
        client.get_with("/products?ids=1", &[("If-None-Match", "*")]).status,
        200,
        "not evaluated"
    );
    assert_eq!(client.get("/products/1").status, 200);
}
