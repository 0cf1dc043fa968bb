//! Rows as JSON, and keys, over HTTP.

use crate::postgres::shop::Shop;
use crate::shop::{await_body, await_status, cached};
use hotrow_testkit::harness::Server;

/// Column, type, value in SQL, JSON.
const VALUES: &[(&str, &str, &str, &str)] = &[
    ("a_bool", "boolean", "true", "true"),
    ("a_int2", "smallint", "-32768", "-32768"),
    ("a_int8", "bigint", "9223372036854775807", "9223372036854775807"),
    (
        "a_numeric",
        "numeric",
        "123456789012345678901234567890.1200",
        "123456789012345678901234567890.1200",
    ),
    (
        "a_small_numeric",
        "numeric",
        "0.00000000000000000000000000000001",
        "0.00000000000000000000000000000001",
    ),
    ("a_numeric_nan", "numeric", "'NaN'", "\"NaN\""),
    ("a_float8", "float8", "0.1", "0.1"),
    ("a_float8_inf", "float8", "'-Infinity'", "\"-Infinity\""),
    (
        "a_text",
        "text",
        "E'quote \" back \\\\ slash / tab \\t é 漢'",
        "\"quote \\\" back \\\\ slash / tab \\t é 漢\"",
    ),
    ("a_varchar", "varchar(5)", "'abc'", "\"abc\""),
    ("a_char", "char(5)", "'abc'", "\"abc  \""),
    ("a_bytea", "bytea", "'\\x00ff10'", "\"AP8Q\""),
    (
        "a_uuid",
        "uuid",
        "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'",
        "\"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11\"",
    ),
    ("a_date", "date", "'2024-02-29'", "\"2024-02-29\""),
    ("a_time", "time", "'13:14:15.5'", "\"13:14:15.5\""),
    ("a_timestamp", "timestamp", "'2024-02-29 13:14:15.000001'", "\"2024-02-29T13:14:15.000001\""),
    ("a_timestamptz", "timestamptz", "'2024-02-29 13:14:15+02'", "\"2024-02-29T11:14:15Z\""),
    ("an_early_date", "date", "'4713-01-01 BC'", "\"4713-01-01 BC\""),
    ("a_late_date", "date", "'12345-01-01'", "\"12345-01-01\""),
    (
        "an_early_timestamptz",
        "timestamptz",
        "'4713-01-01 00:00:00+00 BC'",
        "\"4713-01-01T00:00:00Z BC\"",
    ),
    ("an_endless_timestamp", "timestamp", "'infinity'", "\"infinity\""),
    ("a_json", "json", "'{\"b\": 1,  \"a\": [null]}'", "{\"b\": 1,  \"a\": [null]}"),
    ("a_jsonb", "jsonb", "'{\"b\": 1,  \"a\": [null]}'", "{\"a\": [null], \"b\": 1}"),
    ("a_array", "integer[]", "'{1,NULL,3}'", "[1,null,3]"),
    ("a_matrix", "text[]", "'{{a,b},{\"c,d\",\"\"}}'", "[[\"a\",\"b\"],[\"c,d\",\"\"]]"),
    ("an_empty_array", "text[]", "'{}'", "[]"),
    ("a_range", "int4range", "'[1,10)'", "{\"lower\":1,\"upper\":10,\"bounds\":\"[)\"}"),
    ("an_open_range", "int4range", "'[1,)'", "{\"lower\":1,\"upper\":null,\"bounds\":\"[)\"}"),
    ("an_empty_range", "int4range", "'empty'", "{\"empty\":true}"),
    ("a_enum", "mood", "'so-so'", "\"so-so\""),
    ("a_domain", "positive", "5", "5"),
    ("a_composite", "point3", "ROW(1, 'two', NULL)", "{\"x\":1,\"y\":\"two\",\"z\":null}"),
    ("a_inet", "inet", "'192.168.0.1/24'", "\"192.168.0.1/24\""),
    ("a_null", "text", "NULL", "null"),
];

#[test]
fn every_type_has_its_json() {
    let columns: Vec<String> =
        VALUES.iter().map(|(name, ty, _, _)| format!("{name} {ty}")).collect();
    let values: Vec<&str> = VALUES.iter().map(|(_, _, value, _)| *value).collect();
    let shop = Shop::new(&format!(
        "CREATE TYPE mood AS ENUM ('good', 'so-so'); \
         CREATE DOMAIN positive AS integer CHECK (VALUE > 0);
         CREATE TYPE point3 AS (x integer, y text, z numeric);
         CREATE TABLE things(id integer PRIMARY KEY, {});
         INSERT INTO things VALUES (1, {})",
        columns.join(", "),
        values.join(", ")
    ));
    let server = shop.serve(&["things"]);
    let text = server.get("/things/1").text();
    let mut rest = text.strip_prefix("{\"id\":1").unwrap_or_else(|| panic!("{text}"));
    for (name, ty, value, json) in VALUES {
        let expected = format!(",\"{name}\":{json}");
        rest = rest
            .strip_prefix(&expected)
            .unwrap_or_else(|| panic!("{ty} {value}: not {expected} but {:.120}", rest));
    }
    assert_eq!(rest, "}");
    let _: serde_json::Value = serde_json::from_str(&text).expect("it is JSON as a whole");
}

