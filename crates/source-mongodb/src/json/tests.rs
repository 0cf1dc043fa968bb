use mongodb::bson::oid::ObjectId;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{
    Binary, Bson, DateTime, Decimal128, JavaScriptCodeWithScope, Regex, Timestamp, doc,
    serialize_to_vec,
};
use proptest::prelude::*;

use super::*;

fn json(form: JsonForm, fields: &Fields, document: &mongodb::bson::Document) -> String {
    let bytes = serialize_to_vec(document).unwrap();
    let mut out = Vec::new();
    write_document(&mut out, form, fields, Document::new(&bytes).unwrap()).unwrap();
    String::from_utf8(out).unwrap()
}

const ALL: Fields = Fields::StoredOrder { without: Vec::new() };

fn without_id() -> Fields {
    Fields::StoredOrder { without: vec!["_id".to_owned()] }
}

fn both(value: impl Into<Bson>) -> [String; 2] {
    let document = doc! { "v": value.into() };
    [JsonForm::Plain, JsonForm::RelaxedExtended].map(|form| {
        let text = json(form, &ALL, &document);
        text.strip_prefix("{\"v\":").and_then(|t| t.strip_suffix('}')).unwrap().to_owned()
    })
}

#[test]
fn every_type_has_its_form() {
    let id = ObjectId::from_bytes(*b"\x65\xa1\xb2\xc3\xd4\xe5\xf6\x07\x18\x29\x3a\x4b");
    let oid = "\"65a1b2c3d4e5f60718293a4b\"";
    assert_eq!(both(1.0), ["1.0", "1.0"]);
    assert_eq!(both(f64::NAN), ["\"NaN\"", "{\"$numberDouble\":\"NaN\"}"]);
    assert_eq!(both(f64::NEG_INFINITY), ["\"-Infinity\"", "{\"$numberDouble\":\"-Infinity\"}"]);
    assert_eq!(both(i64::MIN), ["-9223372036854775808", "-9223372036854775808"]);
    assert_eq!(both(7_i32), ["7", "7"]);
    assert_eq!(both("a\"\n"), ["\"a\\\"\\n\"", "\"a\\\"\\n\""]);
    assert_eq!(both(vec![Bson::Null, Bson::Boolean(true)]), ["[null,true]", "[null,true]"]);
    assert_eq!(both(id), [oid.to_owned(), format!("{{\"$oid\":{oid}}}")]);
    let binary = |subtype, bytes: &[u8]| Binary { subtype, bytes: bytes.to_vec() };
    assert_eq!(
        both(binary(BinarySubtype::Generic, b"abcd")),
        ["\"YWJjZA==\"", "{\"$binary\":{\"base64\":\"YWJjZA==\",\"subType\":\"00\"}}"]
    );
    assert_eq!(both(binary(BinarySubtype::BinaryOld, b"abcd"))[0], "\"YWJjZA==\"");
    assert_eq!(
        both(binary(BinarySubtype::Uuid, b"0123456789abcdef")),
        [
            "\"30313233-3435-3637-3839-616263646566\"",
            "{\"$binary\":{\"base64\":\"MDEyMzQ1Njc4OWFiY2RlZg==\",\"subType\":\"04\"}}"
        ]
    );
    assert_eq!(both(binary(BinarySubtype::Uuid, b"short"))[0], "\"c2hvcnQ=\"");
    assert_eq!(
        both(Timestamp { time: 5, increment: u32::MAX }),
        ["{\"t\":5,\"i\":4294967295}", "{\"$timestamp\":{\"t\":5,\"i\":4294967295}}"]
    );
    let regex = Regex { pattern: "a/b".try_into().unwrap(), options: "im".try_into().unwrap() };
    assert_eq!(
        both(regex),
        ["\"/a/b/im\"", "{\"$regularExpression\":{\"pattern\":\"a/b\",\"options\":\"im\"}}"]
    );
    assert_eq!(both(Bson::JavaScriptCode("f()".into())), ["\"f()\"", "{\"$code\":\"f()\"}"]);
    assert_eq!(both(Bson::Symbol("s".into())), ["\"s\"", "{\"$symbol\":\"s\"}"]);
    let scoped = JavaScriptCodeWithScope { code: "f()".into(), scope: doc! { "a": id } };
    assert_eq!(
        both(Bson::JavaScriptCodeWithScope(scoped)),
        [
            format!("{{\"code\":\"f()\",\"scope\":{{\"a\":{oid}}}}}"),
            format!("{{\"$code\":\"f()\",\"$scope\":{{\"a\":{{\"$oid\":{oid}}}}}}}")
        ]
    );
    assert_eq!(both(Bson::MinKey), ["\"MinKey\"", "{\"$minKey\":1}"]);
    assert_eq!(both(Bson::MaxKey), ["\"MaxKey\"", "{\"$maxKey\":1}"]);
    assert_eq!(both(Bson::Undefined), ["null", "{\"$undefined\":true}"]);
}

