//! Lookup by an alias: by other fields of a document than its `_id` (`hotrow_cache::alias`).
//!
//! A field has one value: that of the first field of this name, as in MongoDB's queries and
//! indexes. A value inside an array is no value of the field, although a query for it finds the
//! document: no lookup answers with such a document.

use hotrow_source::spec::KeyTypeName;
use hotrow_types::key::{CollectionId, Key, KeyPart, KeySchema};
use mongodb::bson::{Bson, Document as BsonDocument, doc};

use super::bson::{Document, Malformed, Value};
use super::config::JsonForm;
use super::json::{self, JsonError};
use super::keys;
use hotrow_source::json::{push_hex, write_text};

/// Fields by which documents are looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AliasFields {
    /// Name of the alias, for messages.
    pub(crate) name: String,
    /// Names, each with the type of the values that can be requested.
    pub(crate) fields: Vec<(String, KeyTypeName)>,
    /// Unique index of exactly these fields, at the start.
    pub(crate) index: String,
}

/// Values of the fields in a document; `None` if it lacks the field.
pub(crate) struct AliasValues<'a>(Vec<Option<Value<'a>>>);

/// What an event says of the values that a document has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NewValue {
    /// None that a lookup can name, or the one that it had.
    None,
    Key(Key),
    /// The event lacks a field, so that the value may be any.
    Unknown,
}

impl AliasFields {
    pub(crate) fn schema(&self, collection: CollectionId) -> KeySchema {
        let types = self.fields.iter().map(|(_, ty)| keys::key_type(*ty)).collect();
        KeySchema::new(collection, types)
    }

    /// Returns the filter that finds the documents with these values.
    pub(crate) fn filter(&self, keys: &[Key]) -> BsonDocument {
        let of_one = |key: &Key| -> BsonDocument {
            let fields = self.fields.iter().zip(key.parts());
            fields.map(|((name, ty), part)| (name.clone(), keys::value(*ty, part))).collect()
        };
        match (keys, &self.fields[..]) {
            ([key], _) => of_one(key),
            (keys, [(name, ty)]) => {
                let values = keys.iter().filter_map(|key| key.parts().next());
                let values: Vec<Bson> = values.map(|part| keys::value(*ty, part)).collect();
                doc! { name: { "$in": values } }
            }
            (keys, _) => doc! { "$or": keys.iter().map(of_one).collect::<Vec<_>>() },
        }
    }

    /// Returns the projection of the fields and the `_id`.
    pub(crate) fn projection(&self) -> BsonDocument {
        let fields = self.fields.iter().map(|(name, _)| (name.clone(), Bson::Int32(1)));
        std::iter::once(("_id".to_owned(), Bson::Int32(1))).chain(fields).collect()
    }

    /// Returns the values in a document, and parses it to its end.
    ///
    /// # Errors
    /// Fails if this level of the document is malformed.
    pub(crate) fn values<'a>(&self, document: Document<'a>) -> Result<AliasValues<'a>, Malformed> {
        let mut found = vec![None; self.fields.len()];
        for element in document.elements() {
            let (name, value) = element?;
            let place = self.fields.iter().position(|(own, _)| own.as_bytes() == name);
            if let Some(place) = place.and_then(|place| found.get_mut(place)) {
                place.get_or_insert(value);
            }
        }
        Ok(AliasValues(found))
    }

    /// Returns the key of the values; `None` if no lookup can name them.
    pub(crate) fn key(&self, schema: &KeySchema, values: &AliasValues<'_>) -> Option<Key> {
        let parts: Option<Vec<KeyPart<'_>>> = self.parts(values).collect();
        schema.key(&parts?).ok()
    }

    fn parts<'a>(&self, values: &AliasValues<'a>) -> impl Iterator<Item = Option<KeyPart<'a>>> {
        self.fields.iter().zip(&values.0).map(|((_, ty), value)| keys::part(*ty, (*value)?))
    }

    /// Returns the keys of values inside an array, by which a query finds the document although it
    /// does not have them. A document with several such arrays is in no index of these fields.
    pub(crate) fn keys_in_array(&self, schema: &KeySchema, values: &AliasValues<'_>) -> Vec<Key> {
        let is_array = |value: &Option<Value<'_>>| matches!(value, Some(Value::Array(_)));
        let Some(place) = values.0.iter().position(is_array) else { return Vec::new() };
        let Some(Some(Value::Array(array))) = values.0.get(place).copied() else {
            return Vec::new();
        };
        let of_element = |element: Value<'_>| {
            let mut one = values.0.clone();
            *one.get_mut(place)? = Some(element);
            self.key(schema, &AliasValues(one))
        };
        array.elements().map_while(Result::ok).filter_map(|(_, e)| of_element(e)).collect()
    }

    /// Returns what an inserted or replaced document, or the updated fields of one, say of the
    /// value. `None`: the event has neither, so the value may be any.
    pub(crate) fn new_value(&self, schema: &KeySchema, change: FieldChange<'_>) -> NewValue {
        let (document, is_whole) = match change {
            FieldChange::Whole(document) => (document, true),
            FieldChange::Updated(fields) => (fields, false),
        };
        let Some(values) = document.and_then(|document| self.values(document).ok()) else {
            return NewValue::Unknown;
        };
        let is_touched = values.0.iter().any(Option::is_some);
        let is_nameless =
            || values.0.iter().zip(self.parts(&values)).any(|(v, p)| v.is_some() && p.is_none());
        if !is_whole && (!is_touched || is_nameless()) {
            return NewValue::None;
        }
        if !is_whole && values.0.iter().any(Option::is_none) {
            return NewValue::Unknown;
        }
        self.key(schema, &values).map_or(NewValue::None, NewValue::Key)
    }

    /// Writes the row of an alias: the key that it names, and the fields by which the record of
    /// that key confirms it, written as in the record.
    ///
    /// # Errors
    /// See [`JsonError`].
    pub(crate) fn row(
        &self,
        form: JsonForm,
        key: &Key,
        values: &AliasValues<'_>,
    ) -> Result<Vec<u8>, JsonError> {
        let mut out = Vec::new();
        for part in key.parts() {
            out.push(if out.is_empty() { b'{' } else { b',' });
            out.extend_from_slice(b"\"_id\":");
            match part {
                KeyPart::Text(text) => write_text(&mut out, text.as_bytes()),
                KeyPart::Integer(integer) => {
                    out.extend_from_slice(itoa::Buffer::new().format(integer).as_bytes());
                }
                KeyPart::Bytes(bytes) => {
                    out.push(b'"');
                    bytes.iter().for_each(|byte| push_hex(&mut out, *byte));
                    out.push(b'"');
                }
            }
        }
        for ((name, _), value) in self.fields.iter().zip(&values.0) {
            out.push(b',');
            json::write_member(&mut out, form, name, value.unwrap_or(Value::Null))?;
        }
        out.push(b'}');
        Ok(out)
    }
}

