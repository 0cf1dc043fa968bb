//! Format of the records: the row, the value of an alias, and the rows inside.
//!
//! With an alias or an embedded member a record changes while its row's version does not. Its
//! *content* is then what all its parts state, and its version that of the one state that had this
//! content ([`crate::ledger`]). The writers make each content unique ([`crate::family`]).

use serde_json::{Map, Value};

use crate::random::mix;
use crate::row::{KeyType, MARK, PAYLOAD, VERSION, payload, version_of};

/// Key column of the rows inside records.
pub const CHILD_KEY: &str = "id";

/// Format of the collection's records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordSchema {
    /// Collection in URLs.
    pub collection: String,
    /// Key column.
    pub key: String,
    /// Its type.
    pub key_type: KeyType,
    /// Other unique column by which records are looked up.
    pub alias: Option<AliasSchema>,
    /// Rows of another table inside the records.
    pub embedded: Option<EmbeddedSchema>,
    /// Another collection of the same table, which snapshots read too.
    pub other: Option<String>,
    /// Number of keys; the values of the alias are numbered from there on.
    pub keys: u32,
}

/// An alias.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AliasSchema {
    /// Its name in URLs.
    pub name: String,
    /// Its column.
    pub column: String,
    /// Whether a record without a value lacks the member, as in MongoDB.
    pub is_optional: bool,
}

/// An embedded member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbeddedSchema {
    /// Its name.
    pub member: String,
    /// The column of the children that names their parent; checked where it is served.
    pub on: String,
    /// Order of the children, without their key.
    pub order: Vec<ChildOrder>,
}

/// A column of an order of children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildOrder {
    /// `true`: by version; otherwise by key.
    pub is_by_version: bool,
    /// Whether greater values come first.
    pub is_descending: bool,
}

/// All that the parts of a record state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    /// Version of the row.
    pub(crate) version: u64,
    /// Value of the alias.
    pub(crate) value: Option<u32>,
    /// Keys and versions of the children, by key.
    pub(crate) children: Vec<(u32, u64)>,
}

impl Content {
    /// Returns a number that other contents do not have, except with a probability of 2⁻⁶⁴.
    pub(crate) fn fingerprint(&self) -> u64 {
        let first = mix(self.version) ^ self.value.map_or(0, |value| mix(!u64::from(value)));
        let add = |sum, (key, version): &(u32, u64)| mix(mix(sum ^ u64::from(*key)) ^ *version);
        self.children.iter().fold(mix(first), add)
    }

    /// Returns the newest version in it.
    pub(crate) fn newest(&self) -> u64 {
        self.children.iter().map(|(_, version)| *version).fold(self.version, u64::max)
    }
}

impl RecordSchema {
    /// Returns whether the version of a row is that of its record.
    pub(crate) fn is_plain(&self) -> bool {
        self.alias.is_none() && self.embedded.is_none()
    }

    /// Returns the value that has this number in the ledger, if it is none of a key.
    pub fn value_of(&self, id: u32) -> Option<u32> {
        id.checked_sub(self.keys).filter(|value| *value > 0)
    }

    /// Returns the key or value as in URLs and batches.
    pub fn id(&self, id: u32) -> String {
        match self.value_of(id) {
            Some(value) => KeyType::Text.text(value),
            None => self.key_type.text(id),
        }
    }

    /// Returns the name of a key or value for messages.
    pub fn shown(&self, id: u32) -> String {
        match (self.value_of(id), &self.alias) {
            (Some(_), Some(alias)) => format!("{} {}", alias.column, self.id(id)),
            _ => self.id(id),
        }
    }

    /// Returns the collection's path, or that of its alias.
    pub(crate) fn path(&self, is_alias: bool) -> String {
        match &self.alias {
            Some(alias) if is_alias => format!("/{}/by/{}", self.collection, alias.name),
            _ => format!("/{}", self.collection),
        }
    }

    /// Returns the key of a record.
    pub(crate) fn key_of(&self, record: &Map<String, Value>) -> Option<u32> {
        match record.get(&self.key)? {
            Value::String(text) => self.key_type.parse(text),
            Value::Number(number) if self.key_type == KeyType::Integer => {
                u32::try_from(number.as_u64()?).ok()
            }
            _ => None,
        }
    }

    /// Returns the content of a record.
    ///
    /// # Errors
    /// The difference from a valid record.
    pub(crate) fn content(&self, record: &Map<String, Value>, key: u32) -> Result<Content, String> {
        let version = version_of(record, &self.key, self.key_type, key)?;
        let value = match &self.alias {
            None => None,
            Some(alias) => match record.get(&alias.column) {
                Some(Value::Null) => None,
                None if alias.is_optional => None,
                Some(Value::String(text)) if let Some(value) = KeyType::Text.parse(text) => {
                    Some(value)
                }
                other => return Err(format!("its {} is {other:?}", alias.column)),
            },
        };
        let children = match &self.embedded {
            None => Vec::new(),
            Some(embedded) => {
                let Some(Value::Array(rows)) = record.get(&embedded.member) else {
                    return Err(format!("its {} are no array", embedded.member));
                };
                let rows: Result<Vec<_>, _> =
                    rows.iter().map(|row| self.child(embedded, row, key)).collect();
                embedded.in_order(rows?)?
            }
        };
        Ok(Content { version, value, children })
    }

