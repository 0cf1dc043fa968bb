//! Served JSON of every type against the database's own text, for random values.

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::Value;

use super::harness::Reader;
use super::server::{Flavor, Server};

/// Number of values per type.
const VALUES: usize = 60;

/// Expected JSON, by an expression over the column `v`.
enum Expected {
    /// Exactly these characters.
    Raw(&'static str),
    /// A string with this text.
    Text(&'static str),
    /// An equal number of single precision.
    Single,
    Double,
    /// Equal JSON.
    Json,
}

struct Case {
    declared: &'static str,
    expected: Expected,
    values: BoxedStrategy<String>,
}

const NUMBER: Expected = Expected::Raw("CAST(v AS CHAR)");
const BASE64: Expected = Expected::Text("REPLACE(TO_BASE64(v), '\n', '')");
const TEXT: Expected = Expected::Text("v");
/// Without the trailing zeros of a fraction.
const TIME: Expected =
    Expected::Text("TRIM(TRAILING '.' FROM IF(v LIKE '%.%', TRIM(TRAILING '0' FROM v), v))");
const DATETIME: Expected = Expected::Text(
    "REPLACE(TRIM(TRAILING '.' FROM IF(v LIKE '%.%', TRIM(TRAILING '0' FROM v), v)), ' ', 'T')",
);
const TIMESTAMP: Expected = Expected::Text(
    "CONCAT(REPLACE(TRIM(TRAILING '.' FROM IF(v LIKE '%.%', TRIM(TRAILING '0' FROM v), v)), \
     ' ', 'T'), 'Z')",
);

fn case<S: Strategy<Value = String> + 'static>(
    declared: &'static str,
    expected: Expected,
    values: S,
) -> Case {
    Case { declared, expected, values: values.boxed() }
}

fn text(pattern: &'static str) -> impl Strategy<Value = String> {
    pattern.prop_map(|text| format!("_utf8mb4 x'{}'", hex(text.as_bytes())))
}

fn bytes(most: usize) -> impl Strategy<Value = String> {
    prop::collection::vec(any::<u8>(), 0..=most).prop_map(|bytes| format!("x'{}'", hex(&bytes)))
}

fn one_of(literals: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::sample::select(literals).prop_map(|literal| format!("'{literal}'"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn date() -> impl Strategy<Value = String> {
    prop_oneof![
        9 => (1..=9999_u32, 1..=12_u32, 1..=28_u32)
            .prop_map(|(y, m, d)| format!("{y:04}-{m:02}-{d:02}")),
        1 => Just("0000-00-00".to_owned()),
    ]
}

fn clock() -> impl Strategy<Value = String> {
    let micros = prop_oneof![Just(0), Just(500_000_u32), 0..1_000_000_u32];
    (0..24_u32, 0..60_u32, 0..60_u32, micros)
        .prop_map(|(h, m, s, f)| format!("{h:02}:{m:02}:{s:02}.{f:06}"))
}

fn datetime() -> impl Strategy<Value = String> {
    (date(), clock()).prop_map(|(d, t)| {
        if d.starts_with("0000") { format!("'{d}'") } else { format!("'{d} {t}'") }
    })
}

fn timestamp() -> impl Strategy<Value = String> {
    // In UTC, from the second day on, because the server's own time zone differs.
    (86_400..i64::from(i32::MAX), 0..1_000_000_u32)
        .prop_map(|(s, f)| format!("FROM_UNIXTIME({s}.{f:06})"))
}

fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        any::<i32>().prop_map(|n| n.to_string()),
        "[a-z äß€😀\"\\\\/\n]{0,8}".prop_map(|t| serde_json::to_string(&t).unwrap()),
    ];
    let nested = leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3)
                .prop_map(|list| format!("[{}]", list.join(", "))),
            inner.prop_map(|value| format!("{{\"k\" : {value}}}")),
        ]
    });
    nested.prop_map(|text| format!("_utf8mb4 x'{}'", hex(text.as_bytes())))
}

