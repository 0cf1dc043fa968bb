//! Which server a session leads to.

use std::collections::HashMap;
use std::fmt;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error, Row};

use super::connect::{ConnectError, full_text};
use super::target::Host;

/// Oldest versions that can be served: MariaDB 10.5 has the privileges and statements that the documentation names,
/// MySQL 8.0 the metadata in its log.
const MARIADB_MIN: Version = Version(10, 5, 0);
const MYSQL_MIN: Version = Version(8, 0, 0);
/// From here on MySQL has `SHOW BINARY LOG STATUS` in place of `SHOW MASTER STATUS`.
const BINARY_LOG_STATUS_FROM: Version = Version(8, 2, 0);
/// From here on MySQL has `SHOW REPLICA STATUS`.
const REPLICA_STATUS_FROM: Version = Version(8, 0, 22);

/// The two dialects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavor {
    MariaDb,
    MySql,
}

/// Major, minor, patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(pub(crate) u16, pub(crate) u16, pub(crate) u16);

/// What stays the same as long as positions of one session mean the same in another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) flavor: Flavor,
    pub(crate) version: Version,
    /// The number that positions carry, see [`incarnation`].
    pub(crate) incarnation: u64,
    /// Its own host name and port, for messages.
    pub(crate) address: String,
    /// Its number among replicas.
    pub(crate) server_id: u32,
    /// `lower_case_table_names` is not 0: names of tables compare without regard to case.
    pub(crate) names_any_case: bool,
}

impl Identity {
    /// The statement that tells the log's end; its first two columns are file and offset.
    pub(crate) fn log_end_sql(&self) -> &'static str {
        match self.flavor {
            Flavor::MySql if self.version >= BINARY_LOG_STATUS_FROM => "SHOW BINARY LOG STATUS",
            _ => "SHOW MASTER STATUS",
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flavor = if self.flavor == Flavor::MariaDb { "MariaDB" } else { "MySQL" };
        let Version(major, minor, patch) = self.version;
        write!(f, "{flavor} {major}.{minor}.{patch} at {} with server_id {}", self.address, self.server_id)
    }
}

/// Names that a server does not have are left out of the answer.
const VARIABLES_SQL: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'server_id', 'server_uuid', \
    'server_uid', 'hostname', 'port', 'datadir', 'read_only', 'wsrep_on', 'lower_case_table_names')";

/// Asks a server who it is.
///
/// # Errors
/// [`ConnectError::Unusable`] for a replica, a Galera node, a version that is too old, and a server that does not tell.
pub(crate) async fn identify(conn: &mut Conn, host: &Host) -> Result<Identity, ConnectError> {
    let unusable = |detail: String| ConnectError::Unusable { host: host.to_string(), detail };
    let rows: Vec<(String, String)> = conn.query(VARIABLES_SQL).await.map_err(|e| unusable(full_text(&e)))?;
    let identity = from_variables(&rows.into_iter().collect()).map_err(unusable)?;
    if is_replica(conn, &identity).await.map_err(|e| unusable(full_text(&e)))? {
        let detail = "it is a replica: changes show there later than they happen; name the primary (or, if it is one that \
                      still has the settings of an old replication, run `RESET REPLICA ALL` there)";
        return Err(unusable(detail.into()));
    }
    Ok(identity)
}

/// What the variables say; the error is why the server cannot be used.
fn from_variables(of: &HashMap<String, String>) -> Result<Identity, String> {
    let get = |name: &str| of.get(name).map(String::as_str).ok_or_else(|| format!("it does not tell its `{name}`"));
    let on = |name: &str| of.get(name).is_some_and(|value| value == "ON" || value == "1");
    let text = get("version")?;
    let flavor = if text.contains("MariaDB") { Flavor::MariaDb } else { Flavor::MySql };
    let version = version(text).ok_or_else(|| format!("its version `{text}` cannot be read"))?;
    let (name, least) = match flavor {
        Flavor::MariaDb => ("MariaDB", MARIADB_MIN),
        Flavor::MySql => ("MySQL", MYSQL_MIN),
    };
    if version < least {
        return Err(format!("it runs {name} {text}; {}.{} or newer is needed", least.0, least.1));
    }
    if on("wsrep_on") {
        return Err(
            "it is a node of a Galera cluster (`wsrep_on` is ON): commits of the other nodes become visible in \
                    another order than its own log has them, which is not supported"
                .into(),
        );
    }
    if on("read_only") {
        return Err(
            "it is `read_only`, as a replica is: changes show there later than they happen; name the primary".into()
        );
    }
    let server_id = get("server_id")?.parse().map_err(|_| "its `server_id` is no number".to_owned())?;
    Ok(Identity {
        flavor,
        version,
        incarnation: incarnation(flavor, of),
        address: format!("{}:{}", get("hostname")?, get("port")?),
        server_id,
        names_any_case: get("lower_case_table_names")? != "0",
    })
}

