//! Parts of statements.

use std::fmt::Write as _;

use hotrow_types::key::Key;

use super::super::inspect::{Select, Served, quote};
use super::super::keys::KeyColumn;

/// Builds the condition that a row of the alias `of` has one of the keys. Keys that the columns
/// cannot hold are omitted: no such row exists.
pub(super) fn condition(of: &str, columns: &[KeyColumn], keys: &[Key]) -> String {
    let mut sql = String::new();
    for key in keys {
        let start = sql.len();
        match (columns, start) {
            ([only], 0) => _ = write!(sql, "{of}.{} IN (", quote(&only.name)),
            ([_], _) => sql.push_str(", "),
            (_, 0) => sql.push('('),
            (_, _) => sql.push_str(" OR ("),
        }
        let mut possible = true;
        for (i, (column, part)) in columns.iter().zip(key.parts()).enumerate() {
            if columns.len() > 1 {
                let and = if i == 0 { "" } else { " AND " };
                _ = write!(sql, "{and}{of}.{} = ", quote(&column.name));
            }
            possible &= column.stored.write_literal(part, &mut sql);
        }
        if !possible {
            sql.truncate(start);
        } else if columns.len() > 1 {
            sql.push(')');
        }
    }
    match sql.is_empty() {
        true => "1 = 0".into(),
        false if columns.len() == 1 => sql + ")",
        false => sql,
    }
}

/// Returns a column of the table with the alias `of` in a SELECT list.
pub(super) fn select(served: &Served, of: &str) -> String {
    let column = format!("{of}.{}", quote(&served.name));
    match served.select {
        Select::Plain => column,
        Select::Double => format!("{column} + 0e0"),
        Select::Wkb => format!("ST_AsBinary({column})"),
    }
}