fn cases() -> Vec<Case> {
    const ANY: &str = "[a-zA-Z \"'\\\\/\n\täß€😀\u{1}\u{7f}]{0,12}";
    const LATIN: &str = "[a-zA-Z \"'\\\\äß€éÿ]{0,12}";
    vec![
        case("tinyint", NUMBER, any::<i8>().prop_map(|v| v.to_string())),
        case("tinyint(1)", NUMBER, any::<bool>().prop_map(|v| v.to_string())),
        case("smallint unsigned", NUMBER, any::<u16>().prop_map(|v| v.to_string())),
        case("mediumint", NUMBER, (-8_388_608..8_388_608_i32).prop_map(|v| v.to_string())),
        case(
            "int(9) zerofill",
            Expected::Raw("CAST(v + 0 AS CHAR)"),
            any::<u32>().prop_map(|v| v.to_string()),
        ),
        case("bigint", NUMBER, any::<i64>().prop_map(|v| v.to_string())),
        case("bigint unsigned", NUMBER, any::<u64>().prop_map(|v| v.to_string())),
        case(
            "decimal(65,30)",
            NUMBER,
            (any::<i64>(), any::<u64>()).prop_map(|(a, b)| format!("{a}.{b}")),
        ),
        case(
            "decimal(9,2) unsigned zerofill",
            Expected::Raw("CAST(v + 0 AS CHAR)"),
            (0..9_999_999_u32).prop_map(|v| format!("{v}.5")),
        ),
        case(
            "float",
            Expected::Single,
            any::<f32>().prop_filter("finite", |v| v.is_normal()).prop_map(|v| format!("{v:e}")),
        ),
        case(
            "float(10,3)",
            Expected::Single,
            (-99_999..99_999_i32).prop_map(|v| format!("{v}.125")),
        ),
        case(
            "double",
            Expected::Double,
            any::<f64>().prop_filter("finite", |v| v.is_normal()).prop_map(|v| format!("{v:e}")),
        ),
        case("bit(1)", Expected::Raw("CAST(v + 0 AS CHAR)"), (0..2_u8).prop_map(|v| v.to_string())),
        case(
            "bit(64)",
            Expected::Raw("CAST(v + 0 AS CHAR)"),
            any::<u64>().prop_map(|v| v.to_string()),
        ),
        case("char(12)", TEXT, text(ANY)),
        case("varchar(40)", TEXT, text(ANY)),
        case("varchar(40) CHARACTER SET latin1", TEXT, text(LATIN)),
        case("text CHARACTER SET ucs2", TEXT, text(LATIN)),
        case("mediumtext CHARACTER SET utf8mb3", TEXT, text(LATIN)),
        case("longtext", TEXT, text(ANY)),
        case("enum('a', 'B b', 'ä\"') CHARACTER SET latin1", TEXT, one_of(&["a", "B b", "ä\""])),
        case("set('x', 'y', 'zoë')", TEXT, one_of(&["", "x", "y,zoë", "x,y,zoë"])),
        case("binary(5)", BASE64, bytes(5)),
        case("varbinary(40)", BASE64, bytes(40)),
        case("blob", BASE64, bytes(90)),
        case("date", TEXT, date().prop_map(|d| format!("'{d}'"))),
        case("datetime", DATETIME, datetime()),
        case("datetime(6)", DATETIME, datetime()),
        case("timestamp(3) NULL", TIMESTAMP, timestamp()),
        case("timestamp NULL", TIMESTAMP, timestamp()),
        case(
            "time(6)",
            TIME,
            (0..838_u32, clock()).prop_map(|(h, t)| format!("'-{h}{}'", &t[2..])),
        ),
        case("time", TIME, clock().prop_map(|t| format!("'{t}'"))),
        case("year", NUMBER, (1901..2155_u16).prop_map(|y| y.to_string())),
        case("json", Expected::Json, json()),
        case("uuid", TEXT, any::<u128>().prop_map(|v| format!("'{}'", uuid(v)))),
        case(
            "inet6",
            TEXT,
            any::<u128>().prop_map(|v| format!("'{}'", std::net::Ipv6Addr::from(v))),
        ),
        case(
            "point",
            Expected::Text("REPLACE(TO_BASE64(ST_AsBinary(v)), '\n', '')"),
            any::<(i32, i32)>().prop_map(|(x, y)| format!("point({x}, {y})")),
        ),
    ]
}

