//! Every type with random values: the JSON of a read against the database's own form of the same
//! value.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use serde_json::Value;

mod cases;

use self::cases::{Case, cases};
use super::harness::{Reader, config, refusal};
use super::server::{Server, inherited};
use hotrow_source::{Row, SourceError};

/// Rows per round, and rounds per type.
const VALUES: usize = 120;
const ROUNDS: u32 = 5;

/// Types that the tables need.
const TYPES: &str = r#"
    CREATE EXTENSION hstore; CREATE EXTENSION citext; CREATE EXTENSION ltree;
    CREATE TYPE mood AS ENUM ('sad', 'o"k', 'glücklich');
    CREATE DOMAIN price AS numeric(20, 3);
    CREATE DOMAIN numbers AS int[];
    CREATE TYPE inner_row AS (a int, "b ""c" text);
    CREATE TYPE outer_row AS (i inner_row, p price, l int[], m mood, w numeric);
    CREATE TYPE with_point AS (p point, n int);
    CREATE TYPE textrange AS RANGE (subtype = text);
"#;

/// Makes the settings those of a database, which count for more than those of the server.
fn inherit(server: &Server) {
    for (name, value) in inherited() {
        server.batch(&format!("ALTER DATABASE postgres SET {name} = '{value}'"));
        // Those of a role count for more.
        server.batch(&format!("ALTER ROLE postgres SET {name} = '{value}'"));
    }
}

/// Compares machine numbers by value: 1, 1.0 and 1e0 are equal.
fn agree(declared: &str, got: &str, expected: &str) -> bool {
    match declared {
        "float8" => got.parse::<f64>().ok() == expected.parse().ok(),
        "float4" => got.parse::<f32>().ok() == expected.parse().ok(),
        _ => got == expected,
    }
}

