//! `key_type`: types of the columns of a key.

use hotrow_source::spec::KeyTypeName;

use super::problem::shown;
use super::reader::Section;

/// Reads the types of a key of so many columns; none if the table is to say them.
pub(super) fn key_types(section: &mut Section<'_>, columns: usize) -> Vec<KeyTypeName> {
    let Some(words) = section.texts(
        "key_type",
        "from the table",
        "integer, text, uuid, objectid, bytes; or a list of them",
    ) else {
        return Vec::new();
    };
    let mut types = Vec::with_capacity(words.len());
    for word in &words {
        match word.as_str() {
            "integer" => types.push(KeyTypeName::Integer),
            "text" => types.push(KeyTypeName::Text),
            "uuid" => types.push(KeyTypeName::Uuid),
            "objectid" => types.push(KeyTypeName::ObjectId),
            "bytes" => types.push(KeyTypeName::Bytes),
            _ => {
                let names = "integer, text, uuid, objectid and bytes";
                section.refuse("key_type", format!("must be made of {names}, not {}", shown(word)));
                return Vec::new();
            }
        }
    }
    if types.len() != columns {
        section.refuse(
            "key_type",
            format!(
                "must name one type per column of the key: the key has {columns}, key_type {}",
                types.len()
            ),
        );
    }
    types
}
