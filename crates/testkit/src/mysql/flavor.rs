//! What differs between a MariaDB and a MySQL server: settings and statements.

/// Environment variable that selects the servers of a run: `mysql`, or else MariaDB.
const VARIABLE: &str = "HOTROW_TEST_SERVER";

/// Words of MariaDB's, and MySQL's in their place.
const DIALECT: [(&str, &str); 21] = [
    ("SHOW MASTER STATUS", "SHOW BINARY LOG STATUS"),
    ("RESET MASTER", "RESET BINARY LOGS AND GTIDS"),
    ("RESET SLAVE", "RESET REPLICA"),
    ("CHANGE MASTER TO MASTER_", "CHANGE REPLICATION SOURCE TO SOURCE_"),
    (", MASTER_", ", SOURCE_"),
    ("SET gtid_domain_id = 7", "SET gtid_next = '00000000-0000-0000-0000-000000000007:1'"),
    ("BINLOG MONITOR", "REPLICATION CLIENT"),
    ("SLAVE MONITOR", "REPLICATION CLIENT"),
    ("rpl_semi_sync_master_", "rpl_semi_sync_source_"),
    ("rpl-semi-sync-master-", "rpl-semi-sync-source-"),
    ("wait-no-slave", "wait-no-replica"),
    ("wait_no_slave", "wait_no_replica"),
    ("utf8mb4_nopad_bin", "utf8mb4_0900_bin"),
    ("latin1_nopad_bin", "latin1_bin"),
    ("int(11)", "int"),
    ("bigint(20)", "bigint"),
    ("NO_LOG", "MINIMAL"),
    ("mariadb", "mysql"),
    ("MariaDB", "MySQL"),
    (" uuid,", " char(36),"),
    (" inet6,", " varchar(39),"),
];

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
                ("cte-max-recursion-depth", "100000"),
                ("mysqlx", "OFF"),
                ("secure-file-priv", "NULL"),
                // MariaDB has it built in.
                ("plugin-load-add", "semisync_source.so"),
            ],
        }
    }

    /// Returns MariaDB's SQL, settings or messages in the words of this flavor.
    pub fn dialect(self, mariadb: &str) -> String {
        if self == Self::MariaDb {
            return mariadb.to_owned();
        }
        let mut text = mariadb.to_owned();
        for (of_mariadb, of_mysql) in DIALECT {
            text = text.replace(of_mariadb, of_mysql);
        }
        without_sequences(&text)
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

    /// Returns the query of the incarnation number of the server's positions.
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

/// Replaces tables of MariaDB's sequence engine, such as `seq_1_to_500`.
fn without_sequences(sql: &str) -> String {
    let mut parts = sql.split("FROM seq_");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(part.len());
        let (range, rest) = part.split_at(end);
        let (first, last) = range.split_once("_to_").expect("a sequence");
        text += &format!(
            "FROM (WITH RECURSIVE n (seq) AS (SELECT {first} UNION ALL SELECT seq + 1 FROM n \
             WHERE seq < {last}) SELECT seq FROM n) AS n{rest}"
        );
    }
    text
}
