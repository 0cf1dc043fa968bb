//! The change log in the database: what is there, and putting right what is not.

use hotrow_cache::key::CollectionId;
use hotrow_cache::version::Position;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

use super::config::{CollectionSpec, Watch};
use super::error::{Fault, OpenError, fault};
use super::inspect::{Inspected, Refused, Table, inspect};
use super::names::{FORMAT, LOG_TABLE, META_TABLE, TRIGGER_PREFIX, quote};
use super::triggers::{self, Trigger};
use super::tuning::Tuning;
use super::{file::FileId, plan};

/// What one look at the database showed, in one snapshot.
#[derive(Debug)]
pub(crate) struct Survey {
    /// `PRAGMA schema_version`; any change of the schema changes it.
    pub(crate) schema_version: i64,
    /// Per collection: its table, or why it cannot be served.
    pub(crate) tables: Vec<Result<Table, OpenError>>,
    /// The change log; none when there is none.
    pub(crate) log: Option<Log>,
    /// Collections whose triggers are not as they should be.
    pub(crate) unwatched: Vec<usize>,
    log_triggers_right: bool,
}

/// Where the change log stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Log {
    /// Log id and newest sequence.
    pub(crate) end: Position,
    /// Rows up to this sequence may be gone.
    pub(crate) pruned_to: u64,
    file_ino: u64,
}

/// The settings that a survey needs.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) collections: &'a [CollectionSpec],
    pub(crate) watch: Watch,
    pub(crate) tuning: &'a Tuning,
    pub(crate) refusals: Refusals,
}

/// What to do when a collection cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusals {
    /// Fail and leave the database as it is: at the start a person is there to correct it.
    Fail,
    /// Go on with the others: later a change of one table must not stop the rest.
    Keep,
}

/// What is known of the log before it was looked at again; decides whether it must get a new id.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Past {
    /// How far the feed had read.
    pub(crate) position: Option<Position>,
    /// Whether it may be another file since.
    pub(crate) file_changed: bool,
}

/// Looks at everything. The caller holds a transaction.
pub(crate) fn survey(conn: &Connection, wanted: Wanted<'_>) -> rusqlite::Result<Survey> {
    // Before any pragma: makes SQLite check that its copy of the schema is the current one.
    let present = present(conn)?;
    let mut tables = Vec::with_capacity(wanted.collections.len());
    for (i, spec) in wanted.collections.iter().enumerate() {
        // The configuration has fewer collections than a u16 can count; ids are made the same way everywhere.
        let id = CollectionId(u16::try_from(i).unwrap_or(u16::MAX));
        match inspect(conn, id, spec, wanted.watch) {
            Ok(table) => tables.push(Ok(table)),
            Err(Refused::Rule(e)) => tables.push(Err(e)),
            Err(Refused::Driver(e)) => return Err(e),
        }
    }
    let schema_version = conn.query_row("PRAGMA main.schema_version", [], |r| r.get(0))?;
    let mut seen = Survey { schema_version, tables, log: None, unwatched: Vec::new(), log_triggers_right: true };
    if wanted.watch == Watch::None {
        return Ok(seen);
    }
    seen.log = if present.log && present.meta { read_log(conn)? } else { None };
    let right = |t: &Trigger| present.triggers.contains(t);
    seen.log_triggers_right = wanted.log_triggers().iter().all(right);
    for (i, table) in seen.tables.iter().enumerate() {
        if let Ok(table) = table
            && !triggers::of_table(table).iter().all(right)
        {
            seen.unwatched.push(i);
        }
    }
    Ok(seen)
}

impl Wanted<'_> {
    fn log_triggers(&self) -> [Trigger; 2] {
        triggers::of_log(self.tuning.log_rows_max, self.tuning.log_bound_step)
    }

    fn check(&self, seen: &Survey) -> Result<(), OpenError> {
        match (self.refusals, seen.tables.iter().find_map(|t| t.as_ref().err())) {
            (Refusals::Fail, Some(e)) => Err(e.clone()),
            _ => Ok(()),
        }
    }
}

impl Survey {
    fn is_watched(&self, past: Past, file: FileId) -> bool {
        self.unwatched.is_empty()
            && self.log_triggers_right
            && self.log.is_some_and(|log| !log.needs_new_id(past) && log.file_ino == file.ino)
    }
}

impl Log {
    /// A log that went back, or that another file brought along, must not pass for the one it was: positions would
    /// compare that do not belong together.
    fn needs_new_id(&self, past: Past) -> bool {
        past.position.is_some_and(|position| {
            position.incarnation == self.end.incarnation && (past.file_changed || self.end.at < position.at)
        })
    }
}

