//! Names of the tables and triggers that are added to a database, and quoting for SQL.

/// Table of the change log.
pub(crate) const LOG_TABLE: &str = "_hotrow_log";
/// Table with one row: the log's id and its pruned range.
pub(crate) const META_TABLE: &str = "_hotrow_meta";
/// Prefix of every trigger of Hotrow. The namespace is reserved: `uninstall-triggers` removes by
/// it.
pub(crate) const TRIGGER_PREFIX: &str = "_hotrow_";
/// Version of the layout of log, meta table and triggers. A database with a higher version is
/// refused.
pub(crate) const FORMAT: i64 = 1;

/// Quotes an identifier, so that keywords, spaces and quotes in it are data.
pub(crate) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

pub(crate) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Returns the name of a table's rows in the log: table and key columns, as `"products"("id")`.
///
/// Instances that serve the same table by the same key share one set of triggers; another key has
/// its own set. ASCII letters are folded because SQLite's names ignore their case.
pub(crate) fn watch_name(table: &str, key: &[&str]) -> String {
    let columns: Vec<String> = key.iter().map(|c| quote(c)).collect();
    format!("{}({})", quote(table), columns.join(",")).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_data() {
        assert_eq!(quote("a\"b c"), "\"a\"\"b c\"");
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(watch_name("Pro\"ducts", &["Id", "b"]), "\"pro\"\"ducts\"(\"id\",\"b\")");
        assert_ne!(watch_name("a", &["b", "c"]), watch_name("a", &["b\",\"c"]));
    }
}
