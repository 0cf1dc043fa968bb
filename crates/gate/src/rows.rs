//! Rows of an alias, as the source delivers them, as records for the cache.

use hotrow_answer::collections::Alias;
use hotrow_cache::alias::alias_record;
use hotrow_types::columns::{member_ends, text_of};

/// Returns the record of an alias: the key that the first members of the row are, and the other
/// members, by which the record of that key confirms it. `None`: no id can name the row.
pub(crate) fn convert_row(alias: &Alias, row: &[u8]) -> Option<Vec<u8>> {
    let mut start = 1;
    let member = |end: usize| {
        let member = row.get(start..end).unwrap_or_default();
        start = end + 1;
        member
    };
    let members: Vec<&[u8]> = member_ends(row)?.into_iter().map(member).collect();
    let (key, others) = members.split_at_checked(alias.settings.key_columns)?;
    let texts: Vec<_> = key.iter().map(|member| text_of(member)).collect::<Option<_>>()?;
    let texts: Vec<&str> = texts.iter().map(|text| &**text).collect();
    let key = alias.keys.parse_texts(&texts).ok()?;
    Some(alias_record(&key, others))
}

#[cfg(test)]
mod tests {
    use hotrow_types::key::{Collation, CollectionId, KeySchema, KeyType};

    use super::*;
    fn alias(types: &[KeyType]) -> Alias {
        let settings = hotrow_config::Alias {
            of: CollectionId(0),
            of_name: "users".into(),
            columns: vec!["email".into()],
            key_columns: types.len(),
        };
        Alias { settings, keys: KeySchema::new(CollectionId(0), types.to_vec()) }
    }

    #[test]
    fn the_first_members_are_the_key() {
        let one = alias(&[KeyType::Integer]);
        let key = one.keys.parse_texts(&["7"]).unwrap();
        let member = br#""email":"a,b""#;
        let row = br#"{"id":7,"email":"a,b"}"#;
        assert_eq!(convert_row(&one, row), Some(alias_record(&key, &[member])));
        assert_eq!(convert_row(&one, br#"{"id":7}"#), Some(alias_record(&key, &[])));
        let two = alias(&[KeyType::Integer, KeyType::Text(Collation::Binary)]);
        let key = two.keys.parse_texts(&["7", "a\"b"]).unwrap();
        let row = br#"{"id":7,"sku":"a\"b","email":null}"#;
        assert_eq!(convert_row(&two, row), Some(alias_record(&key, &[br#""email":null"#])));
    }

    #[test]
    fn rows_without_a_key_have_no_record() {
        let alias = alias(&[KeyType::Integer]);
        for row in ["", "{}", r#"{"id":null,"e":1}"#, r#"{"id":"x"}"#, r#"{"id":7.5}"#, "7"] {
            assert_eq!(convert_row(&alias, row.as_bytes()), None, "{row}");
        }
    }
}
