//! Opening the database: never creating it, always knowing which file it is.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{Access, AtFlags, CWD, FileType, StatxFlags};
use rustix::io::Errno;

use super::config::{Config, Watch};
use super::error::OpenError;
use super::file::{FileId, Header, beside, identify};
use super::inspect::{Refused, Table};
use super::log::{Log, Past, Refusals, Wanted, mend};
use super::session::anchor;
use super::tuning::Tuning;

/// The file that a path names at the moment.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    /// Links resolved: SQLite keeps its other files beside this one. Absolute, so never taken for a `file:` URI.
    pub(crate) real: PathBuf,
    pub(crate) file: FileId,
}

/// Finds the file.
///
/// # Errors
/// When there is none, it is no file, or it may not be looked at.
pub(crate) fn locate(path: &Path) -> Result<Located, OpenError> {
    let owned = || path.to_path_buf();
    let refused = |e: Errno| match e {
        Errno::NOENT | Errno::NOTDIR => OpenError::Missing { path: owned() },
        Errno::ACCESS | Errno::PERM => OpenError::Permission { path: owned(), detail: e.to_string() },
        _ => OpenError::Other { path: owned(), detail: e.to_string() },
    };
    let stat = rustix::fs::stat(path).map_err(refused)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(OpenError::NotAFile { path: owned() });
    }
    // With the rights that opening will have, which need not be those of the real user.
    rustix::fs::accessat(CWD, path, Access::READ_OK, AtFlags::EACCESS).map_err(refused)?;
    let other = |e: std::io::Error| OpenError::Other { path: owned(), detail: e.to_string() };
    let real = std::fs::canonicalize(path).map_err(other)?;
    Ok(Located { real, file: FileId { dev: stat.st_dev, ino: stat.st_ino } })
}

fn born(path: &Path) -> Born {
    let found = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::BTIME).ok()?;
    let told = found.stx_mask & StatxFlags::BTIME.bits() != 0;
    told.then_some((found.stx_btime.tv_sec, found.stx_btime.tv_nsec))
}

/// Opens a connection to exactly that file. Written to only where the system permits it: SQLite falls back to reading.
///
/// # Errors
/// When it cannot be opened or another file is there by now.
pub(crate) fn open(at: &Located, busy: Duration) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(&at.real, flags).map_err(|e| OpenError::from_driver(&at.real, &e))?;
    conn.busy_timeout(busy).map_err(|e| OpenError::from_driver(&at.real, &e))?;
    if identify(&at.real).ok() != Some(at.file) {
        let detail = "it was replaced while it was being opened".into();
        return Err(OpenError::Other { path: at.real.clone(), detail });
    }
    Ok(conn)
}

/// The feed's connection with all that was found through it.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) conn: Connection,
    pub(crate) at: Located,
    pub(crate) born: Born,
    /// The write-ahead log in use; none outside WAL mode, and where a read-only database has none.
    pub(crate) wal: Option<FileId>,
    pub(crate) in_wal_mode: bool,
    pub(crate) header: Header,
    /// Read before everything else, so that whatever comes later shows as a change.
    pub(crate) data_version: i64,
    pub(crate) schema_version: i64,
    pub(crate) tables: Vec<Result<Table, OpenError>>,
    pub(crate) log: Option<Log>,
    /// A digest of the log's last row.
    pub(crate) anchor: Option<u64>,
}

/// When a file was created, in seconds and nanoseconds, where the file system tells.
pub(crate) type Born = Option<(i64, u32)>;

/// A file as it last looked sound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sound {
    pub(crate) file: FileId,
    /// The number of a deleted file may be given to a new one; its birth is not.
    pub(crate) born: Born,
    pub(crate) header: Header,
}

/// What was known of the database before it is opened again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    pub(crate) past: Past,
    pub(crate) wal: Option<FileId>,
    /// The file; none at the start.
    pub(crate) file: Option<Sound>,
    pub(crate) refusals: Refusals,
}

impl Before {
    /// Nothing: the process starts.
    pub(crate) fn nothing() -> Self {
        Self { past: Past::default(), wal: None, file: None, refusals: Refusals::Fail }
    }
}