    fn child(
        &self,
        embedded: &EmbeddedSchema,
        row: &Value,
        parent: u32,
    ) -> Result<(u32, u64), String> {
        let wrong = || {
            let text: String = row.to_string().chars().take(80).collect();
            format!("one of its {} is {text}", embedded.member)
        };
        let number = |column| row.get(column).and_then(Value::as_u64);
        let id = number(CHILD_KEY).and_then(|id| u32::try_from(id).ok()).ok_or_else(wrong)?;
        let version = number(VERSION).ok_or_else(wrong)?;
        let text = row.get(PAYLOAD).and_then(Value::as_str).ok_or_else(wrong)?;
        let is_of_parent = row.get(&embedded.on).is_none_or(|on| self.key_type.is(on, parent));
        if text != payload(id, version) || !is_of_parent {
            return Err(wrong());
        }
        debug_assert!(text.starts_with(MARK));
        Ok((id, version))
    }
}

impl EmbeddedSchema {
    /// Returns the children by key.
    ///
    /// # Errors
    /// They are not in the configured order.
    fn in_order(&self, mut children: Vec<(u32, u64)>) -> Result<Vec<(u32, u64)>, String> {
        let rank = |(id, version): &(u32, u64)| {
            let part = |order: &ChildOrder| {
                let value = if order.is_by_version { *version } else { u64::from(*id) };
                if order.is_descending { u64::MAX - value } else { value }
            };
            let mut rank: Vec<u64> = self.order.iter().map(part).collect();
            rank.push(u64::from(*id));
            rank
        };
        if !children.is_sorted_by_key(rank) {
            return Err(format!("its {} are in another order: {children:?}", self.member));
        }
        children.sort_unstable();
        Ok(children)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> RecordSchema {
        let order = vec![ChildOrder { is_by_version: true, is_descending: true }];
        let (member, on) = ("parts".to_owned(), "parent".to_owned());
        RecordSchema {
            collection: "c".to_owned(),
            key: "id".to_owned(),
            key_type: KeyType::Integer,
            alias: Some(AliasSchema {
                name: "by_handle".to_owned(),
                column: "handle".to_owned(),
                is_optional: false,
            }),
            embedded: Some(EmbeddedSchema { member, on, order }),
            other: None,
            keys: 10,
        }
    }

    #[test]
    fn a_record_states_a_value_and_ordered_children_of_its_own() {
        let row =
            |key, version| format!(r#""version":{version},"payload":"{}""#, payload(key, version));
        let child = |id, version| format!(r#"{{"id":{id},"parent":7,{}}}"#, row(id, version));
        let good = format!(
            r#"{{"id":7,{},"handle":"k3","parts":[{},{}]}}"#,
            row(7, 2),
            child(4, 9),
            child(2, 8)
        );
        let read =
            |text: &str| schema().content(&serde_json::from_str(text).expect("an object"), 7);
        let content = Content { version: 2, value: Some(3), children: vec![(2, 8), (4, 9)] };
        assert_eq!(read(&good), Ok(content.clone()));
        let free = Content { value: None, ..content.clone() };
        assert_eq!(read(&good.replace("\"k3\"", "null")), Ok(free.clone()));
        let mut optional = schema();
        optional.alias.as_mut().expect("an alias").is_optional = true;
        let without = serde_json::from_str(&good.replace(r#""handle":"k3","#, "")).expect("JSON");
        assert_eq!(optional.content(&without, 7), Ok(free.clone()));
        for bad in [
            good.replace("handle", "other"),
            good.replace("\"k3\"", "3"),
            good.replace("parts", "others"),
            good.replace("\"parent\":7", "\"parent\":8"),
            good.replace("\"version\":8", "\"version\":7"),
            good.replace(
                &format!("{},{}", child(4, 9), child(2, 8)),
                &child(4, 8).replace("\"id\":4", "\"id\":5"),
            ),
            good.replace(&child(4, 9), "1"),
            good.replace(
                &format!("{},{}", child(4, 9), child(2, 8)),
                &format!("{},{}", child(2, 8), child(4, 9)),
            ),
        ] {
            assert!(read(&bad).is_err(), "{bad}");
        }
        let fewer = Content { children: vec![(4, 9)], ..content };
        let fingerprints = [&content, &free, &fewer].map(Content::fingerprint);
        assert!(
            fingerprints.iter().all(|one| fingerprints.iter().filter(|f| *f == one).count() == 1)
        );
    }

    #[test]
    fn values_are_numbered_behind_the_keys() {
        let schema = schema();
        assert_eq!((schema.id(10), schema.id(11)), ("10".to_owned(), "k1".to_owned()));
        assert_eq!((schema.value_of(10), schema.value_of(13)), (None, Some(3)));
        assert_eq!(schema.shown(13), "handle k3");
        assert_eq!(
            (schema.path(false), schema.path(true)),
            ("/c".to_owned(), "/c/by/by_handle".to_owned())
        );
        let key = |text| schema.key_of(&serde_json::from_str(text).expect("an object"));
        assert_eq!((key(r#"{"id":7}"#), key(r#"{"id":"7"}"#), key("{}")), (Some(7), Some(7), None));
    }
}
