//! JSON forms of values, without a server.

use super::*;
use hotrow_source::json::BODY_BYTES_MAX;

fn form(scalar: Scalar, value: &[u8]) -> Result<String, JsonError> {
    let mut out = Vec::new();
    write(&mut out, scalar, value).map(|()| String::from_utf8(out).unwrap())
}

#[test]
fn values_have_their_documented_forms() {
    for (scalar, value, json) in [
        (Scalar::Integer, &b"18446744073709551615"[..], "18446744073709551615"),
        (Scalar::Integer, b"00007", "7"),
        (Scalar::Integer, b"0", "0"),
        (Scalar::Integer, b"-1", "-1"),
        (Scalar::Decimal, b"-0012.3400", "-12.3400"),
        (Scalar::Decimal, b"000.10", "0.10"),
        (Scalar::Float, b"0.10000000149011612", "0.1"),
        (Scalar::Float, b"16777216", "16777216.0"),
        (Scalar::Double, b"1e300", "1e300"),
        (Scalar::Double, b"0", "0.0"),
        (Scalar::Bit, b"\x02\x01", "513"),
        (Scalar::Bit, b"\xff\xff\xff\xff\xff\xff\xff\xff", "18446744073709551615"),
        (Scalar::Text, b"a\"b\n", r#""a\"b\n""#),
        (Scalar::CheckedJson, b"{\"a\": [1,2]}", "{\"a\": [1,2]}"),
        (Scalar::CheckedJson, b"{a}", "\"{a}\""),
        (Scalar::Binary, b"abc", "\"YWJj\""),
        (Scalar::Hex, b"\x00\xff", "\"00ff\""),
        (Scalar::Date, b"2026-11-20", "\"2026-11-20\""),
        (Scalar::DateTime, b"2026-11-20 22:35:09.500000", "\"2026-11-20T22:35:09.5\""),
        (Scalar::DateTime, b"0000-00-00 00:00:00", "\"0000-00-00T00:00:00\""),
        (Scalar::Timestamp, b"2026-11-20 22:35:10.000", "\"2026-11-20T22:35:10Z\""),
        (Scalar::Timestamp, b"2026-11-20 22:35:10", "\"2026-11-20T22:35:10Z\""),
        (Scalar::Time, b"-838:59:59.000000", "\"-838:59:59\""),
        (Scalar::Time, b"00:00:00.010", "\"00:00:00.01\""),
    ] {
        assert_eq!(form(scalar, value).as_deref(), Ok(json), "{scalar:?} {value:?}");
    }
}

#[test]
fn values_of_another_type_are_refused() {
    for (scalar, value) in [
        (Scalar::Integer, &b"1.5"[..]),
        (Scalar::Integer, b""),
        (Scalar::Integer, b"-"),
        (Scalar::Decimal, b"1."),
        (Scalar::Decimal, b".5"),
        (Scalar::Double, b"x"),
        (Scalar::Bit, b"123456789"),
        (Scalar::Uuid, b"123"),
        (Scalar::Date, b"today"),
        (Scalar::Time, b""),
    ] {
        assert_eq!(form(scalar, value), Err(JsonError::Shape), "{scalar:?} {value:?}");
    }
}

#[test]
fn objects_have_labels_nulls_and_a_bound() {
    let fields = [Field::new("a\"", Scalar::Text), Field::new("b", Scalar::Integer)];
    let json = object(&fields, |i| Ok(if i == 0 { None } else { Some(&b"5"[..]) })).unwrap();
    assert_eq!(json, br#"{"a\"":null,"b":5}"#);
    let huge = vec![b'x'; BODY_BYTES_MAX];
    assert_eq!(object(&fields[..1], |_| Ok(Some(&huge[..]))), Err(JsonError::TooLarge));
}