struct Present {
    log: bool,
    meta: bool,
    triggers: Vec<Trigger>,
}

fn present(conn: &Connection) -> rusqlite::Result<Present> {
    let mut present = Present { log: false, meta: false, triggers: Vec::new() };
    let mut stmt = conn.prepare(
        "SELECT type, name, sql FROM main.sqlite_schema WHERE substr(name, 1, length(?1)) = ?1 AND type IN ('table', 'trigger')",
    )?;
    let mut rows = stmt.query([TRIGGER_PREFIX])?;
    while let Some(row) = rows.next()? {
        let (kind, name): (String, String) = (row.get(0)?, row.get(1)?);
        match kind.as_str() {
            "trigger" => present.triggers.push(Trigger { name, sql: row.get(2)? }),
            _ => {
                present.log |= name == LOG_TABLE;
                present.meta |= name == META_TABLE;
            }
        }
    }
    Ok(present)
}

/// Reads where the log stands; none when its meta row is missing. The caller knows that the tables exist.
pub(crate) fn read_log(conn: &Connection) -> rusqlite::Result<Option<Log>> {
    let sql = format!(
        "SELECT log_id, pruned_to, file_ino, {} FROM main.{} WHERE id = 1",
        plan::log_end_sql(),
        quote(META_TABLE)
    );
    conn.prepare_cached(&sql)?
        .query_row([], |r| {
            let (log_id, pruned_to, ino, end): (i64, i64, i64, i64) = (r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?);
            Ok(Log {
                end: Position { incarnation: log_id.cast_unsigned(), at: end.max(0).cast_unsigned() },
                pruned_to: pruned_to.max(0).cast_unsigned(),
                file_ino: ino.cast_unsigned(),
            })
        })
        .optional()
}

/// A survey after everything that should be in the database is there.
#[derive(Debug)]
pub(crate) struct Mended {
    pub(crate) survey: Survey,
    /// Collections whose triggers had to be put (back) in place: changes may have gone unlogged.
    pub(crate) rewatched: Vec<usize>,
}

/// Looks, and adds or corrects what is missing in one transaction; without need the database is not written to.
/// Several instances may do this at once: whoever comes second finds everything in place.
///
/// # Errors
/// Of the driver (locked, read-only, ...), or [`OpenError::NewerFormat`].
pub(crate) fn mend(conn: &Connection, wanted: Wanted<'_>, past: Past, file: FileId) -> Inspected<Mended> {
    let tx = Transaction::new_unchecked(conn, TransactionBehavior::Deferred)?;
    let seen = survey(&tx, wanted)?;
    tx.finish()?;
    wanted.check(&seen)?;
    if wanted.watch == Watch::None || seen.is_watched(past, file) {
        return Ok(Mended { survey: seen, rewatched: Vec::new() });
    }
    let tx = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
    let seen = survey(&tx, wanted)?;
    wanted.check(&seen)?;
    ensure_tables(&tx, past, file)?;
    if !seen.log_triggers_right {
        wanted.log_triggers().iter().try_for_each(|t| replace(&tx, t))?;
    }
    // Dropping the transaction on an error undoes all of it.
    let mut refused = Vec::new();
    let mut rewatched = Vec::new();
    for &i in &seen.unwatched {
        let Some(Ok(table)) = seen.tables.get(i) else { continue };
        match watch_table(&tx, table, seen.log.is_some())? {
            Ok(()) => rewatched.push(i),
            Err(detail) => {
                let spec = &wanted.collections[i];
                let (collection, table) = (spec.name.clone(), spec.table.clone());
                refused.push((i, OpenError::Triggers { collection, table, detail }));
            }
        }
    }
    let mut survey = survey(&tx, wanted)?;
    for (i, e) in refused {
        survey.tables[i] = Err(e);
    }
    wanted.check(&survey)?;
    tx.commit()?;
    Ok(Mended { survey, rewatched })
}

