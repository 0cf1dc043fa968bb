//! The types: generators of values in SQL, and the JSON expected.

use proptest::prelude::*;

/// One type: its declaration, a generator of values in SQL, and the expression of the expected
/// JSON.
pub(super) struct Case {
    pub(super) declared: &'static str,
    pub(super) values: BoxedStrategy<String>,
    pub(super) expected: &'static str,
}

/// The database's own JSON.
const OWN: &str = "to_json(v)::text";
/// The text of the value as a JSON string.
const TEXT: &str = "to_json(v::text)::text";
const UTC: &str = "replace(to_json(v)::text, '+00:00', 'Z')";
const RANGE: &str = "CASE WHEN v IS NULL THEN 'null' WHEN isempty(v) THEN '{\"empty\":true}' ELSE \
    '{\"lower\":' || coalesce(to_json(lower(v))::text, 'null') || \
    ',\"upper\":' || coalesce(to_json(upper(v))::text, 'null') || \
    ',\"bounds\":\"' || CASE WHEN lower_inc(v) THEN '[' ELSE '(' END || \
    CASE WHEN upper_inc(v) THEN ']' ELSE ')' END || '\"}' END";
const MULTIRANGE: &str = "CASE WHEN v IS NULL THEN 'null' ELSE '[' || \
    coalesce((SELECT string_agg('{\"lower\":' || coalesce(to_json(lower(r))::text, 'null') || \
    ',\"upper\":' || coalesce(to_json(upper(r))::text, 'null') || \
    ',\"bounds\":\"' || CASE WHEN lower_inc(r) THEN '[' ELSE '(' END || \
    CASE WHEN upper_inc(r) THEN ']' ELSE ')' END || '\"}', ',' ORDER BY r) \
    FROM unnest(v) r), '') || ']' END";

fn case<S: Strategy<Value = String> + 'static>(
    declared: &'static str,
    expected: &'static str,
    values: S,
) -> Case {
    Case { declared, values: values.boxed(), expected }
}

/// Returns a value as a literal.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn text() -> impl Strategy<Value = String> {
    "([a-zA-Z\"'\\\\/{},() äß€😀]|[\\x01-\\x1f\\x7f]){0,12}"
}

fn one_of(literals: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::sample::select(literals).prop_map(quoted)
}

fn numeric() -> impl Strategy<Value = String> {
    let digits = ("-?[0-9]{1,60}", "(\\.[0-9]{1,60})?")
        .prop_map(|(whole, fraction)| format!("{whole}{fraction}"));
    let powers = (-200..200_i32, -9..10_i32).prop_map(|(power, digit)| format!("{digit}e{power}"));
    let special = prop::sample::select(
        &["NaN", "Infinity", "-Infinity", "0", "0.000", "-0.0001", "10000", "0.0001"][..],
    );
    prop_oneof![digits, powers, special.prop_map(Into::into)].prop_map(|text| quoted(&text))
}

/// Generates microseconds around 2000, near and far, and the limits.
fn timestamp(ty: &'static str) -> impl Strategy<Value = String> {
    let micros = prop_oneof![
        -211_813_488_000_000_000..9_223_371_331_200_000_000_i64,
        -4_000_000_000_000_000..4_000_000_000_000_000_i64
    ];
    let at = micros.prop_map(move |m| {
        let days = m.div_euclid(86_400_000_000);
        let rest = m.rem_euclid(86_400_000_000);
        format!(
            "(date '2000-01-01' + {days} + make_interval(secs => 0) + interval '{rest} \
             microseconds')::{ty}"
        )
    });
    let special = one_of(&[
        "infinity",
        "-infinity",
        "0001-01-01",
        "0001-12-31 BC",
        "9999-12-31 23:59:59.999999",
    ]);
    prop_oneof![9 => at, 1 => special]
}

fn date() -> impl Strategy<Value = String> {
    let days = prop_oneof![-2_451_500..2_145_031_000_i32, -800_000..3_000_000_i32];
    let finite = days.prop_map(|d| format!("(date '2000-01-01' + {d})"));
    prop_oneof![9 => finite, 1 => one_of(&["infinity", "-infinity"])]
}

fn time() -> impl Strategy<Value = String> {
    (0..86_400_000_000_i64).prop_map(|m| {
        let (h, m, s, f) =
            (m / 3_600_000_000, m / 60_000_000 % 60, m / 1_000_000 % 60, m % 1_000_000);
        format!("{h:02}:{m:02}:{s:02}.{f:06}")
    })
}

