//! Identity of the server and the database that a session leads to.

use std::fmt;

use tokio_postgres::Client;

use super::error::full_text;
use super::stream::ConnectError;
use super::target::Host;

/// Oldest major version supported: the first with `pg_current_snapshot()`.
const MAJOR_MIN: i32 = 13;

/// Identity that two sessions must share for positions and transactions to be comparable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Random number of the data folder, chosen at its creation; replicas share it.
    pub(crate) system: u64,
    /// Grows with each fail-over.
    pub(crate) timeline: u32,
    /// OID of the database within the server.
    pub(crate) database: u32,
    pub(crate) major: i32,
}

/// A server's identity and start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identified {
    pub(crate) identity: Identity,
    /// Start of this run of the server, in microseconds since 1970. A restored copy of the data
    /// folder has the identity of the original and another start.
    pub(crate) started_at_us: i64,
}

impl Identified {
    /// Returns the number that positions carry: positions of one run of the server on one timeline
    /// are comparable.
    pub(crate) fn incarnation(&self) -> u64 {
        self.identity.system
            ^ u64::from(self.identity.timeline)
            ^ self.started_at_us.cast_unsigned()
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "system {} on timeline {}, database {}",
            self.system, self.timeline, self.database
        )
    }
}

/// The name of the WAL file contains the timeline; in recovery there is none.
const IDENTITY_SQL: &str = "SELECT current_setting('server_version_num')::int4, \
                            pg_is_in_recovery(), \
    CASE WHEN pg_is_in_recovery() THEN NULL ELSE pg_walfile_name(pg_current_wal_insert_lsn()) END, \
    (SELECT oid FROM pg_database WHERE datname = current_database()), \
    (SELECT system_identifier FROM pg_control_system()), current_setting('server_encoding'), \
    (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::int8";

/// `received_tli` is shown to members of `pg_read_all_stats` only.
const STANDBY_SQL: &str = "SELECT current_setting('server_version_num')::int4, \
    (SELECT oid FROM pg_database WHERE datname = current_database()), \
    (SELECT system_identifier FROM pg_control_system()), \
    pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')";

/// Asks a server that may be a standby for its identity, which has no timeline.
///
/// # Errors
/// [`ConnectError::Unusable`] for a role that cannot see what a standby receives.
pub(crate) async fn identify_standby(
    client: &Client,
    host: &Host,
) -> Result<Identified, ConnectError> {
    let unusable = |detail: String| ConnectError::Unusable { host: host.to_string(), detail };
    let failed = |e: tokio_postgres::Error| unusable(full_text(&e));
    let row = client.query_one(STANDBY_SQL, &[]).await.map_err(failed)?;
    if !row.try_get::<_, bool>(3).map_err(failed)? {
        return Err(unusable(
            "its timeline is not shown to the role; run `GRANT pg_read_all_stats TO …;` on the \
             primary"
                .into(),
        ));
    }
    let system: i64 = row.try_get(2).map_err(failed)?;
    let version: i32 = row.try_get(0).map_err(failed)?;
    let database = row.try_get(1).map_err(failed)?;
    let identity =
        Identity { system: system.cast_unsigned(), timeline: 0, database, major: version / 10_000 };
    Ok(Identified { identity, started_at_us: 0 })
}

/// Asks a server for its identity.
///
/// # Errors
/// [`ConnectError::Unusable`] for a replica, a version that is too old, and a server without
/// timeline.
pub(crate) async fn identify(client: &Client, host: &Host) -> Result<Identified, ConnectError> {
    let unusable = |detail: String| ConnectError::Unusable { host: host.to_string(), detail };
    let explain = |e: tokio_postgres::Error| match e.code().map(|code| code.code()) {
        Some("42501") => unusable(format!(
            "{}; run `GRANT EXECUTE ON FUNCTION pg_control_system(), pg_postmaster_start_time(), \
             pg_current_wal_insert_lsn(), pg_walfile_name(pg_lsn) TO PUBLIC;`",
            full_text(&e)
        )),
        Some("42883") => {
            unusable(format!("PostgreSQL {MAJOR_MIN} or newer is needed: {}", full_text(&e)))
        }
        _ => unusable(full_text(&e)),
    };
    let row = client.query_one(IDENTITY_SQL, &[]).await.map_err(explain)?;
    let failed = |e: tokio_postgres::Error| unusable(full_text(&e));
    let version: i32 = row.try_get(0).map_err(failed)?;
    let major = version / 10_000;
    if major < MAJOR_MIN {
        return Err(unusable(format!(
            "it runs PostgreSQL {major}; {MAJOR_MIN} or newer is needed"
        )));
    }
    if row.try_get(1).map_err(failed)? {
        let detail = "it is a replica (in recovery), where changes arrive late; name the primary";
        return Err(unusable(detail.into()));
    }
    if row.try_get::<_, &str>(5).map_err(failed)? == "SQL_ASCII" {
        let detail = "the database has the encoding SQL_ASCII, so its texts have no known \
                      encoding; load it into one with UTF8";
        return Err(unusable(detail.into()));
    }
    let wal: Option<&str> = row.try_get(2).map_err(failed)?;
    let timeline =
        wal.and_then(|name| name.get(..8)).and_then(|digits| u32::from_str_radix(digits, 16).ok());
    let timeline = timeline
        .ok_or_else(|| unusable(format!("it names its log {wal:?}, which contains no timeline")))?;
    let system: i64 = row.try_get(4).map_err(failed)?;
    let identity = Identity {
        system: system.cast_unsigned(),
        timeline,
        database: row.try_get(3).map_err(failed)?,
        major,
    };
    Ok(Identified { identity, started_at_us: row.try_get(6).map_err(failed)? })
}