#[test]
fn an_obsolete_db_pointer_has_a_form() {
    // 0x0c "v" "a.b" and an ObjectId: the driver's crate has no public constructor for it.
    let id = [7_u8; 12];
    let inner = [&[0x0c, b'v', 0, 4, 0, 0, 0][..], b"a.b\0", &id].concat();
    let bytes = [&(inner.len() as i32 + 5).to_le_bytes()[..], &inner, &[0]].concat();
    let mut out = Vec::new();
    write_document(&mut out, JsonForm::Plain, &ALL, Document::new(&bytes).unwrap()).unwrap();
    assert_eq!(out, b"{\"v\":{\"ref\":\"a.b\",\"id\":\"070707070707070707070707\"}}");
    out.clear();
    write_document(&mut out, JsonForm::RelaxedExtended, &ALL, Document::new(&bytes).unwrap())
        .unwrap();
    assert_eq!(
        out,
        b"{\"v\":{\"$dbPointer\":{\"$ref\":\"a.b\",\
        \"$id\":{\"$oid\":\"070707070707070707070707\"}}}}"
    );
}

/// Checks the syntax of RFC 8259, section 6; a JSON parser with limited numbers refuses the large
/// ones.
fn is_number(text: &str) -> bool {
    let text = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = text.split_once('E').unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
    let digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
    digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && digits(fraction)
        && digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))
}

#[test]
fn decimals_keep_their_digits() {
    for text in [
        "1.10",
        "-0",
        "0.000001",
        "1E+3",
        "12345678901234567890123456789012.34",
        "9.999E+6144",
        "0E-6176",
    ] {
        let decimal: Decimal128 = text.parse().unwrap();
        let [plain, extended] = both(decimal);
        assert_eq!(extended, format!("{{\"$numberDecimal\":\"{plain}\"}}"));
        assert_eq!(plain.parse::<Decimal128>().unwrap(), decimal, "{plain}");
        assert!(is_number(&plain), "{plain}");
    }
    for text in ["NaN", "Infinity", "-Infinity"] {
        assert_eq!(both(text.parse::<Decimal128>().unwrap())[0], format!("\"{text}\""));
    }
}

#[test]
fn dates_have_the_form_of_rfc_3339() {
    let date = |ms| both(DateTime::from_millis(ms));
    assert_eq!(date(0), ["\"1970-01-01T00:00:00.000Z\"", "{\"$date\":\"1970-01-01T00:00:00Z\"}"]);
    assert_eq!(date(-1)[0], "\"1969-12-31T23:59:59.999Z\"");
    assert_eq!(date(-1)[1], "{\"$date\":{\"$numberLong\":\"-1\"}}");
    assert_eq!(
        date(1_709_210_096_789),
        ["\"2024-02-29T12:34:56.789Z\"", "{\"$date\":\"2024-02-29T12:34:56.789Z\"}"]
    );
    assert_eq!(date(-62_167_219_200_000)[0], "\"0000-01-01T00:00:00.000Z\"");
    assert_eq!(date(-62_167_219_200_001)[0], "\"-000001-12-31T23:59:59.999Z\"");
    assert_eq!(
        date(253_402_300_800_000),
        ["\"+010000-01-01T00:00:00.000Z\"", "{\"$date\":{\"$numberLong\":\"253402300800000\"}}"]
    );
    // The ends of the range of 64-bit milliseconds.
    assert_eq!(date(i64::MAX)[0], "\"+292278994-08-17T07:12:55.807Z\"");
    assert_eq!(date(i64::MIN)[0], "\"-292275055-05-16T16:47:04.192Z\"");
}

#[test]
fn only_the_requested_fields_are_written_in_the_requested_order() {
    let document = doc! { "_id": 1, "b": 2, "a": 3 };
    let plain = |fields: &Fields| json(JsonForm::Plain, fields, &document);
    assert_eq!(plain(&ALL), "{\"_id\":1,\"b\":2,\"a\":3}");
    assert_eq!(plain(&without_id()), "{\"b\":2,\"a\":3}");
    assert_eq!(
        plain(&Fields::InOrder(["a", "z", "_id"].map(String::from).to_vec())),
        "{\"a\":3,\"_id\":1}"
    );
    assert_eq!(json(JsonForm::Plain, &without_id(), &doc! { "_id": 1 }), "{}");
}