/// Part of a document that an event contains; `None`: the event lacks it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FieldChange<'a> {
    /// An inserted document, or one that replaces another.
    Whole(Option<Document<'a>>),
    /// Fields that an update has set, by their paths. A path below a field of the alias leaves a
    /// document or an array there, and a removed field nothing: no lookup finds these.
    Updated(Option<Document<'a>>),
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{DateTime, Decimal128, serialize_to_vec};

    use super::*;

    fn alias(fields: &[(&str, KeyTypeName)]) -> AliasFields {
        let fields = fields.iter().map(|(name, ty)| ((*name).to_owned(), *ty)).collect();
        AliasFields { name: "users/by/x".into(), fields, index: "x_1".into() }
    }

    fn email() -> AliasFields {
        alias(&[("email", KeyTypeName::Text)])
    }

    fn full_name() -> AliasFields {
        alias(&[("first", KeyTypeName::Text), ("last", KeyTypeName::Text)])
    }

    /// Returns the value as an id, `none`, or `unknown`.
    fn new_value(alias: &AliasFields, of: &BsonDocument, is_whole: bool) -> String {
        let schema = alias.schema(CollectionId(3));
        let bytes = serialize_to_vec(of).unwrap();
        let document = Some(Document::new(&bytes).unwrap());
        let change = match is_whole {
            true => FieldChange::Whole(document),
            false => FieldChange::Updated(document),
        };
        match alias.new_value(&schema, change) {
            NewValue::Key(key) => schema.id_of(key.as_bytes()).unwrap(),
            NewValue::None => "none".into(),
            NewValue::Unknown => "unknown".into(),
        }
    }

    #[test]
    fn a_whole_document_has_the_value_or_none() {
        let whole = |document: BsonDocument| new_value(&email(), &document, true);
        assert_eq!(whole(doc! { "_id": 1, "email": "a/b" }), "a%2Fb");
        for nameless in [
            doc! {},
            doc! { "email": null },
            doc! { "email": 7 },
            doc! { "email": ["a"] },
            doc! { "email": { "x": "a" } },
            doc! { "email": DateTime::from_millis(0) },
        ] {
            assert_eq!(whole(nameless.clone()), "none", "{nameless}");
        }
        let names = |document: BsonDocument| new_value(&full_name(), &document, true);
        assert_eq!(names(doc! { "last": "L", "first": "F" }), "F,L");
        assert_eq!(names(doc! { "first": "F" }), "none");
        assert_eq!(names(doc! { "first": "F", "last": ["L"] }), "none");
    }

    #[test]
    fn an_update_has_the_value_where_it_sets_the_field_itself() {
        let updated = |fields: BsonDocument| new_value(&email(), &fields, false);
        assert_eq!(updated(doc! { "email": "new" }), "new");
        for untouched in [
            doc! {},
            doc! { "email.x": "new" },
            doc! { "email.0": "new" },
            doc! { "other.email": "new" },
            doc! { "email": null },
            doc! { "email": ["new"] },
        ] {
            assert_eq!(updated(untouched.clone()), "none", "{untouched}");
        }
    }

    #[test]
    fn an_update_of_a_part_is_unknown_unless_that_part_has_no_name() {
        let updated = |fields: BsonDocument| new_value(&full_name(), &fields, false);
        assert_eq!(updated(doc! { "first": "F", "last": "L" }), "F,L");
        assert_eq!(updated(doc! { "last": "L" }), "unknown");
        assert_eq!(updated(doc! { "first": "F", "last.x": 1 }), "unknown");
        assert_eq!(updated(doc! { "note": 1 }), "none");
        assert_eq!(updated(doc! { "last": null }), "none");
        assert_eq!(updated(doc! { "first": "F", "last": 7 }), "none");
    }

    #[test]
    fn an_event_without_the_fields_is_unknown() {
        let alias = email();
        let schema = alias.schema(CollectionId(3));
        for change in [FieldChange::Whole(None), FieldChange::Updated(None)] {
            assert_eq!(alias.new_value(&schema, change), NewValue::Unknown, "{change:?}");
        }
    }

    #[test]
    fn equal_numbers_are_one_value() {
        let number = alias(&[("n", KeyTypeName::Integer)]);
        let seven: Decimal128 = "7.00".parse().unwrap();
        for value in [Bson::Int32(7), Bson::Int64(7), Bson::Double(7.0), Bson::Decimal128(seven)] {
            assert_eq!(new_value(&number, &doc! { "n": value.clone() }, true), "7", "{value}");
        }
        assert_eq!(new_value(&number, &doc! { "n": 7.5 }, true), "none");
    }

    #[test]
    fn the_first_field_of_a_name_is_the_value() {
        let mut twice = mongodb::bson::RawDocumentBuf::new();
        for value in ["x", "y"] {
            twice.append(mongodb::bson::raw::cstr!("email"), value);
        }
        let alias = email();
        let schema = alias.schema(CollectionId(3));
        let values = alias.values(Document::new(twice.as_bytes()).unwrap()).unwrap();
        assert_eq!(alias.key(&schema, &values), schema.parse_url("x").ok());
    }

    #[test]
    fn values_in_an_array_are_recognised_and_none_is_the_documents() {
        let alias = full_name();
        let schema = alias.schema(CollectionId(3));
        let bytes = |document: BsonDocument| serialize_to_vec(&document).unwrap();
        let array = bytes(doc! { "first": "F", "last": ["a", 7, ["b"], "c"] });
        let values = alias.values(Document::new(&array).unwrap()).unwrap();
        let in_array = ["F,a", "F,c"].map(|id| schema.parse_url(id).unwrap());
        assert_eq!(alias.keys_in_array(&schema, &values), in_array);
        assert_eq!(alias.key(&schema, &values), None);
        for plain in [doc! { "first": "F", "last": "L" }, doc! { "last": ["a"] }] {
            let plain = bytes(plain);
            let values = alias.values(Document::new(&plain).unwrap()).unwrap();
            assert_eq!(alias.keys_in_array(&schema, &values), []);
        }
    }

    #[test]
    fn documents_are_found_by_values_and_rows_have_the_form_of_records() {
        let own = |alias: &AliasFields, ids: &[&str]| {
            let schema = alias.schema(CollectionId(3));
            let keys: Vec<Key> = ids.iter().map(|id| schema.parse_url(id).unwrap()).collect();
            alias.filter(&keys)
        };
        assert_eq!(own(&email(), &["a"]), doc! { "email": "a" });
        assert_eq!(own(&email(), &["a", "b"]), doc! { "email": { "$in": ["a", "b"] } });
        let [one, two] = [("F", "L"), ("G", "M")].map(|(f, l)| doc! { "first": f, "last": l });
        assert_eq!(own(&full_name(), &["F,L"]), one);
        assert_eq!(own(&full_name(), &["F,L", "G,M"]), doc! { "$or": [one, two] });
        let key = |ty, id: &str| {
            KeySchema::new(CollectionId(0), vec![keys::key_type(ty)]).parse_url(id).unwrap()
        };
        let alias = alias(&[("n", KeyTypeName::Integer), ("o", KeyTypeName::ObjectId)]);
        let id = mongodb::bson::oid::ObjectId::from_bytes([0xab; 12]);
        let bytes = serialize_to_vec(&doc! { "o": id, "x": 1, "n": 7.0 }).unwrap();
        let values = alias.values(Document::new(&bytes).unwrap()).unwrap();
        let row =
            |form, key: &Key| String::from_utf8(alias.row(form, key, &values).unwrap()).unwrap();
        let hex = "ab".repeat(12);
        assert_eq!(
            row(JsonForm::Plain, &key(KeyTypeName::Text, "a%22b")),
            format!("{{\"_id\":\"a\\\"b\",\"n\":7.0,\"o\":\"{hex}\"}}")
        );
        assert_eq!(
            row(JsonForm::RelaxedExtended, &key(KeyTypeName::ObjectId, &hex)),
            format!("{{\"_id\":\"{hex}\",\"n\":7.0,\"o\":{{\"$oid\":\"{hex}\"}}}}")
        );
    }
}