fn interval() -> impl Strategy<Value = String> {
    let part = |limit: i64| prop_oneof![Just(0), -limit..limit, -3..4_i64];
    (part(100_000), part(100_000), part(100_000_000_000_000)).prop_map(|(months, days, micros)| {
        quoted(&format!("{months} months {days} days {micros} microseconds"))
    })
}

fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".into()),
        Just("1.10".into()),
        Just("-0".into()),
        Just("1e300".into()),
        "-?[1-9][0-9]{0,30}(\\.[0-9]{1,20})?",
        // jsonb refuses \u0000.
        "[a-zäß€ ]{0,5}".prop_map(|t| serde_json::to_string(&t).unwrap()),
        Just("\"\\\"\\\\\\n\\u00e4\"".into()),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let inner = inner.boxed();
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4)
                .prop_map(|l| format!("[ {} ]", l.join(" ,"))),
            prop::collection::vec(("[ab]", inner), 0..4).prop_map(|l| {
                let members: Vec<String> = l.iter().map(|(k, v)| format!("\"{k}\": {v}")).collect();
                format!("{{{}}}", members.join(",\n"))
            }),
        ]
    })
    .prop_map(|text| quoted(&text))
}

fn inet() -> impl Strategy<Value = String> {
    let v4 = (any::<u32>(), 0..=32_u8)
        .prop_map(|(a, bits)| format!("{}/{bits}", std::net::Ipv4Addr::from(a)));
    // Words that are often zero, so that some are omitted.
    let word = prop_oneof![Just(0_u16), Just(0), any::<u16>(), Just(0xffff)];
    let v6 = (prop::array::uniform8(word), 0..=128_u8).prop_map(|(w, bits)| {
        let words: Vec<String> = w.iter().map(|w| format!("{w:x}")).collect();
        format!("{}/{}", words.join(":"), if bits % 2 == 0 { 128 } else { bits })
    });
    prop_oneof![v4, v6]
}

fn array(
    element: impl Strategy<Value = String> + 'static,
    ty: &'static str,
) -> BoxedStrategy<String> {
    let element = prop_oneof![8 => element, 1 => Just("NULL".to_owned())].boxed();
    let flat = prop::collection::vec(element.clone(), 0..5)
        .prop_map(|l| format!("ARRAY[{}]", l.join(",")));
    let deep = (1..4_usize, 1..4_usize, prop::collection::vec(element.clone(), 9)).prop_map(
        |(rows, columns, l)| {
            let rows: Vec<String> = (0..rows)
                .map(|r| {
                    format!("[{}]", l[r * columns..][..columns.min(9 - r * columns)].join(","))
                })
                .collect();
            format!("ARRAY[{}]", rows.join(","))
        },
    );
    let bounds = prop::collection::vec(element, 2).prop_map(move |l| {
        format!("array_fill({}::{}, ARRAY[2,2], ARRAY[-5,7])", l[0], ty.trim_end_matches("[]"))
    });
    prop_oneof![3 => flat, 1 => deep, 1 => bounds].boxed()
}

fn range(
    of: impl Strategy<Value = String> + 'static,
    ty: &'static str,
    subtype: &'static str,
) -> impl Strategy<Value = String> {
    let bound = prop_oneof![5 => of, 1 => Just("NULL".to_owned())].boxed();
    let brackets = prop::sample::select(&["[)", "[]", "()", "(]"][..]);
    // Bounds in the wrong order are refused; the database orders them here.
    let ordered = (bound.clone(), bound, brackets).prop_map(move |(a, b, brackets)| {
        format!(
            "(SELECT CASE WHEN a <= b OR a IS NULL OR b IS NULL THEN {ty}(a, b, '{brackets}') \
             ELSE {ty}(b, a, '{brackets}') END \
             FROM (SELECT {a}::{subtype} AS a, {b}::{subtype} AS b) s)"
        )
    });
    prop_oneof![9 => ordered, 1 => Just("'empty'".to_owned())]
}

fn row() -> impl Strategy<Value = String> {
    let inner =
        (any::<i32>(), text()).prop_map(|(a, b)| format!("ROW({a},{})::inner_row", quoted(&b)));
    let inner = prop_oneof![5 => inner, 1 => Just("NULL".to_owned())];
    (inner, -9999..9999_i64, array(any::<i32>().prop_map(|i| format!("({i})")), "int[]"), numeric())
        .prop_map(|(i, p, l, w)| format!("ROW({i}, {p}.5, {l}::int[], 'o\"k', {w})::outer_row"))
}

