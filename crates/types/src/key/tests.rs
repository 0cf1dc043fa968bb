use super::*;

fn schema(types: &[KeyType]) -> KeySchema {
    KeySchema::new(CollectionId(3), types.to_vec())
}
const TEXT: KeyType = KeyType::Text(Collation::Binary);

#[test]
fn an_integer_has_one_spelling() {
    let s = schema(&[KeyType::Integer]);
    for good in ["0", "7", "-7", "9223372036854775807", "-9223372036854775808", "%37"] {
        assert!(s.parse_url(good).is_ok(), "{good}");
    }
    for bad in
        ["", "-", "-0", "007", "+7", "7.0", "1e3", "9223372036854775808", " 7", "7%20", "٣", "7,8"]
    {
        assert!(s.parse_url(bad).is_err(), "{bad}");
    }
    assert_eq!(s.parse_url("7").unwrap(), s.key(&[KeyPart::Integer(7)]).unwrap());
    assert_eq!(s.parse_url("%37").unwrap(), s.parse_url("7").unwrap());
}

#[test]
fn integers_of_every_length_are_parsed_alike() {
    let s = schema(&[KeyType::Integer]);
    let digits = (1..=20).flat_map(|length| ["1", "9"].map(|digit| digit.repeat(length)));
    for text in digits.flat_map(|digits| [digits.clone(), format!("-{digits}")]) {
        let value = text.parse::<i64>().ok();
        let expected = value.map(|value| s.key(&[KeyPart::Integer(value)]).unwrap());
        assert_eq!(s.parse_url(&text).ok(), expected, "{text}");
        assert_eq!(s.parse_integer_key(&text), expected, "{text}");
        for at in 0..=text.len() {
            for other in ["/", ":", "a", ",", "\u{1}", "\u{ff}"] {
                let wrong = format!("{}{other}{}", &text[..at], &text[at..]);
                assert_eq!(s.parse_integer_key(&wrong), None, "{wrong:?}");
            }
        }
    }
    assert_eq!(schema(&[TEXT]).parse_integer_key("7"), None);
    assert_eq!(schema(&[KeyType::Integer, KeyType::Integer]).parse_integer_key("7"), None);
}

#[test]
fn an_unsigned_integer_has_64_bits_and_one_spelling() {
    let s = schema(&[KeyType::Unsigned]);
    for (text, value) in
        [("0", 0_u64), ("9223372036854775808", 1 << 63), ("18446744073709551615", u64::MAX)]
    {
        let key = s.parse_url(text).unwrap();
        let bytes = value.to_be_bytes();
        assert_eq!(key, s.key(&[KeyPart::Bytes(&bytes)]).unwrap(), "{text}");
        assert_eq!(key.parts().collect::<Vec<_>>(), [KeyPart::Bytes(&bytes)]);
    }
    for bad in ["", "-1", "-0", "007", "+7", "18446744073709551616", "1e3", "٣"] {
        assert!(s.parse_url(bad).is_err(), "{bad}");
    }
    for bad in [KeyPart::Integer(1), KeyPart::Bytes(b"\x01")] {
        assert!(s.key(&[bad]).is_err(), "{bad:?}: equal keys must be equal bytes");
    }
}

