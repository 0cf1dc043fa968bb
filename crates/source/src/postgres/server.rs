//! Which server and database a session leads to.

use std::fmt;

use tokio_postgres::Client;

use super::connect::full_text;
use super::stream::ConnectError;
use super::target::Host;

/// Oldest major version that can be served: `pg_current_snapshot()` came with it.
const MAJOR_MIN: i32 = 13;

/// What stays the same as long as positions and transactions of one session mean the same in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Chosen at random when the data folder was made; replicas have it too.
    pub(crate) system: u64,
    /// Grows with each fail-over.
    pub(crate) timeline: u32,
    /// The database within the server.
    pub(crate) database: u32,
    /// Major version.
    pub(crate) major: i32,
}

impl Identity {
    /// The number that positions carry.
    pub(crate) fn incarnation(&self) -> u64 {
        self.system ^ u64::from(self.timeline)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "system {} on timeline {}, database {}", self.system, self.timeline, self.database)
    }
}

/// The WAL's name tells the timeline; in recovery there is none.
const IDENTITY_SQL: &str = "SELECT current_setting('server_version_num')::int4, pg_is_in_recovery(), \
    CASE WHEN pg_is_in_recovery() THEN NULL ELSE pg_walfile_name(pg_current_wal_insert_lsn()) END, \
    (SELECT oid FROM pg_database WHERE datname = current_database()), \
    (SELECT system_identifier FROM pg_control_system()), current_setting('server_encoding')";

/// Asks a server who it is.
///
/// # Errors
/// [`ConnectError::Unusable`] for a replica, a version that is too old, and a server that does not tell.
pub(crate) async fn identify(client: &Client, host: &Host) -> Result<Identity, ConnectError> {
    let unusable = |detail: String| ConnectError::Unusable { host: host.to_string(), detail };
    let row = client.query_one(IDENTITY_SQL, &[]).await.map_err(|e| match e.code().map(|code| code.code()) {
        Some("42501") => {
            unusable(format!("{}; run `GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC;`", full_text(&e)))
        }
        Some("42883") => unusable(format!("PostgreSQL {MAJOR_MIN} or newer is needed: {}", full_text(&e))),
        _ => unusable(full_text(&e)),
    })?;
    let failed = |e: tokio_postgres::Error| unusable(full_text(&e));
    let version: i32 = row.try_get(0).map_err(failed)?;
    let major = version / 10_000;
    if major < MAJOR_MIN {
        return Err(unusable(format!("it runs PostgreSQL {major}; {MAJOR_MIN} or newer is needed")));
    }
    if row.try_get(1).map_err(failed)? {
        let detail = "it is a replica (in recovery): changes show there later than they happen; name the primary";
        return Err(unusable(detail.into()));
    }
    if row.try_get::<_, &str>(5).map_err(failed)? == "SQL_ASCII" {
        let detail =
            "the database has the encoding SQL_ASCII, so its texts may be anything; load it into one with UTF8";
        return Err(unusable(detail.into()));
    }
    let wal: Option<&str> = row.try_get(2).map_err(failed)?;
    let timeline = wal.and_then(|name| name.get(..8)).and_then(|digits| u32::from_str_radix(digits, 16).ok());
    let timeline = timeline.ok_or_else(|| unusable(format!("it names its log {wal:?}, which tells no timeline")))?;
    let system: i64 = row.try_get(4).map_err(failed)?;
    Ok(Identity { system: system.cast_unsigned(), timeline, database: row.try_get(3).map_err(failed)?, major })
}
