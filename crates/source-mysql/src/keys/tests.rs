//! A row's keys from the log, from an answer and from a URL are equal.

use hotrow_types::key::CollectionId;

use super::*;

const I: CollectionId = CollectionId(0);

fn column(stored: KeyStored, ty: KeyType) -> KeyColumn {
    KeyColumn { name: "k".into(), position: 0, stored, ty, spelling: Spelling::One }
}

/// Returns the keys of a value of the log, of an answer, and of a URL.
fn all_ways(stored: KeyStored, ty: KeyType, log: &Value, answer: &[u8], url: &str) -> [LogKey; 3] {
    let schema = KeySchema::new(I, vec![ty]);
    let of_log = stored.of_log(log).map_or(LogKey::Mismatch, |part| key(&schema, &[part]));
    let answer = Value::Bytes(answer.to_vec());
    let of_answer = of_answer(&[column(stored, ty)], &schema, &[&answer]);
    [of_log, of_answer, schema.parse_url(url).map_or(LogKey::Unaddressable, LogKey::Key)]
}

fn assert_same(stored: KeyStored, ty: KeyType, log: &Value, answer: &[u8], url: &str) {
    let [a, b, c] = all_ways(stored, ty, log, answer, url);
    assert!(matches!(a, LogKey::Key(_)), "{stored:?} {log:?}: {a:?}");
    assert_eq!(a, b, "{stored:?} {log:?}");
    assert_eq!(b, c, "{stored:?} {log:?}");
}

#[test]
fn integers_are_converted_by_their_column_type() {
    let int = |bytes, unsigned| KeyStored::Integer { bytes, unsigned };
    for (stored, log, text) in [
        (int(1, true), Value::Int(-1), "255"),
        (int(1, true), Value::UInt(255), "255"),
        (int(1, false), Value::Int(-1), "-1"),
        (int(3, true), Value::Int(-1), "16777215"),
        (int(3, false), Value::Int(0xff_ffff), "-1"),
        (int(4, true), Value::Int(i64::from(i32::MIN)), "2147483648"),
        (int(8, false), Value::Int(i64::MIN), "-9223372036854775808"),
    ] {
        assert_same(stored, KeyType::Integer, &log, text.as_bytes(), text);
    }
    for (log, text) in [
        (Value::Int(i64::MAX), "9223372036854775807"),
        (Value::Int(i64::MIN), "9223372036854775808"),
        (Value::Int(-1), "18446744073709551615"),
        (Value::UInt(u64::MAX), "18446744073709551615"),
        (Value::Int(0), "0"),
    ] {
        assert_same(int(8, true), KeyType::Unsigned, &log, text.as_bytes(), text);
    }
    assert_same(int(8, true), KeyType::Unsigned, &Value::Int(7), b"00000000000000000007", "7");
    // Zero-filled.
    assert_same(int(4, true), KeyType::Integer, &Value::Int(7), b"0000000007", "7");
}

#[test]
fn a_null_of_a_unique_index_is_unaddressable() {
    let schema = KeySchema::new(I, vec![KeyType::Integer]);
    let stored = KeyStored::Integer { bytes: 4, unsigned: false };
    assert_eq!(key(&schema, &[stored.of_log(&Value::NULL).unwrap()]), LogKey::Unaddressable);
}

#[test]
fn texts_are_read_in_their_character_set() {
    let text = |charset, padded| KeyStored::Text { charset, padded };
    let exact = KeyType::Text(Collation::Binary);
    let trimmed = KeyType::Text(Collation::RightTrim);
    let bytes = |b: &[u8]| Value::Bytes(b.to_vec());
    assert_same(
        text(Charset::Utf8mb4, false),
        exact,
        &bytes("né 🦀".as_bytes()),
        "né 🦀".as_bytes(),
        "n%C3%A9%20🦀",
    );
    assert_same(
        text(Charset::Latin1, false),
        exact,
        &bytes(b"\x80\xe9"),
        "€é".as_bytes(),
        "%E2%82%AC%C3%A9",
    );
    assert_same(text(Charset::Utf8mb4, true), exact, &bytes(b"ab  "), b"ab", "ab");
    assert_same(text(Charset::Utf8mb4, false), trimmed, &bytes(b"ab  "), b"ab  ", "ab%20");
    let [log, ..] = all_ways(text(Charset::Utf8mb4, false), exact, &bytes(b"\xff"), b"", "x");
    assert_eq!(log, LogKey::Mismatch);
}

#[test]
fn trailing_zeros_of_bytes_are_restored() {
    let bytes = |b: &[u8]| Value::Bytes(b.to_vec());
    let fixed = KeyStored::Binary { bytes: 4 };
    assert_same(fixed, KeyType::Bytes, &bytes(b"\x01\x02"), b"\x01\x02\0\0", "01020000");
    assert_same(KeyStored::VarBinary, KeyType::Bytes, &bytes(b"\x01\x02"), b"\x01\x02", "0102");
    assert_eq!(fixed.of_log(&bytes(b"12345")), None);
}

#[test]
fn literals_are_limited_to_the_columns_range() {
    let literal = |stored: KeyStored, part: KeyPart<'_>| {
        let mut sql = String::new();
        stored.write_literal(part, &mut sql).then_some(sql)
    };
    let tiny = KeyStored::Integer { bytes: 1, unsigned: true };
    assert_eq!(literal(tiny, KeyPart::Integer(255)).as_deref(), Some("255"));
    assert_eq!(literal(tiny, KeyPart::Integer(256)), None);
    assert_eq!(literal(tiny, KeyPart::Integer(-1)), None);
    let big = KeyStored::Integer { bytes: 8, unsigned: true };
    assert_eq!(
        literal(big, KeyPart::Bytes(&u64::MAX.to_be_bytes())).as_deref(),
        Some("18446744073709551615")
    );
    assert_eq!(literal(tiny, KeyPart::Bytes(&7_u64.to_be_bytes())), None);
    let text = |charset| KeyStored::Text { charset, padded: false };
    assert_eq!(
        literal(text(Charset::Utf8mb4), KeyPart::Text("a'\\")).as_deref(),
        Some("_utf8mb4 x'61275c'")
    );
    assert_eq!(literal(text(Charset::Utf8mb3), KeyPart::Text("🦀")), None);
    assert_eq!(literal(text(Charset::Ascii), KeyPart::Text("é")), None);
    assert_eq!(
        literal(text(Charset::Latin1), KeyPart::Text("é€")).as_deref(),
        Some("_latin1 x'e980'")
    );
    assert_eq!(literal(KeyStored::Binary { bytes: 2 }, KeyPart::Bytes(b"\x01")), None);
    assert_eq!(literal(KeyStored::VarBinary, KeyPart::Bytes(b"\x01")).as_deref(), Some("x'01'"));
}

#[test]
fn only_bin_collations_have_one_spelling() {
    for (name, ty, spelling) in [
        ("utf8mb4_bin", Collation::RightTrim, Spelling::One),
        ("utf8mb4_nopad_bin", Collation::Binary, Spelling::One),
        ("utf8mb4_0900_bin", Collation::Binary, Spelling::One),
        ("utf8mb4_general_ci", Collation::Binary, Spelling::Many),
        ("utf8mb4_0900_as_cs", Collation::Binary, Spelling::Many),
    ] {
        assert_eq!(text_type(name), (KeyType::Text(ty), spelling), "{name}");
    }
}