fn uuid(v: u128) -> String {
    let text = format!("{v:032x}");
    [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-")
}

/// Returns the expression's text in the database per id. None for NULL.
fn database_texts(server: &Server, table: usize, expression: &str) -> Vec<Option<String>> {
    let sql = format!(
        "SET time_zone = '+00:00'; SET character_set_connection = utf8mb4; \
         SELECT HEX(CONVERT({expression} USING utf8mb4)) FROM t{table} ORDER BY id"
    );
    let text = server.query(&sql);
    let decode = |line: &str| {
        let bytes = (0..line.len() / 2)
            .map(|i| u8::from_str_radix(&line[2 * i..2 * i + 2], 16).unwrap())
            .collect();
        String::from_utf8(bytes).unwrap()
    };
    // An empty text is an empty line. The client omits the last empty lines.
    let mut texts: Vec<Option<String>> =
        text.split('\n').map(|l| (l != "NULL").then(|| decode(l))).collect();
    texts.resize(VALUES + 1, Some(String::new()));
    texts
}

fn check(case: &Case, served: &str, expected: Option<&str>) -> Result<(), String> {
    let wrong = || format!("{}: served {served}, the database has {expected:?}", case.declared);
    let value: Value =
        serde_json::from_str(served).map_err(|e| format!("{}: {e}: {served}", case.declared))?;
    let fits = match (&case.expected, expected) {
        (_, None) => served == "null",
        (Expected::Raw(_), Some(expected)) => served == expected,
        (Expected::Text(_), Some(expected)) => value == expected,
        // The number is parsed from the served text, so equality covers the text.
        (Expected::Single, Some(expected)) => {
            served.parse::<f32>().unwrap() == expected.parse::<f64>().unwrap() as f32
        }
        (Expected::Double, Some(expected)) => served.parse::<f64>() == expected.parse::<f64>(),
        (Expected::Json, Some(expected)) => {
            value == serde_json::from_str::<Value>(expected).unwrap()
        }
    };
    if fits { Ok(()) } else { Err(wrong()) }
}

#[test]
fn served_values_equal_the_databases_own() {
    let server = Server::any();
    let mut cases = cases();
    if server.flavor() == Flavor::MySql {
        cases.retain(|case| !["uuid", "inet6"].contains(&case.declared));
    }
    let mut runner = TestRunner::deterministic();
    let mut sql = "SET sql_mode = '', time_zone = '+00:00';".to_owned();
    for (i, case) in cases.iter().enumerate() {
        let value = |_| case.values.new_tree(&mut runner).unwrap().current();
        let values: Vec<String> =
            (0..VALUES).map(value).enumerate().map(|(id, v)| format!("({id}, {v})")).collect();
        sql += &format!(
            "CREATE TABLE t{i} (id int PRIMARY KEY, v {} ); INSERT INTO t{i} VALUES {}; \
             INSERT INTO t{i} (id, v) VALUES ({VALUES}, NULL);\n",
            case.declared,
            values.join(", ")
        );
    }
    server.batch(&sql);
    let tables: Vec<String> = (0..cases.len()).map(|i| format!("t{i}(id)")).collect();
    let reader = Reader::on(&server, &tables.iter().map(String::as_str).collect::<Vec<_>>());
    let ids: Vec<String> = (0..=VALUES).map(|id| id.to_string()).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let mut wrong = Vec::new();
    for (i, case) in cases.iter().enumerate() {
        let expected = database_texts(
            &server,
            i,
            match case.expected {
                Expected::Raw(sql) | Expected::Text(sql) => sql,
                Expected::Single | Expected::Double => {
                    // MySQL's text of a number has 15 digits, and JSON's has all.
                    server.flavor().choose(
                        "v + 0e0",
                        "IF(v IS NULL, NULL, JSON_EXTRACT(JSON_ARRAY(v + 0e0), '$[0]'))",
                    )
                }
                Expected::Json => "v",
            },
        );
        // There are fewer collections than 2^16.
        for ((id, row), expected) in ids.iter().zip(reader.answers(i as u16, &ids)).zip(expected) {
            let prefix = format!("{{\"id\":{id},\"v\":");
            let served =
                row.strip_prefix(&prefix).and_then(|rest| rest.strip_suffix('}')).unwrap_or(&row);
            wrong.extend(check(case, served, expected.as_deref()).err());
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong, for instance:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(12)].join("\n")
    );
}
