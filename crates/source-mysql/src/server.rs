//! Identity of the server behind a session.

use std::collections::HashMap;
use std::fmt;

use mysql_async::{Conn, Error};

use super::catalog_row::{self, CatalogRow};
use super::error::{ConnectError, full_text};
use super::target::Host;

/// Oldest supported versions. MariaDB 10.5 has the privileges and statements that the documentation
/// names, MySQL 8.0 has the metadata in its log.
const MARIADB_MIN: ServerVersion = ServerVersion(10, 5, 0);
const MYSQL_MIN: ServerVersion = ServerVersion(8, 0, 0);
/// Version from which MySQL has `SHOW BINARY LOG STATUS` in place of `SHOW MASTER STATUS`.
const BINARY_LOG_STATUS_FROM: ServerVersion = ServerVersion(8, 2, 0);
/// Version from which MariaDB has indexes that are ignored.
const IGNORED_INDEX_FROM: ServerVersion = ServerVersion(10, 6, 0);
/// Version from which MySQL has `SHOW REPLICA STATUS`.
const REPLICA_STATUS_FROM: ServerVersion = ServerVersion(8, 0, 22);

/// SQL dialect of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavor {
    MariaDb,
    MySql,
}

/// Major, minor and patch numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServerVersion(pub(crate) u16, pub(crate) u16, pub(crate) u16);

/// Identity of a server process. Positions of two sessions are comparable if their identities are
/// equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) flavor: Flavor,
    pub(crate) version: ServerVersion,
    /// Digest of the server's name, see [`name`]. A restart does not change it.
    pub(crate) name: u64,
    /// Start of the server's process in seconds since 1970 by its own clock. None if unknown.
    pub(crate) started_at_s: Option<i64>,
    /// Incarnation number of positions, see [`Self::renewed`].
    pub(crate) incarnation: u64,
    /// Host name and port according to the server, for messages.
    pub(crate) address: String,
    /// Number of the server among its replicas.
    pub(crate) server_id: u32,
    /// True if `lower_case_table_names` is not 0: table names compare case-insensitively.
    pub(crate) names_any_case: bool,
}

impl Identity {
    /// Compares two identities but for the incarnation, which also changes when a log went back.
    pub(crate) fn is_same_process(&self, other: &Self) -> bool {
        let renumbered = Self { incarnation: other.incarnation, ..self.clone() };
        renumbered == *other
    }

    /// Changes the incarnation because the log went back while the server ran. A `salt` of 0
    /// changes nothing.
    pub(crate) fn renewed(mut self, salt: u64) -> Self {
        self.incarnation ^= salt;
        self
    }

    /// Returns the condition that a row of `information_schema.STATISTICS` is of an index that
    /// statements may use.
    pub(crate) fn is_usable_index_sql(&self) -> &'static str {
        match self.flavor {
            Flavor::MySql => "IS_VISIBLE = 'YES'",
            Flavor::MariaDb if self.version >= IGNORED_INDEX_FROM => "IGNORED = 'NO'",
            Flavor::MariaDb => "TRUE",
        }
    }

    /// Returns the statement that reads the log's end. Its first two columns are file and offset.
    pub(crate) fn log_end_sql(&self) -> &'static str {
        match self.flavor {
            Flavor::MySql if self.version >= BINARY_LOG_STATUS_FROM => "SHOW BINARY LOG STATUS",
            _ => "SHOW MASTER STATUS",
        }
    }
}

impl Flavor {
    /// Returns the statement that reads what a later read sees at least.
    pub(crate) fn visible_sql(self) -> &'static str {
        match self {
            Self::MariaDb => "SHOW STATUS LIKE 'binlog\\_snapshot\\_%'",
            Self::MySql => "SELECT @@global.gtid_executed",
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flavor = if self.flavor == Flavor::MariaDb { "MariaDB" } else { "MySQL" };
        let ServerVersion(major, minor, patch) = self.version;
        write!(
            f,
            "{flavor} {major}.{minor}.{patch} at {} with server_id {}",
            self.address, self.server_id
        )
    }
}

/// Query of the server's variables. The answer omits variables that the server does not have.
const VARIABLES_SQL: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', \
    'server_id', 'server_uuid', 'server_uid', 'hostname', 'port', 'datadir', 'read_only', \
    'wsrep_on', 'lower_case_table_names')";

/// Reads the identity of a server.
///
/// # Errors
/// [`ConnectError::Unusable`] for a replica, a Galera node, a version that is too old, and a server
/// that lacks a required variable.
pub(crate) async fn identify(conn: &mut Conn, host: &Host) -> Result<Identity, ConnectError> {
    let unusable = |detail: String| ConnectError::Unusable { host: host.to_string(), detail };
    let rows = catalog_row::rows(conn, VARIABLES_SQL, catalog_row::name_and_value).await;
    let variables = rows.map_err(|e| unusable(full_text(&e)))?.into_iter().collect();
    let mut identity = from_variables(&variables).map_err(unusable)?;
    identity.started_at_s =
        started_at_s(conn, identity.flavor).await.map_err(|e| unusable(full_text(&e)))?;
    identity.incarnation = incarnation(&name(identity.flavor, &variables), identity.started_at_s);
    if is_replica(conn, &identity).await.map_err(|e| unusable(full_text(&e)))? {
        let detail = "it is a replica, where changes appear late; name the primary (if it only \
                      has the settings of an old replication, run `RESET REPLICA ALL` there)";
        return Err(unusable(detail.into()));
    }
    Ok(identity)
}

