//! Opening of the database. It never creates the file, and always knows the file's identity.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::{Access, AtFlags, CWD, FileType, StatxFlags};
use rustix::io::Errno;

use super::config::Tuning;
use super::config::{Config, Watch};
use super::error::OpenError;
use super::file::{FileId, Header, beside, identify};
use super::inspect::{Refused, Table};
use super::log::{Log, OnRefusal, PriorLog, Survey, SurveySettings, anchor, install};

/// File that a path names at present.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    /// Path with links resolved, because SQLite keeps its other files beside it. Absolute, so that
    /// it is never parsed as a `file:` URI.
    pub(crate) real: PathBuf,
    pub(crate) file: FileId,
}

/// Finds the file.
///
/// # Errors
/// Fails if there is no file, it is not a regular file, or access is denied.
pub(crate) fn locate(path: &Path) -> Result<Located, OpenError> {
    let owned = || path.to_path_buf();
    let refused = |e: Errno| match e {
        Errno::NOENT | Errno::NOTDIR => OpenError::Missing { path: owned() },
        Errno::ACCESS | Errno::PERM => {
            OpenError::Permission { path: owned(), detail: e.to_string() }
        }
        _ => OpenError::Other { path: owned(), detail: e.to_string() },
    };
    let stat = rustix::fs::stat(path).map_err(refused)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(OpenError::NotAFile { path: owned() });
    }
    // Checks with the effective rights, which opening will use and which may differ from the real
    // user's.
    rustix::fs::accessat(CWD, path, Access::READ_OK, AtFlags::EACCESS).map_err(refused)?;
    let other = |e: std::io::Error| OpenError::Other { path: owned(), detail: e.to_string() };
    let real = std::fs::canonicalize(path).map_err(other)?;
    Ok(Located { real, file: FileId { dev: stat.st_dev, ino: stat.st_ino } })
}

fn created_at(path: &Path) -> CreationTime {
    let found = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::BTIME).ok()?;
    let is_recorded = found.stx_mask & StatxFlags::BTIME.bits() != 0;
    is_recorded.then_some((found.stx_btime.tv_sec, found.stx_btime.tv_nsec))
}

/// Opens a connection to exactly that file. SQLite falls back to read-only access if the system
/// permits no writes.
///
/// # Errors
/// Fails if the file cannot be opened or was replaced in the meantime.
pub(crate) fn open(at: &Located, busy: Duration) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(&at.real, flags)
        .map_err(|e| OpenError::from_driver(&at.real, &e))?;
    conn.busy_timeout(busy).map_err(|e| OpenError::from_driver(&at.real, &e))?;
    if identify(&at.real).ok() != Some(at.file) {
        let detail = "it was replaced while it was being opened".into();
        return Err(OpenError::Other { path: at.real.clone(), detail });
    }
    Ok(conn)
}

/// Feed's connection with everything that was read through it.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) conn: Connection,
    pub(crate) at: Located,
    pub(crate) created_at: CreationTime,
    /// Identity of the write-ahead log in use. `None` outside WAL mode, and for a read-only
    /// database without a log.
    pub(crate) wal: Option<FileId>,
    pub(crate) in_wal_mode: bool,
    pub(crate) header: Header,
    /// Read before everything else, so that every later commit shows as a change.
    pub(crate) data_version: i64,
    pub(crate) schema_version: i64,
    pub(crate) tables: Vec<Result<Table, OpenError>>,
    pub(crate) log: Option<Log>,
    /// Digest of the log's last row.
    pub(crate) anchor: Option<u64>,
}

/// Creation time of a file in seconds and nanoseconds, if the file system records it.
pub(crate) type CreationTime = Option<(i64, u32)>;

/// Identity and header of a file when it was last intact.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IntactFile {
    pub(crate) file: FileId,
    /// The inode of a deleted file may be reused by a new one; its creation time is not.
    pub(crate) created_at: CreationTime,
    pub(crate) header: Header,
}

/// State known of the database before it is reopened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PriorState {
    pub(crate) log: PriorLog,
    pub(crate) wal: Option<FileId>,
    /// File before; `None` at the start.
    pub(crate) file: Option<IntactFile>,
    pub(crate) on_refusal: OnRefusal,
}

impl PriorState {
    /// Returns the state at the start of the process: nothing is known.
    pub(crate) fn none() -> Self {
        Self { log: PriorLog::default(), wal: None, file: None, on_refusal: OnRefusal::Fail }
    }
}

