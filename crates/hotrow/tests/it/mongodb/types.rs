//! Values as JSON, and keys of every kind.

use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{
    Binary, Bson, DateTime, Decimal128, Regex, Timestamp, Uuid, doc, oid::ObjectId,
};

use crate::mongodb::shop::Shop;
use crate::shop::{await_body, await_status, cached};
use hotrow_testkit::harness::Server;

const UUID: &str = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
const OID: &str = "507f1f77bcf86cd799439011";

/// Returns name, value, plain JSON and relaxed Extended JSON. An empty plain form is covered by the
/// engine's own tests.
fn values() -> Vec<(&'static str, Bson, &'static str, &'static str)> {
    let decimal = |text: &str| Bson::Decimal128(text.parse::<Decimal128>().expect("a decimal"));
    vec![
        (
            "a_string",
            "quote \" back \\ tab \t é 漢".into(),
            r#""quote \" back \\ tab \t é 漢""#,
            r#""quote \" back \\ tab \t é 漢""#,
        ),
        ("an_int", Bson::Int32(-7), "-7", "-7"),
        ("a_long", Bson::Int64(i64::MAX), "9223372036854775807", "9223372036854775807"),
        ("a_double", Bson::Double(0.1), "0.1", "0.1"),
        (
            "a_decimal",
            decimal("1234567890.1200"),
            "1234567890.1200",
            r#"{"$numberDecimal":"1234567890.1200"}"#,
        ),
        ("true", Bson::Boolean(true), "true", "true"),
        ("null", Bson::Null, "null", "null"),
        (
            "a_date",
            Bson::DateTime(DateTime::from_millis(1_709_212_395_500)),
            r#""2024-02-29T13:13:15.500Z""#,
            r#"{"$date":"2024-02-29T13:13:15.500Z"}"#,
        ),
        (
            "an_oid",
            Bson::ObjectId(ObjectId::parse_str(OID).expect("an id")),
            "\"507f1f77bcf86cd799439011\"",
            r#"{"$oid":"507f1f77bcf86cd799439011"}"#,
        ),
        (
            "a_uuid",
            Uuid::parse_str(UUID).expect("a UUID").into(),
            "\"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11\"",
            r#"{"$binary":{"base64":"oO68mZwLTvi7bWu5vTgKEQ==","subType":"04"}}"#,
        ),
        (
            "bytes",
            Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: vec![0, 255, 16] }),
            "\"AP8Q\"",
            r#"{"$binary":{"base64":"AP8Q","subType":"00"}}"#,
        ),
        (
            "an_array",
            Bson::Array(vec![1.into(), Bson::Null, doc! { "x": 1 }.into()]),
            r#"[1,null,{"x":1}]"#,
            r#"[1,null,{"x":1}]"#,
        ),
        (
            "a_document",
            doc! { "b": 1, "a": { "c": [] } }.into(),
            r#"{"b":1,"a":{"c":[]}}"#,
            r#"{"b":1,"a":{"c":[]}}"#,
        ),
        (
            "a_timestamp",
            Bson::Timestamp(Timestamp { time: 5, increment: 6 }),
            "",
            r#"{"$timestamp":{"t":5,"i":6}}"#,
        ),
        (
            "a_regex",
            Bson::RegularExpression(Regex {
                pattern: "a+".try_into().expect("no NUL"),
                options: "i".try_into().expect("no NUL"),
            }),
            "",
            r#"{"$regularExpression":{"pattern":"a+","options":"i"}}"#,
        ),
        ("a_min", Bson::MinKey, "", r#"{"$minKey":1}"#),
    ]
}

