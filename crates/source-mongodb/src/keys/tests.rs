use mongodb::bson::{doc, serialize_to_vec};

use super::*;

fn key(shape: &KeyShape, id: impl Into<Bson>) -> Option<Key> {
    let bytes = serialize_to_vec(&doc! { "_id": id.into() }).unwrap();
    let id = Document::new(&bytes).unwrap().get("_id").unwrap();
    shape.key(&shape.schema(CollectionId(0)), id)
}

fn url(shape: &KeyShape, text: &str) -> Key {
    shape.schema(CollectionId(0)).parse_url(text).unwrap()
}

fn decimal(text: &str) -> Bson {
    Bson::Decimal128(text.parse().unwrap())
}

fn binary(subtype: BinarySubtype, bytes: &[u8]) -> Bson {
    Bson::Binary(Binary { subtype, bytes: bytes.to_vec() })
}

const INTEGER: KeyShape = KeyShape::Plain(KeyTypeName::Integer);

#[test]
fn numbers_that_mongodb_compares_as_equal_are_one_key() {
    for id in [
        Bson::Int32(7),
        Bson::Int64(7),
        Bson::Double(7.0),
        decimal("7"),
        decimal("7.00"),
        decimal("0.7E+1"),
    ] {
        assert_eq!(key(&INTEGER, id.clone()), Some(url(&INTEGER, "7")), "{id}");
    }
    for id in [Bson::Double(-0.0), decimal("-0"), decimal("0E+6000"), decimal("0E-6000")] {
        assert_eq!(key(&INTEGER, id.clone()), Some(url(&INTEGER, "0")), "{id}");
    }
    for id in [
        Bson::Double(-9_223_372_036_854_775_808.0),
        Bson::Int64(i64::MIN),
        decimal("-9223372036854775808"),
    ] {
        assert_eq!(key(&INTEGER, id.clone()), Some(url(&INTEGER, "-9223372036854775808")), "{id}");
    }
    for id in [
        Bson::Double(7.5),
        Bson::Double(9_223_372_036_854_775_808.0),
        Bson::Double(f64::NAN),
        decimal("7.5"),
        decimal("9223372036854775808"),
        decimal("1E+6000"),
        decimal("NaN"),
        Bson::String("7".into()),
        Bson::Null,
        Bson::Boolean(true),
    ] {
        assert_eq!(key(&INTEGER, id.clone()), None, "{id}");
    }
}

#[test]
fn values_of_other_types_have_no_key() {
    let oid = ObjectId::from_bytes(*b"0123456789ab");
    let shape = KeyShape::Plain(KeyTypeName::ObjectId);
    assert_eq!(key(&shape, oid), Some(url(&shape, &oid.to_hex())));
    assert_eq!(key(&shape, oid.to_hex()), None, "a text that looks like one");
    let text = KeyShape::Plain(KeyTypeName::Text);
    assert_eq!(key(&text, oid.to_hex()), Some(url(&text, &oid.to_hex())));
    assert_eq!(key(&text, "A").unwrap(), url(&text, "A"));
    assert_ne!(key(&text, "A"), key(&text, "a"));
    assert_eq!(key(&text, "a\0b"), None);
    let uuid = KeyShape::Plain(KeyTypeName::Uuid);
    let bytes = *b"0123456789abcdef";
    assert_eq!(
        key(&uuid, binary(BinarySubtype::Uuid, &bytes)),
        Some(url(&uuid, "30313233-3435-3637-3839-616263646566"))
    );
    for subtype in [BinarySubtype::Generic, BinarySubtype::UuidOld] {
        assert_eq!(key(&uuid, binary(subtype, &bytes)), None);
    }
    let raw = KeyShape::Plain(KeyTypeName::Bytes);
    assert_eq!(key(&raw, binary(BinarySubtype::Generic, &bytes[..2])), Some(url(&raw, "3031")));
    assert_eq!(key(&raw, binary(BinarySubtype::Uuid, &bytes)), None);
}

#[test]
fn documents_need_exactly_their_fields_in_order() {
    let fields = [("a".to_owned(), KeyTypeName::Integer), ("b".to_owned(), KeyTypeName::Text)];
    let shape = KeyShape::Document(fields.to_vec());
    assert_eq!(key(&shape, doc! { "a": 1.0, "b": "x,y" }), Some(url(&shape, "1,x%2Cy")));
    for other in [
        doc! { "b": "x", "a": 1 },
        doc! { "a": 1 },
        doc! { "a": 1, "b": "x", "c": 1 },
        doc! { "a": "1", "b": "x" },
    ] {
        assert_eq!(key(&shape, other.clone()), None, "{other}");
    }
    assert_eq!(key(&shape, 1), None);
    assert_eq!(shape.id(&url(&shape, "1,x")), Bson::Document(doc! { "a": 1_i64, "b": "x" }));
}

#[test]
fn the_id_of_a_key_has_the_same_key() {
    for (ty, text) in [
        (KeyTypeName::Integer, "-7"),
        (KeyTypeName::Text, "a%2Fb"),
        (KeyTypeName::Uuid, "30313233-3435-3637-3839-616263646566"),
        (KeyTypeName::ObjectId, "65a1b2c3d4e5f60718293a4b"),
        (KeyTypeName::Bytes, "00ff"),
    ] {
        let shape = KeyShape::Plain(ty);
        let requested = url(&shape, text);
        assert_eq!(key(&shape, shape.id(&requested)), Some(requested), "{text}");
    }
}

#[test]
fn a_sample_has_a_type_only_if_all_values_agree() {
    let type_of = |ids: Vec<Bson>| {
        let documents: Vec<_> =
            ids.into_iter().map(|id| serialize_to_vec(&doc! { "_id": id }).unwrap()).collect();
        sampled_type(documents.iter().map(|d| Document::new(d).unwrap().get("_id").unwrap()))
    };
    assert_eq!(type_of(vec![]), SampledType::Empty);
    assert_eq!(
        type_of(vec![Bson::Int32(1), Bson::Double(2.0)]),
        SampledType::One(KeyTypeName::Integer)
    );
    assert_eq!(type_of(vec![Bson::Int32(1), Bson::String("1".into())]), SampledType::Mixed);
    assert_eq!(type_of(vec![Bson::Double(0.5)]), SampledType::Mixed);
    assert_eq!(
        type_of(vec![Bson::ObjectId(ObjectId::from_bytes([1; 12]))]),
        SampledType::One(KeyTypeName::ObjectId)
    );
}

proptest::proptest! {
    #[test]
    fn a_double_and_the_integer_equal_to_it_are_one_key(v: i64) {
        let double = v as f64;
        let same = (double as i128) == i128::from(v);
        proptest::prop_assert_eq!(same, key(&INTEGER, double) == key(&INTEGER, v));
        proptest::prop_assert_eq!(key(&INTEGER, decimal(&v.to_string())), key(&INTEGER, v));
    }
}