/// Returns the identity by the server's variables, or the reason that it cannot be used.
fn from_variables(of: &HashMap<String, String>) -> Result<Identity, String> {
    let get = |name: &str| {
        of.get(name).map(String::as_str).ok_or_else(|| format!("it has no variable `{name}`"))
    };
    let on = |name: &str| of.get(name).is_some_and(|value| value == "ON" || value == "1");
    let text = get("version")?;
    let flavor = if text.contains("MariaDB") { Flavor::MariaDb } else { Flavor::MySql };
    let version = version(text).ok_or_else(|| format!("its version `{text}` cannot be read"))?;
    let (product, least) = match flavor {
        Flavor::MariaDb => ("MariaDB", MARIADB_MIN),
        Flavor::MySql => ("MySQL", MYSQL_MIN),
    };
    if version < least {
        return Err(format!(
            "it runs {product} {text}; {}.{} or newer is needed",
            least.0, least.1
        ));
    }
    if on("wsrep_on") {
        return Err(
            "it is a node of a Galera cluster (`wsrep_on` is ON), which is not supported: commits \
             of other nodes become visible in another order than in its own log"
                .into(),
        );
    }
    if on("read_only") {
        return Err("it is `read_only`, like a replica, where changes appear late; \
                    name the primary"
            .into());
    }
    let server_id =
        get("server_id")?.parse().map_err(|_| "its `server_id` is no number".to_owned())?;
    Ok(Identity {
        flavor,
        version,
        name: digest(&name(flavor, of)),
        started_at_s: None,
        incarnation: incarnation(&name(flavor, of), None),
        address: format!("{}:{}", get("hostname")?, get("port")?),
        server_id,
        names_any_case: get("lower_case_table_names")? != "0",
    })
}

/// Returns the server's name for itself: `server_uuid` of MySQL. MariaDB has no such number, so
/// several variables are joined by `|`. A copy of the data folder has the same name.
fn name(flavor: Flavor, of: &HashMap<String, String>) -> String {
    let names: &[&str] = match flavor {
        Flavor::MySql => &["server_uuid"],
        Flavor::MariaDb => &["server_id", "hostname", "port", "datadir", "server_uid"],
    };
    names.iter().filter_map(|name| of.get(*name).cloned()).collect::<Vec<_>>().join("|")
}

/// Returns the incarnation number of a server's positions: a digest of its name and of the start of
/// its process. A restored copy has the same name but another start (docs/adr/0004).
fn incarnation(name: &str, started_at_s: Option<i64>) -> u64 {
    started_at_s.map_or_else(|| digest(name), |at| digest(&format!("{name}|{at}")))
}

/// Returns the first 64 bits of the SHA-256 digest.
fn digest(text: &str) -> u64 {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    // A digest of SHA-256 has 32 bytes.
    digest.as_ref().first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}

/// Returns the start of the server's process. The server computes the current time and `Uptime` at
/// the start of the same statement, so the difference is constant. Source: MariaDB,
/// `show_starttime` in sql/mysqld.cc. MySQL has the same, but it was not tested: an error there
/// means that the start is unknown.
async fn started_at_s(conn: &mut Conn, flavor: Flavor) -> Result<Option<i64>, Error> {
    let table = match flavor {
        Flavor::MariaDb => "information_schema.GLOBAL_STATUS",
        Flavor::MySql => "performance_schema.global_status",
    };
    let sql = format!(
        "SELECT UNIX_TIMESTAMP(), VARIABLE_VALUE FROM {table} WHERE VARIABLE_NAME = 'Uptime'"
    );
    match catalog_row::first(conn, sql).await {
        Ok(row) => row.as_ref().map(start_row).transpose(),
        Err(Error::Server(_)) if flavor == Flavor::MySql => Ok(None),
        Err(e) => Err(e),
    }
}

fn start_row(row: &CatalogRow) -> Result<i64, Error> {
    let now: i64 = row.required(0, "UNIX_TIMESTAMP()")?;
    let uptime: u64 = row.required(1, "Uptime")?;
    // A clock set back to before the start makes `Uptime` wrap around, and this subtraction too.
    Ok(now.wrapping_sub(uptime.cast_signed()))
}