/// Opens the database for the feed, and installs log and triggers if configured.
///
/// # Errors
/// Fails if the whole database cannot be served. Problems of one collection are in
/// [`Link::tables`].
pub(crate) fn link(config: &Config, tuning: &Tuning, prior: PriorState) -> Result<Link, OpenError> {
    let at = locate(&config.path)?;
    let broken = |detail| OpenError::NotADatabase { path: config.path.clone(), detail };
    let driver = |e: rusqlite::Error| OpenError::from_driver(&config.path, &e);
    let created_at = created_at(&at.real);
    if config.watch == Watch::Triggers {
        check_folder(config, &at)?;
    }
    let conn = open(&at, tuning.install_busy)?;
    // PriorState any statement: SQLite takes an empty file for a new database and removes the log
    // beside it.
    let header = Header::read(&conn).map_err(broken)?;
    if prior.log.file_changed {
        refuse_stale_wal(&at, created_at, &header, prior)?;
    }
    let mode = conn.query_row("PRAGMA main.journal_mode", [], |r| r.get(0));
    let mode: String = mode.map_err(|e| unusable(config, &at, &header, &e))?;
    let in_wal_mode = mode == "wal";
    if config.watch == Watch::Triggers {
        check_writable(config, &conn, &mode)?;
    }
    // Triggers must work for writers of every build, also those that parse double quotes as
    // identifiers only.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false).map_err(driver)?;
    let data_version =
        conn.query_row("PRAGMA main.data_version", [], |r| r.get(0)).map_err(driver)?;
    let wal = identify(&beside(&at.real, "-wal")).ok().filter(|_| in_wal_mode);
    // Only a checkpoint leaves the file short for a moment, and it keeps its log until it is done.
    let checkpointing =
        in_wal_mode && std::fs::metadata(beside(&at.real, "-wal")).is_ok_and(|wal| wal.len() > 0);
    if !checkpointing && !header.is_complete() {
        return Err(broken("it is shorter than its header says".into()));
    }
    let collections = &*config.collections;
    let watch = config.watch;
    let is_trial = config.is_trial;
    let on_refusal = prior.on_refusal;
    let settings = SurveySettings { collections, watch, tuning, on_refusal, is_trial };
    let installed = install(&conn, settings, prior.log, at.file).map_err(|e| match e {
        Refused::Rule(e) => e,
        Refused::Driver(e) => driver(e),
    })?;
    let survey = installed.survey;
    let anchor = match survey.log {
        Some(log) => anchor(&conn, log.end.at).map_err(driver)?,
        None => None,
    };
    // The feed must not block in a wait: a locked database is polled again.
    conn.busy_timeout(Duration::ZERO).map_err(driver)?;
    let Survey { schema_version, tables, log, .. } = survey;
    Ok(Link {
        conn,
        at,
        created_at,
        wal,
        in_wal_mode,
        header,
        data_version,
        schema_version,
        tables,
        log,
        anchor,
    })
}

/// Checks that files can be created in the database's folder.
///
/// A writer may end at any time and remove the `-wal` and `-shm` files; then this process has to
/// create them. SQLite itself reports only "unable to open database file", and only then.
pub(crate) fn check_folder(config: &Config, at: &Located) -> Result<(), OpenError> {
    let folder = at.real.parent().unwrap_or(&at.real);
    let access = Access::WRITE_OK | Access::EXEC_OK;
    rustix::fs::accessat(CWD, folder, access, AtFlags::EACCESS).map_err(|e| {
        let detail = format!("no file can be created in {}: {e}", folder.display());
        OpenError::ReadOnly { path: config.path.clone(), detail }
    })
}

/// Names the files beside the database if they are the cause of the error.
pub(crate) fn unusable(
    config: &Config,
    at: &Located,
    header: &Header,
    e: &rusqlite::Error,
) -> OpenError {
    let is_about_files = matches!(
        e.sqlite_error_code(),
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied)
    );
    if !is_about_files || header.stamp().is_some() {
        return OpenError::from_driver(&config.path, e);
    }
    let folder = at.real.parent().unwrap_or(&at.real).to_path_buf();
    OpenError::NoWalFiles { path: config.path.clone(), folder, detail: e.to_string() }
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

/// Refuses a new database beside the write-ahead log of the old one.
///
/// A new database under the old name would be read through the old log, which SQLite does not
/// notice. A database that was moved away and back, or damaged and restored, belongs to its log,
/// which holds its committed changes.
fn refuse_stale_wal(
    at: &Located,
    created_at: Option<(i64, u32)>,
    header: &Header,
    prior: PriorState,
) -> Result<(), OpenError> {
    let wal = beside(&at.real, "-wal");
    let Ok(stat) = rustix::fs::stat(&wal) else { return Ok(()) };
    let is_old = Some(FileId { dev: stat.st_dev, ino: stat.st_ino }) == prior.wal;
    let is_same = |intact: IntactFile| {
        intact.file == at.file
            && intact.created_at == created_at
            && header.follows(&intact.header).is_ok()
    };
    let is_back = prior.file.is_some_and(is_same);
    if is_old && !is_back && stat.st_size > 0 { Err(OpenError::StaleWal { wal }) } else { Ok(()) }
}
