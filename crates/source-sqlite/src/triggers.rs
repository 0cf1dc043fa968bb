//! Triggers that fill the change log, as SQL text. Comparing the text shows whether a database has
//! the right triggers.

use hotrow_types::key::KEY_PARTS_MAX;

use super::inspect::{Table, Unique};
use super::names::{LOG_TABLE, META_TABLE, TRIGGER_PREFIX, literal, quote};

/// Trigger in its intended form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trigger {
    pub(crate) name: String,
    pub(crate) sql: String,
}

impl Trigger {
    fn new(kind: &str, subject: &str, rest: &str) -> Self {
        let name = format!("{TRIGGER_PREFIX}{kind}_{subject}");
        // SQLite keeps exactly this text, from the name on, so it can be compared.
        let sql = format!("CREATE TRIGGER {} {rest}", quote(&name));
        Self { name, sql }
    }
}

pub(crate) fn of_table(table: &Table) -> Vec<Trigger> {
    let watch = table.watch_name();
    let on = quote(&table.name);
    let new = logged(&watch, table, "NEW");
    let old = logged(&watch, table, "OLD");
    let moved = any_differs(table.key.iter().map(|k| k.name.as_str()));
    let mut triggers = vec![
        Trigger::new("insert", &watch, &format!("AFTER INSERT ON {on} BEGIN {new}; END")),
        Trigger::new(
            "update",
            &watch,
            &format!("AFTER UPDATE ON {on} BEGIN {old}; {new} WHERE {moved}; END"),
        ),
        Trigger::new("delete", &watch, &format!("AFTER DELETE ON {on} BEGIN {old}; END")),
    ];
    if !table.uniques.is_empty() {
        let on_insert: String =
            table.uniques.iter().map(|u| evicted(&watch, table, u, None)).collect();
        triggers.push(Trigger::new(
            "evict_insert",
            &watch,
            &format!("BEFORE INSERT ON {on} BEGIN {on_insert}END"),
        ));
        let columns = table.uniques.iter().flat_map(|u| &u.columns).map(|c| c.name.as_str());
        let changed = any_differs(columns);
        let on_update: String =
            table.uniques.iter().map(|u| evicted(&watch, table, u, Some(()))).collect();
        triggers.push(Trigger::new(
            "evict_update",
            &watch,
            &format!("BEFORE UPDATE ON {on} WHEN {changed} BEGIN {on_update}END"),
        ));
    }
    triggers
}

/// Returns the triggers of the log itself.
///
/// `bound` limits the log without pruning: every `step` rows, it deletes the rows beyond
/// `rows_max`. `guard` gives the log a new id when rows are deleted that were not marked as pruned
/// first: later rows may get the same numbers, and no reader could see the difference.
pub(crate) fn of_log(rows_max: u64, step: u64) -> [Trigger; 2] {
    let log = quote(LOG_TABLE);
    let meta = quote(META_TABLE);
    let bound = format!(
        "AFTER INSERT ON {log} WHEN NEW.seq % {step} = 0 AND NEW.seq > {rows_max} BEGIN \
         UPDATE {meta} SET pruned_to = NEW.seq - {rows_max} \
         WHERE pruned_to < NEW.seq - {rows_max}; \
         DELETE FROM {log} WHERE seq <= NEW.seq - {rows_max}; END"
    );
    let guard = format!(
        "BEFORE DELETE ON {log} WHEN OLD.seq > (SELECT pruned_to FROM {meta}) BEGIN \
         UPDATE {meta} SET log_id = random(); END"
    );
    [Trigger::new("bound", "log", &bound), Trigger::new("guard", "log", &guard)]
}

fn log_columns(parts: usize) -> String {
    debug_assert!(parts <= KEY_PARTS_MAX);
    let keys: String = (1..=parts).map(|i| format!(", k{i}")).collect();
    format!("{}(tbl{keys})", quote(LOG_TABLE))
}

/// Returns the SQL that logs one row by its key; a WHERE may follow.
fn logged(watch: &str, table: &Table, row: &str) -> String {
    let values: String = table.key.iter().map(|k| format!(", {row}.{}", quote(&k.name))).collect();
    format!("INSERT INTO {} SELECT {}{values}", log_columns(table.key.len()), literal(watch))
}

/// Returns an expression that is true if a column of the row changes. It compares byte by byte, so
/// that it includes a change which a collation ignores.
fn any_differs<'a>(columns: impl Iterator<Item = &'a str>) -> String {
    let differs = columns.map(|c| format!("OLD.{0} IS NOT NEW.{0} COLLATE BINARY", quote(c)));
    format!("({})", differs.collect::<Vec<_>>().join(" OR "))
}

/// Returns the SQL that logs the rows which a REPLACE would evict because they equal the new row in
/// a unique constraint. No delete trigger fires for them unless the writer sets
/// `recursive_triggers`. Rows that are not evicted after all are logged in vain.
fn evicted(watch: &str, table: &Table, unique: &Unique, update: Option<()>) -> String {
    let mut terms = Vec::new();
    if update.is_some() {
        terms.push(any_differs(unique.columns.iter().map(|c| c.name.as_str())));
    }
    for column in &unique.columns {
        let name = quote(&column.name);
        let new = match &column.instead_of_null {
            Some(default) => format!("ifnull(NEW.{name}, {default})"),
            None => format!("NEW.{name}"),
        };
        let collate =
            column.collation.as_ref().map(|c| format!(" COLLATE {}", quote(c))).unwrap_or_default();
        terms.push(format!("{name} = {new}{collate}"));
    }
    terms.extend(unique.filter.clone());
    let keys: String = table.key.iter().map(|k| format!(", {}", quote(&k.name))).collect();
    format!(
        "INSERT INTO {} SELECT {}{keys} FROM {} WHERE {}; ",
        log_columns(table.key.len()),
        literal(watch),
        quote(&table.name),
        terms.join(" AND ")
    )
}