#[test]
fn text_is_percent_decoded_and_slash_is_data() {
    let s = schema(&[TEXT]);
    assert_eq!(s.parse_url("a%2Fb").unwrap(), s.key(&[KeyPart::Text("a/b")]).unwrap());
    assert_eq!(s.parse_url("a,b").unwrap(), s.key(&[KeyPart::Text("a,b")]).unwrap());
    assert_eq!(s.parse_url("a+b").unwrap(), s.key(&[KeyPart::Text("a+b")]).unwrap());
    assert_eq!(s.parse_url("%"), Err(KeyError::Encoding));
    assert_eq!(s.parse_url("%4"), Err(KeyError::Encoding));
    assert_eq!(s.parse_url("%zz"), Err(KeyError::Encoding));
    assert_eq!(s.parse_url("%+1"), Err(KeyError::Encoding));
    assert_eq!(s.parse_url("%FF"), Err(KeyError::Utf8));
    assert_eq!(s.parse_url("a%00"), Err(KeyError::Nul));
    // The collection, a tag and a length come before the text.
    let text_bytes_max = KEY_BYTES_MAX - 5;
    assert_eq!(s.parse_url(&"x".repeat(3 * KEY_BYTES_MAX)), Err(KeyError::TooLong));
    assert_eq!(s.parse_url(&"x".repeat(text_bytes_max + 1)), Err(KeyError::TooLong));
    let longest = s.parse_url(&"x".repeat(text_bytes_max)).unwrap();
    assert_eq!(longest, s.key(&[KeyPart::Text(&"x".repeat(text_bytes_max))]).unwrap());
}

#[test]
fn collations_normalise_as_the_database_compares() {
    let nocase = schema(&[KeyType::Text(Collation::NoCaseAscii)]);
    assert_eq!(nocase.parse_url("Abc").unwrap(), nocase.key(&[KeyPart::Text("aBC")]).unwrap());
    assert_ne!(nocase.parse_url("%C3%84").unwrap(), nocase.parse_url("%C3%A4").unwrap());
    let trimmed = schema(&[KeyType::Text(Collation::RightTrim)]);
    assert_eq!(trimmed.parse_url("a%20%20").unwrap(), trimmed.parse_url("a").unwrap());
    assert_ne!(trimmed.parse_url("%20a").unwrap(), trimmed.parse_url("a").unwrap());
}

#[test]
fn uuids_and_bytes() {
    let s = schema(&[KeyType::Uuid]);
    let key = s.parse_url("0188A1B2-0000-7000-8000-00000000002f").unwrap();
    assert_eq!(
        key,
        s.parse_url("0188a1b2000070008000 00000000002F".replace(' ', "").as_str()).unwrap()
    );
    for bad in [
        "0188a1b2",
        "0188a1b2-0000-7000-8000-00000000002",
        "0188a1b20-000-7000-8000-00000000002f",
        "g".repeat(32).as_str(),
    ] {
        assert!(s.parse_url(bad).is_err(), "{bad}");
    }
    let b = schema(&[KeyType::Bytes]);
    assert_eq!(b.parse_url("00fF").unwrap(), b.key(&[KeyPart::Bytes(&[0, 255])]).unwrap());
    assert!(b.parse_url("0").is_err());
}

#[test]
fn object_ids_are_12_bytes() {
    let s = schema(&[KeyType::ObjectId]);
    let key = s.parse_url("65A1b2c3d4e5f60718293a4b").unwrap();
    let bytes = [0x65, 0xa1, 0xb2, 0xc3, 0xd4, 0xe5, 0xf6, 0x07, 0x18, 0x29, 0x3a, 0x4b];
    assert_eq!(key, s.parse_url("65a1b2c3d4e5f60718293a4b").unwrap());
    assert_eq!(key, s.key(&[KeyPart::Bytes(&bytes)]).unwrap());
    assert!(s.key(&[KeyPart::Bytes(&bytes[1..])]).is_err());
    for bad in [
        "",
        "7",
        "65a1b2c3d4e5f60718293a",
        "65a1b2c3d4e5f60718293a4b00",
        "65a1b2c3d4e5f60718293a4g",
    ] {
        assert!(matches!(s.parse_url(bad), Err(KeyError::Type { part: None, .. })), "{bad}");
    }
}

#[test]
fn composite_keys_do_not_run_together() {
    let s = schema(&[TEXT, TEXT]);
    assert_ne!(s.parse_texts(&["ab", "c"]).unwrap(), s.parse_texts(&["a", "bc"]).unwrap());
    assert_eq!(s.parse_url("a%2Cb,c").unwrap(), s.parse_texts(&["a,b", "c"]).unwrap());
    assert_eq!(s.parse_url("a").unwrap_err(), KeyError::Parts { want: 2, got: 1 });
    let mixed = schema(&[KeyType::Integer, TEXT]);
    let key = mixed.parse_url("7,x").unwrap();
    assert_eq!(key.parts().collect::<Vec<_>>(), [KeyPart::Integer(7), KeyPart::Text("x")]);
    assert_eq!(key.collection(), CollectionId(3));
}