#[test]
fn keys_of_every_type_name_their_rows_and_their_changes() {
    let uuid = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
    let shop = Shop::new(&format!(
        "CREATE TABLE longs(id bigint PRIMARY KEY, n integer); \
         INSERT INTO longs VALUES (-9223372036854775808, 1);
         CREATE TABLE texts(id text PRIMARY KEY, n integer); \
         INSERT INTO texts VALUES ('a/b c%é', 1), ('', 2);
         CREATE TABLE uuids(id uuid PRIMARY KEY, n integer); INSERT INTO uuids VALUES ('{uuid}', 1);
         CREATE TABLE pairs(a integer, b text, n integer, PRIMARY KEY (b, a)); \
         INSERT INTO pairs VALUES (7, 'x,y', 1);
         CREATE TABLE blobs(id bytea PRIMARY KEY, n integer); \
         INSERT INTO blobs VALUES ('\\x00ff', 1);
         CREATE TABLE amounts(id numeric(8, 2) PRIMARY KEY, n integer); \
         INSERT INTO amounts VALUES (9.5, 1);
         CREATE TABLE days(id date PRIMARY KEY, n integer); \
         INSERT INTO days VALUES ('2024-02-29', 1);
         CREATE TABLE instants(id timestamptz PRIMARY KEY, n integer);
         INSERT INTO instants VALUES ('2024-02-29 13:14:15+02', 1);
         CREATE TABLE flags(id boolean PRIMARY KEY, n integer); INSERT INTO flags VALUES (true, 1);
         CREATE TABLE codes(id char(4) PRIMARY KEY, n integer); INSERT INTO codes VALUES ('ab', 1)"
    ));
    let all = [
        "longs", "texts", "uuids", "pairs", "blobs", "amounts", "days", "instants", "flags",
        "codes",
    ];
    let config = shop.config_of(&all).set("collections.pairs.key", "[\"a\", \"b\"]");
    let server = Server::start(&config);
    let mut client = server.client();
    let rows = [
        ("/longs/-9223372036854775808", "\"id\":-9223372036854775808,", "longs"),
        ("/texts/a%2Fb%20c%25%C3%A9", "\"id\":\"a/b c%é\",", "texts WHERE id <> ''"),
        (&format!("/uuids/{}", uuid.to_uppercase()), &format!("\"id\":\"{uuid}\","), "uuids"),
        ("/pairs/7,x%2Cy", "\"a\":7,\"b\":\"x,y\",", "pairs"),
        // In the form of the URL; other columns of the type are in base64.
        ("/blobs/00ff", "\"id\":\"00ff\",", "blobs"),
        ("/amounts/9.50", "\"id\":9.50,", "amounts"),
        ("/days/2024-02-29", "\"id\":\"2024-02-29\",", "days"),
        ("/instants/2024-02-29T11:14:15Z", "\"id\":\"2024-02-29T11:14:15Z\",", "instants"),
        ("/flags/true", "\"id\":true,", "flags"),
        ("/codes/ab", "\"id\":\"ab  \",", "codes"),
    ];
    for (path, key, table) in rows {
        assert_eq!(cached(&mut client, path).text(), format!("{{{key}\"n\":1}}"));
        let (table, condition) = table.split_once(" WHERE ").unwrap_or((table, "true"));
        shop.server.batch(&format!("UPDATE {table} SET n = 9 WHERE {condition}"));
        await_body(&mut client, path, &format!("{{{key}\"n\":9}}"));
        shop.server.batch(&format!("DELETE FROM {table} WHERE {condition}"));
        await_status(&mut client, path, 404);
    }
    for path in
        ["/amounts/1e3", "/amounts/x", "/days/2023-02-29", "/instants/2024-02-29", "/flags/t"]
    {
        assert_eq!(client.get(path).status, 400, "{path}");
    }
    for path in [
        "/longs/1.5",
        "/longs/9223372036854775808",
        "/uuids/7",
        "/pairs/7",
        "/blobs/0",
        "/texts/%00",
    ] {
        assert_eq!(client.get(path).status, 400, "{path}");
    }
}

#[test]
fn columns_are_selected_and_excluded() {
    let shop = Shop::with_products();
    shop.server.batch(
        "CREATE TABLE secrets AS SELECT id, name, price, 'x' AS secret \
         FROM products; ALTER TABLE secrets ADD PRIMARY KEY (id)",
    );
    let config = shop
        .config_of(&["products", "secrets"])
        .set("collections.products.columns", "[\"price\", \"id\"]")
        .set("collections.secrets.exclude", "[\"secret\", \"name\"]");
    let server = Server::start(&config);
    assert_eq!(server.get("/products/2").text(), "{\"price\":200,\"id\":2}");
    assert_eq!(server.get("/secrets/2").text(), "{\"id\":2,\"price\":200}");
}