#[test]
fn invalid_utf_8_is_replaced() {
    let mut bytes = serialize_to_vec(&doc! { "nxme": "vxlue" }).unwrap();
    for byte in &mut bytes {
        if *byte == b'x' {
            *byte = 0xff;
        }
    }
    let mut out = Vec::new();
    write_document(&mut out, JsonForm::Plain, &ALL, Document::new(&bytes).unwrap()).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), "{\"n\u{fffd}me\":\"v\u{fffd}lue\"}");
}

#[test]
fn depth_and_size_are_bounded() {
    let nested =
        |depth: usize| (0..depth).fold(Bson::Int32(1), |inner, _| Bson::Array(vec![inner]));
    let write = |value: Bson| {
        let bytes = serialize_to_vec(&doc! { "v": value }).unwrap();
        write_document(&mut Vec::new(), JsonForm::Plain, &ALL, Document::new(&bytes).unwrap())
    };
    assert_eq!(write(nested(DEPTH_MAX - 1)), Ok(()));
    assert_eq!(write(nested(DEPTH_MAX + 1)), Err(JsonError::TooDeep));
    // Each control character takes six bytes.
    assert_eq!(write(Bson::String("\u{1}".repeat(BODY_BYTES_MAX / 5))), Err(JsonError::TooLarge));
}

fn any_bson() -> impl Strategy<Value = Bson> {
    let leaf = prop_oneof![
        // Only values that the JSON parser of this test reads back exactly.
        any::<i32>().prop_map(|v| Bson::Double(f64::from(v) / 64.0)),
        ".{0,12}".prop_map(Bson::String),
        any::<[u8; 12]>().prop_map(|b| Bson::ObjectId(ObjectId::from_bytes(b))),
        any::<bool>().prop_map(Bson::Boolean),
        any::<i64>().prop_map(|ms| Bson::DateTime(DateTime::from_millis(ms))),
        (0..LAST_DATE).prop_map(|ms| Bson::DateTime(DateTime::from_millis(ms))),
        Just(Bson::Null),
        any::<i32>().prop_map(Bson::Int32),
        any::<i64>().prop_map(Bson::Int64),
        any::<(u32, u32)>()
            .prop_map(|(time, increment)| Bson::Timestamp(Timestamp { time, increment })),
        "-?[1-9][0-9]{0,9}([.][0-9]{1,5})?"
            .prop_map(|text| Bson::Decimal128(text.parse().unwrap())),
        // The crate's serializer writes subtype 0 as an array of numbers, outside extended JSON.
        (1..=u8::MAX, any::<Vec<u8>>())
            .prop_map(|(subtype, bytes)| Bson::Binary(Binary { subtype: subtype.into(), bytes })),
        ("[a-z/]{0,5}", "i?m?s?x?").prop_map(|(pattern, options)| {
            Bson::RegularExpression(Regex {
                pattern: pattern.try_into().unwrap(),
                options: options.try_into().unwrap(),
            })
        }),
        ".{0,5}".prop_map(Bson::JavaScriptCode),
        ".{0,5}".prop_map(Bson::Symbol),
        Just(Bson::MinKey),
        Just(Bson::MaxKey),
        Just(Bson::Undefined),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Bson::Array),
            proptest::collection::vec(("[a-z]{1,4}", inner), 0..4)
                .prop_map(|fields| Bson::Document(fields.into_iter().collect())),
        ]
    })
}

fn dates_as_numbers(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::Array(values) => values.into_iter().map(dates_as_numbers).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| match value {
                Value::String(text) if name == "$date" => {
                    let ms = DateTime::parse_rfc3339_str(&text).unwrap().timestamp_millis();
                    (name, serde_json::json!({ "$numberLong": ms.to_string() }))
                }
                value => (name, dates_as_numbers(value)),
            });
            Value::Object(fields.collect())
        }
        value => value,
    }
}

const LAST_DATE: i64 = 253_402_300_799_999;

proptest! {
    #[test]
    fn the_relaxed_form_is_that_of_the_drivers_own_crate(value in any_bson()) {
        let document = doc! { "v": value };
        let ours = json(JsonForm::RelaxedExtended, &ALL, &document);
        let ours: serde_json::Value = serde_json::from_str(&ours).unwrap();
        // The crate's own serializer writes every date as a number.
        prop_assert_eq!(dates_as_numbers(ours), serde_json::to_value(document).unwrap());
    }

    #[test]
    fn the_plain_form_is_always_json(value in any_bson()) {
        let text = json(JsonForm::Plain, &ALL, &doc! { "v": value });
        prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{}", text);
    }
}