/// Creates log and meta table where missing, and gives the log a new id where it is not the one it was.
fn ensure_tables(tx: &Transaction<'_>, past: Past, file: FileId) -> Inspected<()> {
    let (log, meta) = (quote(LOG_TABLE), quote(META_TABLE));
    let before = present(tx)?;
    tx.execute_batch(&format!(
        "CREATE TABLE IF NOT EXISTS main.{log}(seq INTEGER PRIMARY KEY AUTOINCREMENT, tbl TEXT, k1, k2, k3, k4);
         CREATE TABLE IF NOT EXISTS main.{meta}(id INTEGER PRIMARY KEY CHECK (id = 1), format INTEGER NOT NULL,
             log_id INTEGER NOT NULL, pruned_to INTEGER NOT NULL, file_ino INTEGER NOT NULL);"
    ))?;
    let found: Option<i64> =
        tx.query_row(&format!("SELECT format FROM main.{meta} WHERE id = 1"), [], |r| r.get(0)).optional()?;
    if let Some(found) = found
        && found > FORMAT
    {
        let path = tx.path().unwrap_or_default().into();
        return Err(OpenError::NewerFormat { path, found, known: FORMAT }.into());
    }
    let current = read_log(tx)?;
    let same = before.log && current.is_some_and(|log| !log.needs_new_id(past) && log.file_ino == file.ino);
    if !same {
        // A log that is new or went back has nothing before its first row.
        let pruned_to = current.map_or(0, |log| log.pruned_to.min(log.end.at));
        tx.execute(
            &format!("INSERT OR REPLACE INTO main.{meta}(id, format, log_id, pruned_to, file_ino) VALUES (1, ?1, random(), ?2, ?3)"),
            (FORMAT, pruned_to.cast_signed(), file.ino.cast_signed()),
        )?;
    }
    Ok(())
}

fn replace(tx: &Transaction<'_>, trigger: &Trigger) -> rusqlite::Result<()> {
    // The name may sit on another table since a rename.
    tx.execute_batch(&format!("DROP TRIGGER IF EXISTS main.{}; {}", quote(&trigger.name), trigger.sql))
}

/// Puts a table's triggers in place and tells all instances, through the log, to drop what they hold of it: nobody knows
/// what was written while the triggers were missing.
///
/// A trigger is not checked when it is created, and a wrong one would make the user's own writes fail; so statements
/// that fire them are prepared before it is kept. The text says why it was not.
fn watch_table(tx: &Transaction<'_>, table: &Table, log_existed: bool) -> rusqlite::Result<Result<(), String>> {
    let writable_before = check_writes(tx, table);
    tx.execute_batch("SAVEPOINT hotrow_watch")?;
    for trigger in triggers::of_table(table) {
        replace(tx, &trigger)?;
    }
    if let (Ok(()), Err(e)) = (writable_before, check_writes(tx, table)) {
        tx.execute_batch("ROLLBACK TO hotrow_watch; RELEASE hotrow_watch")?;
        return if fault(&e) == Fault::Statement { Ok(Err(e.to_string())) } else { Err(e) };
    }
    tx.execute_batch("RELEASE hotrow_watch")?;
    if log_existed {
        tx.execute(&format!("INSERT INTO main.{}(tbl, k1) VALUES (NULL, ?1)", quote(LOG_TABLE)), [table.watch_name()])?;
    }
    Ok(Ok(()))
}

fn check_writes(conn: &Connection, table: &Table) -> rusqlite::Result<()> {
    let on = quote(&table.name);
    let column: String = conn.query_row(
        "SELECT name FROM pragma_table_xinfo(?1, 'main') WHERE hidden = 0 LIMIT 1",
        [&table.name],
        |r| r.get(0),
    )?;
    let column = quote(&column);
    for sql in [
        format!("INSERT INTO main.{on} DEFAULT VALUES"),
        format!("UPDATE main.{on} SET {column} = {column}"),
        format!("DELETE FROM main.{on}"),
    ] {
        conn.prepare(&sql)?;
    }
    Ok(())
}

/// What [`super::unwatch`] took out of a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Names of the triggers.
    pub triggers: Vec<String>,
    /// Names of the tables.
    pub tables: Vec<String>,
}

impl std::fmt::Display for Removed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.triggers.is_empty() && self.tables.is_empty() {
            return write!(f, "nothing of Hotrow's was there");
        }
        write!(f, "removed the tables {:?} and the triggers {:?}", self.tables, self.triggers)
    }
}

/// Removes everything of ours, in one transaction.
pub(crate) fn remove(conn: &Connection) -> rusqlite::Result<Removed> {
    let tx = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
    let present = present(&tx)?;
    let mut removed = Removed::default();
    for trigger in present.triggers {
        tx.execute_batch(&format!("DROP TRIGGER main.{}", quote(&trigger.name)))?;
        removed.triggers.push(trigger.name);
    }
    for (table, is_there) in [(LOG_TABLE, present.log), (META_TABLE, present.meta)] {
        if is_there {
            tx.execute_batch(&format!("DROP TABLE main.{}", quote(table)))?;
            removed.tables.push(table.into());
        }
    }
    tx.commit()?;
    Ok(removed)
}
