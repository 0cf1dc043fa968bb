//! Names of collections and sources, and of tables and columns.

use std::collections::HashSet;

use super::problem::shown;
use super::reader::Section;

/// Longest name of a collection, a source, a rule, a role and the like.
pub(crate) const NAME_BYTES_MAX: usize = 64;
const IDENTIFIER_BYTES_MAX: usize = 256;
/// Most columns of a table in SQLite (SQLITE_MAX_COLUMN).
const COLUMNS_MAX: usize = 2_000;

/// Returns whether a collection, a source and the like may have this name.
pub(crate) fn name_is_valid(name: &str) -> bool {
    let rest_is_valid = name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'));
    rest_is_valid
        && name.len() <= NAME_BYTES_MAX
        && name.starts_with(|c: char| c.is_ascii_lowercase())
}

/// Refuses a table whose own name is invalid. `kind`: what it names.
pub(super) fn check_name(section: &Section<'_>, kind: &str, name: &str) {
    if !name_is_valid(name) {
        section.refuse_whole(&format!(
            "the name of {kind} must begin with a letter a to z and have at most {NAME_BYTES_MAX} \
             of a to z, 0 to 9, _ and -, not {}",
            shown(name)
        ));
    }
}

/// Reads a list of columns, if the key is set.
pub(super) fn names(
    section: &mut Section<'_>,
    name: &'static str,
    default: &str,
) -> Option<Vec<String>> {
    let list = section.texts(name, default, "a list of 1 to 2000 columns")?;
    if list.is_empty() || list.len() > COLUMNS_MAX {
        section.refuse(
            name,
            format!(
                "must name 1 to {COLUMNS_MAX} columns, not {}; leave the key out for its default",
                list.len()
            ),
        );
    }
    check_identifiers(section, name, &list);
    Some(list)
}

/// Checks the names of tables or columns. No two may be equal without regard to ASCII case, which
/// is how SQLite compares them.
pub(super) fn check_identifiers(section: &Section<'_>, name: &str, list: &[String]) {
    let mut seen = HashSet::new();
    for identifier in list {
        if identifier.is_empty()
            || identifier.len() > IDENTIFIER_BYTES_MAX
            || identifier.contains('\0')
        {
            section.refuse(
                name,
                format!(
                    "must have 1 to {IDENTIFIER_BYTES_MAX} bytes without NUL, not {}",
                    shown(identifier)
                ),
            );
        } else if !seen.insert(identifier.to_ascii_lowercase()) {
            section.refuse(name, format!("must not name a column twice: {}", shown(identifier)));
        }
    }
}
