//! Change log in the database: inspection, and installation of missing tables and triggers.

use std::hash::{DefaultHasher, Hash, Hasher};

use hotrow_types::key::CollectionId;
use hotrow_types::version::Position;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior};

use super::config::Tuning;
use super::config::{CollectionConfig, Watch};
use super::error::{Fault, OpenError, fault};
use super::inspect::{Inspected, Refused, Table, inspect};
use super::names::{FORMAT, LOG_TABLE, META_TABLE, TRIGGER_PREFIX, quote};
use super::triggers::{self, Trigger};
use super::{file::FileId, plan};

/// Findings of one inspection of the database, in one snapshot.
#[derive(Debug)]
pub(crate) struct Survey {
    /// `PRAGMA schema_version`; any change of the schema changes it.
    pub(crate) schema_version: i64,
    /// Table per collection, or the reason why it cannot be served.
    pub(crate) tables: Vec<Result<Table, OpenError>>,
    /// The change log; `None` if there is none.
    pub(crate) log: Option<Log>,
    /// Indexes of the collections whose triggers are missing or different.
    pub(crate) without_triggers: Vec<usize>,
    has_log_triggers: bool,
}

/// State of the change log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Log {
    /// Log id and newest sequence number.
    pub(crate) end: Position,
    /// Rows up to this sequence number may be deleted.
    pub(crate) pruned_to: u64,
    file_ino: u64,
}

#[derive(Clone, Copy)]
pub(crate) struct SurveySettings<'a> {
    pub(crate) collections: &'a [CollectionConfig],
    pub(crate) watch: Watch,
    pub(crate) tuning: &'a Tuning,
    pub(crate) on_refusal: OnRefusal,
    pub(crate) is_trial: bool,
}

/// Reaction to a collection that cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnRefusal {
    /// Fail and leave the database unchanged: at the start an operator can correct the problem.
    Fail,
    /// Continue with the other collections: a later change of one table must not stop the rest.
    Continue,
}

/// State of the log before the inspection; decides whether the log needs a new id.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PriorLog {
    /// Position up to which the feed had read.
    pub(crate) position: Option<Position>,
    /// True if the file may have been replaced since.
    pub(crate) file_changed: bool,
}

/// Inspects tables, log and triggers. The caller holds a transaction.
pub(crate) fn survey(conn: &Connection, settings: SurveySettings<'_>) -> rusqlite::Result<Survey> {
    // Before any pragma: makes SQLite check that its copy of the schema is current.
    let present = present(conn)?;
    let mut tables = Vec::with_capacity(settings.collections.len());
    for (i, spec) in settings.collections.iter().enumerate() {
        // The configuration has fewer collections than a u16 can count.
        let id = CollectionId(u16::try_from(i).unwrap_or(u16::MAX));
        match inspect(conn, id, spec, settings.watch) {
            Ok(table) => tables.push(Ok(table)),
            Err(Refused::Rule(e)) => tables.push(Err(e)),
            Err(Refused::Driver(e)) => return Err(e),
        }
    }
    let schema_version = conn.query_row("PRAGMA main.schema_version", [], |r| r.get(0))?;
    let mut found = Survey {
        schema_version,
        tables,
        log: None,
        without_triggers: Vec::new(),
        has_log_triggers: true,
    };
    if settings.watch == Watch::None {
        return Ok(found);
    }
    found.log = if present.log && present.meta { read_log(conn)? } else { None };
    let is_present = |t: &Trigger| present.triggers.contains(t);
    found.has_log_triggers = settings.log_triggers().iter().all(is_present);
    for (i, table) in found.tables.iter().enumerate() {
        if let Ok(table) = table
            && !table.watched().all(|table| triggers::of_table(table).iter().all(is_present))
        {
            found.without_triggers.push(i);
        }
    }
    Ok(found)
}

impl SurveySettings<'_> {
    fn log_triggers(&self) -> [Trigger; 2] {
        triggers::of_log(self.tuning.log_rows_max, self.tuning.log_bound_step)
    }

    fn check(&self, survey: &Survey) -> Result<(), OpenError> {
        match (self.on_refusal, survey.tables.iter().find_map(|t| t.as_ref().err())) {
            (OnRefusal::Fail, Some(e)) => Err(e.clone()),
            _ => Ok(()),
        }
    }
}