pub(super) fn cases() -> Vec<Case> {
    let int = || any::<i32>().prop_map(|i| format!("({i})"));
    let hex = |n: usize| {
        prop::collection::vec(any::<u8>(), n)
            .prop_map(|b| b.iter().map(|b| format!("{b:02x}")).collect::<String>())
    };
    let real = || {
        let bits = any::<u64>().prop_map(f64::from_bits).prop_filter("finite", |f| f.is_finite());
        prop_oneof![bits, (-1e6..1e6_f64), (-1000..1000_i32).prop_map(f64::from)]
            .prop_map(|f| quoted(&format!("{f:e}")))
    };
    vec![
        case("bool", OWN, any::<bool>().prop_map(|b| b.to_string())),
        case("int2", OWN, any::<i16>().prop_map(|i| format!("({i})"))),
        case("int4", OWN, int()),
        case("int8", OWN, any::<i64>().prop_map(|i| quoted(&i.to_string()))),
        case("oid", "v::text", any::<u32>().prop_map(|i| quoted(&i.to_string()))),
        case("float8", "v::text", real()),
        case(
            "float4",
            "v::text",
            any::<u32>()
                .prop_map(f32::from_bits)
                .prop_filter("finite", |f| f.is_finite())
                .prop_map(|f| quoted(&format!("{f:e}"))),
        ),
        case(
            "numeric",
            "CASE WHEN v::text ~ '[a-z]' THEN to_json(v::text)::text ELSE v::text END",
            numeric(),
        ),
        case(
            "numeric(14, 4)",
            OWN,
            (-9_999_999_999_i64..9_999_999_999).prop_map(|i| format!("{i}.25")),
        ),
        case("money", TEXT, (-99_999_i64..99_999).prop_map(|i| format!("{i}.25::numeric"))),
        case("text", OWN, text().prop_map(|t| quoted(&t))),
        case("varchar(12)", OWN, text().prop_map(|t| quoted(&t))),
        case("char(14)", OWN, text().prop_map(|t| quoted(&t))),
        case("name", OWN, text().prop_map(|t| quoted(&t))),
        case("\"char\"", TEXT, "[a-zA-Z]".prop_map(|t| quoted(&t))),
        case(
            "bytea",
            "'\"' || replace(encode(v, 'base64'), E'\\n', '') || '\"'",
            prop::collection::vec(any::<u8>(), 0..100).prop_map(|b| {
                format!("'\\x{}'", b.iter().map(|b| format!("{b:02x}")).collect::<String>())
            }),
        ),
        case("uuid", OWN, hex(16).prop_map(|h| quoted(&h))),
        case("date", OWN, date()),
        case("time", OWN, time().prop_map(|t| quoted(&t))),
        case(
            "timetz",
            "to_json(regexp_replace(v::text, '([+-]\\d\\d)$', '\\1:00'))::text",
            (time(), -57_599..57_600_i32).prop_map(|(t, z)| {
                let sign = if z < 0 { '-' } else { '+' };
                let z = z.abs();
                quoted(&format!(
                    "{t}{sign}{:02}:{:02}:{:02}",
                    z / 3600,
                    z / 60 % 60,
                    if z % 3 == 0 { z % 60 } else { 0 }
                ))
            }),
        ),
        case("timestamp", OWN, timestamp("timestamp")),
        case("timestamptz", UTC, timestamp("timestamptz")),
        case("interval", TEXT, interval()),
        case("json", "v::text", json()),
        case("jsonb", "v::text", json()),
        case("inet", OWN, inet().prop_map(|t| quoted(&t))),
        case("cidr", OWN, inet().prop_map(|t| format!("network({}::inet)", quoted(&t)))),
        case("macaddr", OWN, hex(6).prop_map(|h| quoted(&h))),
        case("macaddr8", OWN, hex(8).prop_map(|h| quoted(&h))),
        case("bit(11)", OWN, "[01]{11}".prop_map(|t| format!("B'{t}'"))),
        case("bit varying", OWN, "[01]{0,40}".prop_map(|t| format!("B'{t}'"))),
        case(
            "pg_lsn",
            TEXT,
            any::<u64>().prop_map(|l| format!("'{:X}/{:X}'", l >> 32, l & 0xffff_ffff)),
        ),
        case("xid8", TEXT, any::<u32>().prop_map(|l| format!("'{l}'"))),
        case(
            "tsvector",
            TEXT,
            text().prop_map(|t| format!("to_tsvector('simple', {})", quoted(&t))),
        ),
        case("tsquery", TEXT, "[a-z]{1,5}".prop_map(|t| format!("'{t} & !b'"))),
        case(
            "xml",
            TEXT,
            "[a-z<>&;]{0,8}".prop_map(|t| format!("xmlelement(name x, {})", quoted(&t))),
        ),
        case(
            "point",
            TEXT,
            (any::<i16>(), any::<i16>()).prop_map(|(a, b)| format!("point({a}, {b}.5)")),
        ),
        case(
            "polygon",
            TEXT,
            (any::<i16>(), any::<i16>()).prop_map(|(a, b)| format!("'(({a},{b}),(0,0))'")),
        ),
        case(
            "int2vector",
            TEXT,
            (any::<i16>(), any::<i16>()).prop_map(|(a, b)| format!("'{a} {b}'")),
        ),
        case("regclass", "v::oid::text", one_of(&["pg_class", "pg_type"])),
        case("jsonpath", TEXT, one_of(&["$.a[*] ? (@ > 1)", "$"])),
        case(
            "hstore",
            TEXT,
            (text(), text()).prop_map(|(k, v)| format!("hstore({}, {})", quoted(&k), quoted(&v))),
        ),
        case("citext", TEXT, text().prop_map(|t| quoted(&t))),
        case("ltree", TEXT, "[a-z]{1,5}(\\.[a-z]{1,5}){0,3}".prop_map(|t| quoted(&t))),
        case(
            "ltree[]",
            "to_json(v::text[])::text",
            array("[a-z]{1,5}".prop_map(|t| format!("'{t}'::ltree")), "ltree"),
        ),
        case(
            "point[]",
            "to_json(v::text[])::text",
            array(any::<i16>().prop_map(|a| format!("point({a}, 1)")), "point"),
        ),
        case("mood", OWN, one_of(&["sad", "o\"k", "glücklich"])),
        case(
            "mood[]",
            OWN,
            array(one_of(&["sad", "o\"k"]).prop_map(|l| format!("{l}::mood")), "mood"),
        ),
        case("price", OWN, (-99_999_i64..99_999).prop_map(|i| format!("{i}.25"))),
        case(
            "price[]",
            OWN,
            array((-99_999_i64..99_999).prop_map(|i| format!("{i}.25::price")), "price"),
        ),
        case("numbers", OWN, array(int(), "int")),
        case("int4[]", OWN, array(int(), "int")),
        case("text[]", OWN, array(text().prop_map(|t| quoted(&t)), "text")),
        case("numeric[]", OWN, array(numeric().prop_map(|n| format!("{n}::numeric")), "numeric")),
        case(
            "timestamptz[]",
            UTC,
            array(
                timestamp("timestamptz").prop_map(|t| format!("{t}::timestamptz")),
                "timestamptz",
            ),
        ),
        case(
            "jsonb[]",
            "replace(to_json(v)::text, E'\\n', '')",
            array(one_of(&["{\"a\": 1.50}", "[]"]).prop_map(|t| format!("{t}::jsonb")), "jsonb"),
        ),
        case(
            "inner_row",
            OWN,
            (any::<i32>(), text()).prop_map(|(a, b)| format!("ROW({a},{})", quoted(&b))),
        ),
        case(
            "inner_row[]",
            "replace(to_json(v)::text, E'\\n', '')",
            array(
                (any::<i32>(), "[a-z]{0,3}")
                    .prop_map(|(a, b)| format!("ROW({a},'{b}')::inner_row")),
                "inner_row",
            ),
        ),
        case("outer_row", OWN, row()),
        case("with_point", OWN, any::<i16>().prop_map(|a| format!("ROW(point({a}, 2), {a})"))),
        case(
            "int4range",
            RANGE,
            range((-9999..9999_i32).prop_map(|i| format!("({i})")), "int4range", "int4"),
        ),
        case(
            "numrange",
            RANGE,
            range((-9999..9999_i32).prop_map(|i| format!("{i}.50")), "numrange", "numeric"),
        ),
        case(
            "daterange",
            RANGE,
            range(
                (-800_000..2_000_000_i32).prop_map(|d| format!("(date '2000-01-01' + {d})")),
                "daterange",
                "date",
            ),
        ),
        case(
            "textrange",
            RANGE,
            range(
                "[a-z\"]{0,4}".prop_map(|t| format!("{}::text", quoted(&t))),
                "textrange",
                "text",
            ),
        ),
        case(
            "int8multirange",
            MULTIRANGE,
            prop::collection::vec((-9999..9999_i64, 1..99_i64), 0..5).prop_map(|l| {
                let ranges: Vec<String> =
                    l.iter().map(|(a, n)| format!("[{a},{})", a + n)).collect();
                format!("'{{{}}}'", ranges.join(","))
            }),
        ),
    ]
}