/// The first 64 bits of SHA-256 of what tells this server and its data from others. MySQL has a number of its own for
/// that, `server_uuid`. MariaDB has none: its names for itself, joined by `|`, must do.
fn incarnation(flavor: Flavor, of: &HashMap<String, String>) -> u64 {
    let names: &[&str] = match flavor {
        Flavor::MySql => &["server_uuid"],
        Flavor::MariaDb => &["server_id", "hostname", "port", "datadir", "server_uid"],
    };
    let joined = names.iter().filter_map(|name| of.get(*name).cloned()).collect::<Vec<_>>().join("|");
    let digest = ring::digest::digest(&ring::digest::SHA256, joined.as_bytes());
    // A digest of SHA-256 has 32 bytes.
    digest.as_ref().first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}

/// Whether it takes its data from another server. An account that may not ask is not told: the settings above must do.
async fn is_replica(conn: &mut Conn, identity: &Identity) -> Result<bool, Error> {
    let sql = match identity.flavor {
        Flavor::MariaDb => "SHOW ALL SLAVES STATUS",
        Flavor::MySql if identity.version >= REPLICA_STATUS_FROM => "SHOW REPLICA STATUS",
        Flavor::MySql => "SHOW SLAVE STATUS",
    };
    match conn.query_first::<Row, _>(sql).await {
        Ok(row) => Ok(row.is_some()),
        Err(Error::Server(e)) if e.code == 1227 => Ok(false),
        Err(e) => Err(e),
    }
}

/// `10.11.19-MariaDB-0+deb12u1-log`, `8.0.36-28`, `8.4.0`.
fn version(text: &str) -> Option<Version> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).take(3).map(|n| n.parse().ok());
    Some(Version(numbers.next()??, numbers.next()??, numbers.next().flatten().unwrap_or(0)))
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
        let pairs = base.iter().chain(change).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        pairs.collect()
    }

    #[test]
    fn flavor_version_and_incarnation_are_told() {
        let m = from_variables(&variables(&[])).unwrap();
        assert_eq!((m.flavor, m.version), (Flavor::MariaDb, Version(10, 11, 19)));
        assert_eq!((m.address.as_str(), m.server_id, m.names_any_case), ("db:3306", 7, false));
        // As `SELECT LEFT(SHA2('7|db|3306|/d/', 256), 16)` has it.
        assert_eq!(format!("{:016x}", m.incarnation), "8ef8742cfaf51ade");
        let other = from_variables(&variables(&[("hostname", "db2")])).unwrap();
        assert_ne!(m.incarnation, other.incarnation);
        let s = from_variables(&variables(&[("version", "8.4.0"), ("server_uuid", "u")])).unwrap();
        assert_eq!((s.flavor, s.version, s.log_end_sql()), (Flavor::MySql, Version(8, 4, 0), "SHOW BINARY LOG STATUS"));
        let s = from_variables(&variables(&[("version", "8.0.36-28"), ("server_uuid", "u")])).unwrap();
        assert_eq!(s.log_end_sql(), "SHOW MASTER STATUS");
    }

    #[test]
    fn what_cannot_be_served_is_refused() {
        for (change, says) in [
            (("version", "10.4.30-MariaDB"), "10.5"),
            (("version", "5.7.44"), "8.0"),
            (("version", "new"), "cannot be read"),
            (("wsrep_on", "ON"), "Galera"),
            (("read_only", "ON"), "primary"),
        ] {
            let why = from_variables(&variables(&[change])).expect_err(says);
            assert!(why.contains(says), "{why}");
        }
    }
}
