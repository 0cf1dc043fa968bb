//! What differs between a MariaDB and a MySQL server: settings and statements.

/// Environment variable that selects the servers of a run: `mysql`, or else MariaDB.
const VARIABLE: &str = "HOTROW_TEST_SERVER";

/// Kind of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavor {
    MariaDb,
    MySql,
}

impl Flavor {
    /// Returns the flavor of this test run: `HOTROW_TEST_SERVER=mysql cargo test …` runs the tests
    /// of MariaDB over MySQL.
    pub fn of_run() -> Self {
        match std::env::var(VARIABLE).as_deref() {
            Ok("mysql") => Self::MySql,
            Ok("mariadb") | Err(_) => Self::MariaDb,
            Ok(other) => panic!("{VARIABLE} is mariadb or mysql, and not {other}"),
        }
    }

    /// Returns one of two values.
    pub fn choose<T>(self, mariadb: T, mysql: T) -> T {
        match self {
            Self::MariaDb => mariadb,
            Self::MySql => mysql,
        }
    }

    /// Small files, because every test copies the data folder.
    pub(super) fn small_files(self) -> [&'static str; 4] {
        self.choose(
            [
                "--innodb-log-file-size=4M",
                "--innodb-autoextend-increment=1",
                "--innodb-undo-tablespaces=0",
                "--innodb-data-file-path=ibdata1:4M:autoextend",
            ],
            [
                "--innodb-redo-log-capacity=8M",
                "--innodb-autoextend-increment=1",
                "--innodb-doublewrite=OFF",
                "--innodb-data-file-path=ibdata1:5M:autoextend",
            ],
        )
    }

    /// Settings that the other does not have.
    pub(super) fn settings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::MariaDb => &[],
            Self::MySql => &[
                ("gtid-mode", "ON"),
                ("enforce-gtid-consistency", "ON"),
                ("mysqlx", "OFF"),
                ("secure-file-priv", "NULL"),
                // MariaDB has it built in.
                ("plugin-load-add", "semisync_source.so"),
            ],
        }
    }

    /// Returns the documented privilege to query the log's end.
    pub fn monitor(self) -> &'static str {
        self.choose("BINLOG MONITOR", "REPLICATION CLIENT")
    }

    /// Returns the statement that reads the log's end.
    pub fn log_end_sql(self) -> &'static str {
        self.choose("SHOW MASTER STATUS", "SHOW BINARY LOG STATUS")
    }

    /// Returns the statement that begins the log anew.
    pub fn reset_log_sql(self) -> &'static str {
        self.choose("RESET MASTER", "RESET BINARY LOGS AND GTIDS")
    }

    /// Returns the query of the start of the server's process, in seconds since 1970.
    pub(super) fn started_sql(self) -> &'static str {
        self.choose(
            "SELECT UNIX_TIMESTAMP() - (SELECT CAST(VARIABLE_VALUE AS SIGNED) \
             FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'UPTIME')",
            "SELECT UNIX_TIMESTAMP() - (SELECT CAST(VARIABLE_VALUE AS SIGNED) \
             FROM performance_schema.global_status WHERE VARIABLE_NAME = 'Uptime')",
        )
    }

    /// Returns the query of the incarnation number of the server's positions. docs/mysql.md has
    /// the same statements.
    pub(super) fn incarnation_sql(self) -> &'static str {
        self.choose(
            "SELECT LEFT(SHA2(CONCAT_WS('|', \
             @@server_id, @@hostname, @@port, @@datadir, @@server_uid, \
             UNIX_TIMESTAMP() - (SELECT CAST(VARIABLE_VALUE AS SIGNED) \
             FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'UPTIME')), 256), 16)",
            "SELECT LEFT(SHA2(CONCAT_WS('|', @@server_uuid, \
             UNIX_TIMESTAMP() - (SELECT CAST(VARIABLE_VALUE AS SIGNED) \
             FROM performance_schema.global_status WHERE VARIABLE_NAME = 'Uptime')), 256), 16)",
        )
    }
}