/// Returns true if the server is a replica. MariaDB shows that only to an account with SLAVE
/// MONITOR. Without it only `read_only` decides, and the log reports that.
async fn is_replica(conn: &mut Conn, identity: &Identity) -> Result<bool, Error> {
    let sql = match identity.flavor {
        Flavor::MariaDb => "SHOW ALL SLAVES STATUS",
        Flavor::MySql if identity.version >= REPLICA_STATUS_FROM => "SHOW REPLICA STATUS",
        Flavor::MySql => "SHOW SLAVE STATUS",
    };
    match catalog_row::first(conn, sql).await {
        Ok(row) => Ok(row.is_some()),
        Err(Error::Server(e)) if e.code == 1227 => {
            tracing::warn!(
                "the account may not see if the server is a replica, so one that is not read_only \
                 would be accepted; GRANT SLAVE MONITOR ON *.* to it (MySQL: REPLICATION CLIENT)"
            );
            Ok(false)
        }
        Err(e) => Err(e),
    }
}

/// Parses versions such as `10.11.19-MariaDB-0+deb12u1-log`, `8.0.36-28` and `8.4.0`.
fn version(text: &str) -> Option<ServerVersion> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).take(3).map(|n| n.parse().ok());
    Some(ServerVersion(numbers.next()??, numbers.next()??, numbers.next().flatten().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(change: &[(&str, &str)]) -> HashMap<String, String> {
        let base = [
            ("version", "10.11.19-MariaDB-0+deb12u1-log"),
            ("server_id", "7"),
            ("hostname", "db"),
            ("port", "3306"),
            ("datadir", "/d/"),
            ("read_only", "OFF"),
            ("wsrep_on", "OFF"),
            ("lower_case_table_names", "0"),
        ];
        let pairs = base
            .iter()
            .chain(change)
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        pairs.collect()
    }

    #[test]
    fn variables_give_flavor_version_and_incarnation() {
        let m = from_variables(&variables(&[])).unwrap();
        assert_eq!((m.flavor, m.version), (Flavor::MariaDb, ServerVersion(10, 11, 19)));
        assert_eq!((m.address.as_str(), m.server_id, m.names_any_case), ("db:3306", 7, false));
        // The result of `SELECT LEFT(SHA2('7|db|3306|/d/', 256), 16)`.
        assert_eq!(format!("{:016x}", m.incarnation), "8ef8742cfaf51ade");
        let other = from_variables(&variables(&[("hostname", "db2")])).unwrap();
        assert_ne!(m.incarnation, other.incarnation);
        assert_ne!(m.name, other.name);
        let s = from_variables(&variables(&[("version", "8.4.0"), ("server_uuid", "u")])).unwrap();
        assert_eq!(
            (s.flavor, s.version, s.log_end_sql()),
            (Flavor::MySql, ServerVersion(8, 4, 0), "SHOW BINARY LOG STATUS")
        );
        let s =
            from_variables(&variables(&[("version", "8.0.36-28"), ("server_uuid", "u")])).unwrap();
        assert_eq!(s.log_end_sql(), "SHOW MASTER STATUS");
    }

    #[test]
    fn a_restart_and_a_log_that_went_back_change_the_incarnation() {
        let named = name(Flavor::MariaDb, &variables(&[]));
        assert_ne!(
            incarnation(&named, Some(1_700_000_000)),
            incarnation(&named, Some(1_700_000_001))
        );
        // The result of `SELECT LEFT(SHA2('7|db|3306|/d/|1700000000', 256), 16)`.
        assert_eq!(
            format!("{:016x}", incarnation(&named, Some(1_700_000_000))),
            "bdc0d3dc38976f82"
        );
        let before = from_variables(&variables(&[])).unwrap();
        let after = before.clone().renewed(7);
        assert!(before != after && before.is_same_process(&after));
        let restarted = Identity { started_at_s: Some(1), ..before.clone() };
        assert!(!before.is_same_process(&restarted));
    }

    #[test]
    fn start_time_is_the_same_in_every_query() {
        use mysql_async::Value;
        let row = |now: i64, uptime: &str| {
            CatalogRow::of(vec![Value::Int(now), Value::Bytes(uptime.into())])
        };
        assert_eq!(start_row(&row(1000, "400")).unwrap(), 600);
        assert_eq!(start_row(&row(1001, "401")).unwrap(), 600);
        // The clock was set back to before the start.
        assert_eq!(start_row(&row(599, "18446744073709551615")).unwrap(), 600);
        let good = [Value::Int(1000), Value::Bytes("400".into())];
        super::super::catalog_row::tests::survives_hostile_rows(&good, start_row);
    }

    #[test]
    fn unsupported_servers_are_refused() {
        for (change, expected) in [
            (("version", "10.4.30-MariaDB"), "10.5"),
            (("version", "5.7.44"), "8.0"),
            (("version", "new"), "cannot be read"),
            (("wsrep_on", "ON"), "Galera"),
            (("read_only", "ON"), "primary"),
        ] {
            let why = from_variables(&variables(&[change])).expect_err(expected);
            assert!(why.contains(expected), "{why}");
        }
    }
}