/// Opens the database for the feed, and puts log and triggers in place when they are wanted.
///
/// # Errors
/// Whatever keeps the whole database from being served. What concerns one collection stands in [`Link::tables`].
pub(crate) fn link(config: &Config, tuning: &Tuning, before: Before) -> Result<Link, OpenError> {
    let at = locate(&config.path)?;
    let broken = |detail| OpenError::NotADatabase { path: config.path.clone(), detail };
    let driver = |e: rusqlite::Error| OpenError::from_driver(&config.path, &e);
    let born = born(&at.real);
    let conn = open(&at, tuning.mend_busy)?;
    // Before any statement: SQLite takes an empty file for a new database and removes the log that lies beside it.
    let header = Header::read(&conn).map_err(broken)?;
    if before.past.file_changed {
        refuse_stale_wal(&at, born, &header, before)?;
    }
    let mode: String = conn.query_row("PRAGMA main.journal_mode", [], |r| r.get(0)).map_err(driver)?;
    let in_wal_mode = mode == "wal";
    if config.watch == Watch::Triggers {
        check_writable(config, &conn, &mode)?;
    }
    // A trigger must work for writers of every build, also for those that take double quotes for names alone.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false).map_err(driver)?;
    let data_version = conn.query_row("PRAGMA main.data_version", [], |r| r.get(0)).map_err(driver)?;
    let wal = identify(&beside(&at.real, "-wal")).ok().filter(|_| in_wal_mode);
    // Only a checkpoint leaves the file short for a moment, and it leaves its log until it is done.
    let checkpointing = in_wal_mode && std::fs::metadata(beside(&at.real, "-wal")).is_ok_and(|wal| wal.len() > 0);
    if !checkpointing && !header.is_complete() {
        return Err(broken("it is shorter than its header says".into()));
    }
    let (collections, watch) = (&*config.collections, config.watch);
    let wanted = Wanted { collections, watch, tuning, refusals: before.refusals };
    let mended = mend(&conn, wanted, before.past, at.file).map_err(|e| match e {
        Refused::Rule(e) => e,
        Refused::Driver(e) => driver(e),
    })?;
    let survey = mended.survey;
    let anchor = match survey.log {
        Some(log) => anchor(&conn, log.end.at).map_err(driver)?,
        None => None,
    };
    // The feed must not sit in a wait: what is locked is asked again at the next poll.
    conn.busy_timeout(Duration::ZERO).map_err(driver)?;
    let (tables, log, schema_version) = (survey.tables, survey.log, survey.schema_version);
    Ok(Link { conn, at, born, wal, in_wal_mode, header, data_version, schema_version, tables, log, anchor })
}

fn check_writable(config: &Config, conn: &Connection, mode: &str) -> Result<(), OpenError> {
    let path = || config.path.clone();
    if mode != "wal" {
        return Err(OpenError::NotWal { path: path(), mode: mode.into() });
    }
    if conn.is_readonly("main").unwrap_or(true) {
        let detail = "the system permits reading only".into();
        return Err(OpenError::ReadOnly { path: path(), detail });
    }
    Ok(())
}

/// A new database under the old name would be read through the old write-ahead log, which SQLite does not notice. A
/// database that was moved away and back, or damaged and put right, belongs to its log, which holds what was committed.
fn refuse_stale_wal(at: &Located, born: Option<(i64, u32)>, header: &Header, before: Before) -> Result<(), OpenError> {
    let wal = beside(&at.real, "-wal");
    let Ok(stat) = rustix::fs::stat(&wal) else { return Ok(()) };
    let is_old = Some(FileId { dev: stat.st_dev, ino: stat.st_ino }) == before.wal;
    let is_same = |sound: Sound| sound.file == at.file && sound.born == born && header.follows(&sound.header).is_ok();
    let is_back = before.file.is_some_and(is_same);
    if is_old && !is_back && stat.st_size > 0 { Err(OpenError::StaleWal { wal }) } else { Ok(()) }
}