impl Survey {
    fn is_installed(&self, prior: PriorLog, file: FileId) -> bool {
        self.without_triggers.is_empty()
            && self.has_log_triggers
            && self.log.is_some_and(|log| !log.needs_new_id(prior) && log.file_ino == file.ino)
    }
}

impl Log {
    /// Returns whether the log needs a new id. A log that went back, or that came with another
    /// file, must not keep the id of the earlier log: unrelated positions would be compared.
    fn needs_new_id(&self, prior: PriorLog) -> bool {
        prior.position.is_some_and(|position| {
            position.incarnation == self.end.incarnation
                && (prior.file_changed || self.end.at < position.at)
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
        "SELECT type, name, sql FROM main.sqlite_schema WHERE substr(name, 1, length(?1)) = ?1 \
         AND type IN ('table', 'trigger')",
    )?;
    let mut rows = stmt.query([TRIGGER_PREFIX])?;
    while let Some(row) = rows.next()? {
        let kind: String = row.get(0)?;
        let name: String = row.get(1)?;
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

/// Reads the state of the log; `None` if its meta row is missing. The tables must exist.
pub(crate) fn read_log(conn: &Connection) -> rusqlite::Result<Option<Log>> {
    let sql = format!(
        "SELECT log_id, pruned_to, file_ino, {} FROM main.{} WHERE id = 1",
        plan::log_end_sql(),
        quote(META_TABLE)
    );
    conn.prepare_cached(&sql)?
        .query_row([], |r| {
            let log_id: i64 = r.get(0)?;
            let pruned_to: i64 = r.get(1)?;
            let ino: i64 = r.get(2)?;
            let end: i64 = r.get(3)?;
            Ok(Log {
                end: Position {
                    incarnation: log_id.cast_unsigned(),
                    at: end.max(0).cast_unsigned(),
                },
                pruned_to: pruned_to.max(0).cast_unsigned(),
                file_ino: ino.cast_unsigned(),
            })
        })
        .optional()
}

/// Findings after everything needed is installed.
#[derive(Debug)]
pub(crate) struct Installed {
    pub(crate) survey: Survey,
    /// Indexes of the collections whose triggers were installed: changes may have gone unlogged.
    pub(crate) reinstalled: Vec<usize>,
}

/// Inspects the database and installs missing parts in one transaction. If nothing is missing, the
/// database is not written to. Several instances may do this at once: the second one finds
/// everything installed.
///
/// # Errors
/// Returns errors of the driver (locked, read-only, ...), or [`OpenError::NewerFormat`].
pub(crate) fn install(
    conn: &Connection,
    settings: SurveySettings<'_>,
    prior: PriorLog,
    file: FileId,
) -> Inspected<Installed> {
    let tx = Transaction::new_unchecked(conn, TransactionBehavior::Deferred)?;
    let survey_before = survey(&tx, settings)?;
    tx.finish()?;
    settings.check(&survey_before)?;
    if settings.watch == Watch::None || survey_before.is_installed(prior, file) {
        return Ok(Installed { survey: survey_before, reinstalled: Vec::new() });
    }
    let tx = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
    let survey_before = survey(&tx, settings)?;
    settings.check(&survey_before)?;
    ensure_tables(&tx, prior, file)?;
    if !survey_before.has_log_triggers {
        settings.log_triggers().iter().try_for_each(|t| replace(&tx, t))?;
    }
    // Dropping the transaction on an error undoes all of it.
    let mut refused = Vec::new();
    let mut reinstalled = Vec::new();
    for &i in &survey_before.without_triggers {
        let Some(Ok(table)) = survey_before.tables.get(i) else { continue };
        reinstalled.push(i);
        for table in table.watched() {
            if let Err(detail) = install_triggers(&tx, table, survey_before.log.is_some())? {
                let collection = settings.collections[i].name.clone();
                let table = table.name.clone();
                refused.push((i, OpenError::Triggers { collection, table, detail }));
                reinstalled.retain(|installed| *installed != i);
            }
        }
    }
    let mut survey = survey(&tx, settings)?;
    for (i, e) in refused {
        survey.tables[i] = Err(e);
    }
    settings.check(&survey)?;
    match settings.is_trial {
        true => {
            survey.log = None;
            tx.rollback()?;
        }
        false => tx.commit()?,
    }
    Ok(Installed { survey, reinstalled })
}

/// Creates log and meta table if missing, and gives the log a new id if it is not the earlier log.
fn ensure_tables(tx: &Transaction<'_>, prior: PriorLog, file: FileId) -> Inspected<()> {
    let log = quote(LOG_TABLE);
    let meta = quote(META_TABLE);
    let before = present(tx)?;
    tx.execute_batch(&format!(
        "CREATE TABLE IF NOT EXISTS main.{log}(seq INTEGER PRIMARY KEY AUTOINCREMENT, \
         tbl TEXT, k1, k2, k3, k4);
         CREATE TABLE IF NOT EXISTS main.{meta}(id INTEGER PRIMARY KEY CHECK (id = 1), \
         format INTEGER NOT NULL,
             log_id INTEGER NOT NULL, pruned_to INTEGER NOT NULL, file_ino INTEGER NOT NULL);"
    ))?;
    let found: Option<i64> = tx
        .query_row(&format!("SELECT format FROM main.{meta} WHERE id = 1"), [], |r| r.get(0))
        .optional()?;
    if let Some(found) = found
        && found > FORMAT
    {
        let path = tx.path().unwrap_or_default().into();
        return Err(OpenError::NewerFormat { path, found, known: FORMAT }.into());
    }
    let current = read_log(tx)?;
    let same = before.log
        && current.is_some_and(|log| !log.needs_new_id(prior) && log.file_ino == file.ino);
    if !same {
        // A log that is new or went back has nothing before its first row.
        let pruned_to = current.map_or(0, |log| log.pruned_to.min(log.end.at));
        tx.execute(
            &format!(
                "INSERT OR REPLACE INTO main.{meta}(id, format, log_id, pruned_to, file_ino) \
                 VALUES (1, ?1, random(), ?2, ?3)"
            ),
            (FORMAT, pruned_to.cast_signed(), file.ino.cast_signed()),
        )?;
    }
    Ok(())
}

fn replace(tx: &Transaction<'_>, trigger: &Trigger) -> rusqlite::Result<()> {
    // The name may belong to another table since a rename.
    tx.execute_batch(&format!(
        "DROP TRIGGER IF EXISTS main.{}; {}",
        quote(&trigger.name),
        trigger.sql
    ))
}

/// Installs a table's triggers, and makes all instances flush the table by a note in the log,
/// because writes without triggers went unlogged.
///
/// SQLite does not check a trigger when it is created, and a wrong one would make the user's own
/// writes fail. Therefore statements that fire the triggers are prepared first; if they fail, the
/// triggers are rolled back and the text of the error is returned.
fn install_triggers(
    tx: &Transaction<'_>,
    table: &Table,
    log_existed: bool,
) -> rusqlite::Result<Result<(), String>> {
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
        tx.execute(
            &format!("INSERT INTO main.{}(tbl, k1) VALUES (NULL, ?1)", quote(LOG_TABLE)),
            [table.watch_name()],
        )?;
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

/// Tables and triggers that [`super::uninstall_triggers`] removed.
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

/// Removes everything of Hotrow, in one transaction.
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

/// Returns a digest of one row of the log; `None` if there is no such row.
pub(crate) fn anchor(conn: &Connection, seq: u64) -> rusqlite::Result<Option<u64>> {
    let sql =
        format!("SELECT seq, tbl, k1, k2, k3, k4 FROM main.{} WHERE seq = ?1", quote(LOG_TABLE));
    conn.prepare_cached(&sql)?.query_row([seq.cast_signed()], digest).optional()
}

pub(crate) fn digest(row: &Row<'_>) -> rusqlite::Result<u64> {
    let mut hasher = DefaultHasher::new();
    for i in 0..6 {
        match row.get_ref(i)? {
            ValueRef::Null => 0_u8.hash(&mut hasher),
            ValueRef::Integer(v) => (1_u8, v).hash(&mut hasher),
            ValueRef::Real(v) => (2_u8, v.to_bits()).hash(&mut hasher),
            ValueRef::Text(v) => (3_u8, v).hash(&mut hasher),
            ValueRef::Blob(v) => (4_u8, v).hash(&mut hasher),
        }
    }
    Ok(hasher.finish())
}
