//! Names of what is added to a database, and how names and texts are written in SQL.

/// The change log.
pub(crate) const LOG_TABLE: &str = "_hotrow_log";
/// One row: which log it is and how far it was pruned.
pub(crate) const META_TABLE: &str = "_hotrow_meta";
/// What every trigger of ours begins with; the namespace is ours, so `unwatch` removes by it.
pub(crate) const TRIGGER_PREFIX: &str = "_hotrow_";
/// Version of the layout of log, meta table and triggers. A database with a higher one is refused.
pub(crate) const FORMAT: i64 = 1;

/// An identifier, quoted, so that keywords, spaces and quotes in it are data.
pub(crate) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text literal.
pub(crate) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// What a table's rows are called in the log: table and key columns, as `"products"("id")`. Several instances that serve
/// the same table by the same key share one set of triggers; by another key they have their own. ASCII letters are
/// folded because SQLite's names do not tell their case apart.
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