#[test]
fn every_type_reads_as_the_database_says() {
    let server = Server::start(&[]);
    server.batch(TYPES);
    inherit(&server);
    let cases = cases();
    for (i, case) in cases.iter().enumerate() {
        server.batch(&format!("CREATE TABLE t{i} (id int PRIMARY KEY, v {})", case.declared));
    }
    let names: Vec<String> = (0..cases.len()).map(|i| format!("t{i}(id)")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let reader = Reader::on(&server, &names);
    let mut wrong = Vec::new();
    for (i, case) in cases.iter().enumerate() {
        let config = Config {
            cases: ROUNDS,
            max_shrink_iters: 40,
            failure_persistence: None,
            ..Config::default()
        };
        let value = prop_oneof![20 => case.values.clone(), 1 => Just("NULL".to_owned())];
        let round = TestRunner::new(config)
            .run(&prop::collection::vec(value, 1..=VALUES), |values| {
                check(&server, &reader, i, case, &values).map_err(TestCaseError::fail)
            });
        // All types are tried, so that one run reports all faults.
        match round {
            Ok(()) => {}
            Err(TestError::Fail(why, _)) => wrong.push(format!("{}: {why}", case.declared)),
            Err(e) => wrong.push(format!("{}: {e}", case.declared)),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Writes the values, reads them, and compares with the database's form.
fn check(
    server: &Server,
    reader: &Reader,
    table: usize,
    case: &Case,
    values: &[String],
) -> Result<(), String> {
    let rows: Vec<String> = values
        .iter()
        .enumerate()
        .map(|(id, v)| format!("({id}, ({v})::{})", case.declared))
        .collect();
    let expected = server.try_query(&format!(
        "SET TimeZone = 'UTC'; SET IntervalStyle = 'iso_8601'; SET extra_float_digits = 1; \
         SET DateStyle = 'ISO, MDY'; SET bytea_output = 'hex'; SET xmlbinary = 'base64'; \
         SET standard_conforming_strings = on; SET array_nulls = on; \
         TRUNCATE t{table};
         INSERT INTO t{table} VALUES {};
         SELECT json_agg(coalesce({}, 'null') ORDER BY id) FROM t{table}",
        rows.join(",\n"),
        case.expected
    ))?;
    let expected: Vec<String> = serde_json::from_str(&expected).unwrap();
    let ids: Vec<String> = (0..values.len()).map(|id| id.to_string()).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let set = reader.read(table as u16, &ids).map_err(|e| e.to_string())?;
    for (id, row) in set.rows.iter().enumerate() {
        let Row::Found(json) = row else { return Err(format!("{row:?} for {}", values[id])) };
        let json = std::str::from_utf8(json).unwrap();
        let got = json
            .strip_prefix(&format!("{{\"id\":{id},\"v\":"))
            .and_then(|rest| rest.strip_suffix('}'))
            .unwrap();
        if !agree(case.declared, got, &expected[id]) {
            return Err(format!("{}\n got {got}\nexpected {}", values[id], expected[id]));
        }
        serde_json::from_str::<Value>(json).map_err(|e| format!("{json}: {e}"))?;
    }
    Ok(())
}

#[test]
fn references_are_numbers_and_names_inside_other_types_are_refused() {
    let server = Server::any();
    server.batch(
        "CREATE TABLE audited (x int); CREATE DOMAIN place AS regclass; \
         CREATE TYPE pair AS (c regclass, n regnamespace); \
         CREATE TABLE t (id int PRIMARY KEY, c regclass, p regproc, pp regprocedure, o regoper, \
           oo regoperator, ty regtype, r regrole, n regnamespace, co regcollation, f regconfig, \
           d regdictionary, l regclass[], dom place, comp pair); \
         INSERT INTO t VALUES (1, 'audited', 'now', 'lower(text)', '||/', '+(int4,int4)', 'int4', \
           'postgres', 'public', '\"C\"', 'simple', 'simple', ARRAY['audited'::regclass], \
           'audited', ROW('audited', 'public'))",
    );
    let reader = Reader::on(&server, &["t(id)"]);
    let columns = ["c", "p", "pp", "o", "oo", "ty", "r", "n", "co", "f", "d", "dom"];
    let columns = columns.map(|name| format!("'{name}', {name}::oid::int8")).join(", ");
    let expected = format!(
        "SELECT json_build_object('id', 1, {columns}, 'l', l::oid[]::int8[], 'comp', \
         json_build_object('c', (comp).c::oid::int8, 'n', (comp).n::oid::int8)) FROM t"
    );
    let expected: Value = serde_json::from_str(&server.query(&expected)).unwrap();
    assert_eq!(reader.json(0, "1"), expected);
    server.batch("ALTER TABLE audited RENAME TO other");
    assert_eq!(reader.json(0, "1"), expected);
    // These would be sent as the server's text or JSON.
    server.batch("CREATE TYPE mixed AS (c regclass, v tsvector); CREATE DOMAIN acl AS aclitem[]");
    for (i, declared) in ["mixed", "mixed[]", "aclitem", "acl"].iter().enumerate() {
        server.batch(&format!("CREATE TABLE u{i} (id int PRIMARY KEY, v {declared})"));
        let table = format!("u{i}(id)");
        let refused = refusal(config(&server.url(), &[&table]));
        assert!(refused.contains("contain names of objects or roles"), "{declared}: {refused}");
        assert!(refused.contains("exclude = [\"v\"]"), "{declared}: {refused}");
    }
}

#[test]
fn json_is_embedded_unchanged() {
    let server = Server::any();
    server.batch(
        r#"CREATE TABLE t (id int PRIMARY KEY, j json, b jsonb);
           INSERT INTO t VALUES (1, '{"a" : 1.10, "a": 2}', '{"a" : 1.10, "a": 2.00}')"#,
    );
    let reader = Reader::on(&server, &["t(id)"]);
    assert_eq!(reader.text(0, "1"), r#"{"id":1,"j":{"a" : 1.10, "a": 2},"b":{"a": 2.00}}"#);
}

#[test]
fn numbers_without_a_json_form_are_texts() {
    let server = Server::any();
    server.batch(
        "CREATE TABLE t (id int PRIMARY KEY, a float8, b float4, c numeric);
         INSERT INTO t VALUES (1, 'NaN', 'Infinity', '-Infinity'), (2, '-Infinity', 'NaN', \
         'NaN'), (3, '1e300', '1', '1e3')",
    );
    let reader = Reader::on(&server, &["t(id)"]);
    assert_eq!(reader.text(0, "1"), r#"{"id":1,"a":"NaN","b":"Infinity","c":"-Infinity"}"#);
    assert_eq!(reader.text(0, "2"), r#"{"id":2,"a":"-Infinity","b":"NaN","c":"NaN"}"#);
    assert_eq!(reader.text(0, "3"), r#"{"id":3,"a":1e300,"b":1.0,"c":1000}"#);
}

#[test]
fn a_database_in_another_encoding_is_served_in_utf8() {
    let server = Server::start(&[]);
    server.batch("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
    let url = server.url_for("postgres", "latin");
    let sql = "CREATE TABLE t (id text PRIMARY KEY, v text); INSERT INTO t VALUES ('ü', 'ß')";
    let mut psql = std::process::Command::new("psql");
    let done =
        psql.args(["-X", "-q", "-d", &url, "-c", sql]).env("PGCLIENTENCODING", "UTF8").status();
    assert!(done.is_ok_and(|status| status.success()));
    let reader = Reader::open(config(&url, &["t(id)"]));
    assert_eq!(reader.text(0, "%C3%BC"), r#"{"id":"ü","v":"ß"}"#);
    // No row can have this key. The server rejects the statement, and says nothing of the other.
    let (emoji, known) = ("%F0%9F%98%80", "%C3%BC");
    let set = reader.read(0, &[emoji]).unwrap();
    assert_eq!(set.rows, [Row::Missing]);
    assert!(set.position.is_some(), "it is a row that is missing at a known point");
    let error = reader.read(0, &[emoji, known]).unwrap_err();
    assert!(matches!(error, SourceError::Data { .. }), "{error}");
}