#[test]
fn every_type_has_its_json() {
    let shop = Shop::empty();
    let mut document = doc! { "_id": 1 };
    document.extend(values().into_iter().map(|(name, value, _, _)| (name.to_owned(), value)));
    shop.mongo.insert("things", [document]);
    for (form, extended) in [("plain", false), ("relaxed", true)] {
        let server =
            Server::start(&shop.config_of(&["things"]).set("source.json", &format!("\"{form}\"")));
        let text = server.get("/things/1").text();
        let mut from = 0;
        for (name, value, plain, relaxed) in values() {
            let json = if extended { relaxed } else { plain };
            let expected = format!(",\"{name}\":{json}");
            let place = text[from..].find(&expected);
            from +=
                place.unwrap_or_else(|| panic!("{value:?}: no {expected} in {}", &text[from..]));
        }
        let _: serde_json::Value = serde_json::from_str(&text).expect("it is JSON as a whole");
    }
}

#[test]
fn keys_of_every_kind_name_their_documents_and_their_changes() {
    let shop = Shop::empty();
    let oid = ObjectId::parse_str(OID).expect("an id");
    let uuid = Uuid::parse_str(UUID).expect("a UUID");
    let kinds: [(&str, &str, Bson, String, &str); 4] = [
        (
            "longs",
            "/-9223372036854775808",
            Bson::Int64(i64::MIN),
            "-9223372036854775808".to_owned(),
            "integer",
        ),
        ("texts", "/a%2Fb%20c%25%C3%A9", "a/b c%é".into(), "\"a/b c%é\"".to_owned(), "text"),
        ("oids", "/507f1f77bcf86cd799439011", oid.into(), format!("\"{OID}\""), "objectid"),
        (
            "uuids",
            "/A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
            uuid.into(),
            format!("\"{UUID}\""),
            "uuid",
        ),
    ];
    let served: Vec<&str> = kinds.iter().map(|kind| kind.0).collect();
    for (name, _, id, ..) in &kinds {
        shop.mongo.insert(name, [doc! { "_id": id.clone(), "n": 1 }]);
    }
    // First with the types found in a sample, then with configured types.
    let configured = kinds.iter().fold(shop.config_of(&served), |config, kind| {
        config.set(&format!("collections.{}.key_type", kind.0), &format!("\"{}\"", kind.4))
    });
    for config in [shop.config_of(&served), configured] {
        let server = Server::start(&config);
        let mut client = server.client();
        for (name, path, id, json, _) in &kinds {
            let path = format!("/{name}{path}");
            shop.mongo.replace(name, id.clone(), doc! { "n": 1 });
            await_body(&mut client, &path, &format!("{{\"_id\":{json},\"n\":1}}"));
            cached(&mut client, &path);
            shop.mongo.update(name, id.clone(), doc! { "$set": { "n": 9 } });
            await_body(&mut client, &path, &format!("{{\"_id\":{json},\"n\":9}}"));
            cached(&mut client, &path);
            shop.mongo.delete(name, id.clone());
            await_status(&mut client, &path, 404);
            shop.mongo.insert(name, [doc! { "_id": id.clone(), "n": 1 }]);
        }
        for path in [
            "/longs/1.5",
            "/longs/9223372036854775808",
            "/uuids/7",
            "/oids/7",
            "/oids/zzzf1f77bcf86cd799439011",
        ] {
            assert_eq!(client.get(path).status, 400, "{path}");
        }
    }
}

#[test]
fn fields_are_chosen_and_left_out() {
    let shop = Shop::with_products();
    shop.mongo.insert("secrets", [doc! { "_id": 2, "name": "p2", "price": 200, "secret": "x" }]);
    let config = shop
        .config_of(&["products", "secrets"])
        .set("collections.products.columns", "[\"price\", \"_id\"]")
        .set("collections.secrets.exclude", "[\"secret\", \"name\"]");
    let server = Server::start(&config);
    let chosen = server.get("/products/2").json();
    assert_eq!(
        (
            chosen["price"].as_i64(),
            chosen["_id"].as_i64(),
            chosen.as_object().map(serde_json::Map::len)
        ),
        (Some(200), Some(2), Some(2))
    );
    assert_eq!(server.get("/secrets/2").text(), "{\"_id\":2,\"price\":200}");
}