proptest::proptest! {
    #[test]
    fn no_text_panics_and_parts_round_trip(text in ".{0,40}", int: i64) {
        for ty in [KeyType::Integer, TEXT, KeyType::Uuid, KeyType::ObjectId, KeyType::Bytes] {
            let _ = schema(&[ty]).parse_url(&text);
            let _ = schema(&[ty, ty]).parse_url(&text);
        }
        let s = schema(&[KeyType::Integer, TEXT]);
        if let Ok(key) = s.key(&[KeyPart::Integer(int), KeyPart::Text(&text)]) {
            let parts: Vec<_> = key.parts().collect();
            assert_eq!(parts, [KeyPart::Integer(int), KeyPart::Text(&text)]);
        }
    }
}

#[test]
fn a_decoded_id_is_the_same_key_as_its_url_form() {
    for (types, url, decoded) in [
        (&[KeyType::Integer][..], "7", "7"),
        (&[KeyType::Integer], "%37", "7"),
        (&[TEXT], "a%2Fb%3Ac,d%25", "a/b:c,d%"),
        (
            &[KeyType::Uuid],
            "F81D4FAE7DEC11D0A76500A0C91E6BF6",
            "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
        ),
        (&[KeyType::Integer, TEXT], "7,a%20b", "7,a b"),
        (&[TEXT, TEXT], ",", ","),
    ] {
        let s = schema(types);
        assert_eq!(s.parse_decoded(decoded.as_bytes()), s.parse_url(url), "{decoded}");
        assert!(s.parse_decoded(decoded.as_bytes()).is_ok(), "{decoded}");
    }
    let parts = |types: &[KeyType], id: &str| schema(types).parse_decoded(id.as_bytes());
    for (id, got) in [("7", 1), ("7,a,b", 3), (&",".repeat(99), 100)] {
        let error = Err(KeyError::Parts { want: 2, got });
        assert_eq!(parts(&[KeyType::Integer, TEXT], id), error, "{id}");
    }
    assert_eq!(schema(&[TEXT]).parse_decoded(b"\xff"), Err(KeyError::Utf8));
    assert_eq!(schema(&[TEXT]).parse_decoded(b"a\0"), Err(KeyError::Nul));
    assert_eq!(schema(&[TEXT]).parse_decoded(b"%41"), schema(&[TEXT]).parse_url("%2541"));
}

#[test]
fn a_key_of_another_process_is_the_same_key() {
    let types = vec![KeyType::Integer, KeyType::Text(Collation::Binary), KeyType::Uuid];
    let theirs = KeySchema::new(CollectionId(9), types.clone());
    let ours = KeySchema::new(CollectionId(2), types);
    let text = "a".repeat(40);
    for id in [format!("-7,{text},{}", "0".repeat(32)), format!("0,,{}", "f".repeat(32))] {
        let key = theirs.parse_url(&id).unwrap();
        let encoded = key.encoded_columns();
        assert_eq!(ours.key_of_columns(encoded), ours.parse_url(&id));
        for end in 0..encoded.len() {
            assert!(ours.key_of_columns(&encoded[..end]).is_err(), "{end}");
        }
        assert!(ours.key_of_columns(&[encoded, &[0]].concat()).is_err());
    }
    let integers = KeySchema::new(CollectionId(2), vec![KeyType::Integer]);
    let key = theirs.parse_url(&format!("1,b,{}", "0".repeat(32))).unwrap();
    assert!(integers.key_of_columns(key.encoded_columns()).is_err());
    assert!(integers.key_of_columns(&[]).is_err());
}
