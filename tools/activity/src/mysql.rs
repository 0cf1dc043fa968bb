//! MySQL and MariaDB: the process list, the transactions of InnoDB, and which waits for which.

use std::collections::{BTreeSet, HashMap};

use hotrow_diagnose::database::{
    DatabaseLook, SESSIONS_MAX, Session, SessionState, SessionWait, SessionWaitKind,
};
use hotrow_trial::observe::DatabaseProbe;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error, Opts, OptsBuilder, Row, Value};

use crate::WAITERS_MAX;
use crate::connection::{Connection, with_causes, without_password};
use crate::statement::{Dialect, shown};

/// Columns: id, command, state, statement. Threads of the server itself are no sessions.
const PROCESSES: &str = "SELECT CAST(ID AS CHAR), COMMAND, STATE, LEFT(INFO, 1000) FROM \
    information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID() AND COMMAND NOT IN ('Daemon', \
    'Binlog Dump', 'Binlog Dump GTID', 'Slave_IO', 'Slave_SQL', 'Slave_worker') AND USER <> \
    'event_scheduler' AND USER <> 'system user' ORDER BY COMMAND = 'Sleep'";
const TRANSACTIONS: &str = "SELECT CAST(trx_mysql_thread_id AS CHAR), trx_state FROM \
    information_schema.INNODB_TRX";
/// Columns: waiting and blocking session, in MariaDB.
const BLOCKERS_MARIADB: &str = "SELECT CAST(r.trx_mysql_thread_id AS CHAR), \
    CAST(b.trx_mysql_thread_id AS CHAR) FROM information_schema.INNODB_LOCK_WAITS w JOIN \
    information_schema.INNODB_TRX r ON r.trx_id = w.requesting_trx_id JOIN \
    information_schema.INNODB_TRX b ON b.trx_id = w.blocking_trx_id";
/// The same in MySQL.
const BLOCKERS_MYSQL: &str = "SELECT CAST(r.trx_mysql_thread_id AS CHAR), \
    CAST(b.trx_mysql_thread_id AS CHAR) FROM performance_schema.data_lock_waits w JOIN \
    information_schema.INNODB_TRX r ON r.trx_id = w.REQUESTING_ENGINE_TRANSACTION_ID JOIN \
    information_schema.INNODB_TRX b ON b.trx_id = w.BLOCKING_ENGINE_TRANSACTION_ID";
/// Most pairs of waiting and blocking sessions that are read: behind each waiter are those before
/// it.
const PAIRS_MAX: usize = WAITERS_MAX * WAITERS_MAX;
/// Whether the privilege PROCESS is missing: without it, both tables show less.
const PRIVILEGES: &str = "SELECT CURRENT_USER(), VERSION()";
/// Error code: a privilege is missing.
const ACCESS_DENIED: [u16; 3] = [1044, 1142, 1227];

/// Connection to a server, opened on demand.
pub(crate) struct MysqlProbe {
    opts: Opts,
    connection: Connection<Conn>,
    url: String,
}

/// What one look reads.
#[derive(Debug, Default)]
struct Tables {
    user: String,
    /// Id, command, state and statement.
    processes: Vec<[String; 4]>,
    /// Session and state of each transaction; `None` without the privilege.
    transactions: Option<Vec<[String; 2]>>,
    /// Waiting and blocking session; `None` without the privilege.
    pairs: Option<Vec<[String; 2]>>,
}

impl MysqlProbe {
    pub(crate) fn new(url: &str) -> Result<Self, String> {
        let opts =
            Opts::from_url(url).map_err(|error| without_password(&with_causes(&error), url))?;
        // A local socket would bypass the named address.
        let opts = OptsBuilder::from_opts(opts).prefer_socket(false).into();
        Ok(Self { opts, connection: Connection::new()?, url: url.to_owned() })
    }
}

impl DatabaseProbe for MysqlProbe {
    fn engine(&self) -> &'static str {
        "MySQL or MariaDB"
    }

    fn look(&mut self) -> Result<DatabaseLook, String> {
        let Self { opts, connection, url } = self;
        let text = |error: Error| without_password(&with_causes(&error), url);
        let connect = async || Conn::new(opts.clone()).await.map_err(text);
        let request = async |connection: &mut Conn| read(connection).await.map_err(text);
        Ok(look_of(&connection.ask(connect, request)?))
    }
}

async fn read(connection: &mut Conn) -> Result<Tables, Error> {
    let limited = |sql: &str, rows: usize| format!("{sql} LIMIT {rows}");
    let [user, version] = rows(connection, PRIVILEGES).await?.pop().unwrap_or_default();
    let processes = rows(connection, &limited(PROCESSES, SESSIONS_MAX)).await?;
    let transactions = permitted(rows(connection, &limited(TRANSACTIONS, SESSIONS_MAX)).await)?;
    let blockers = if version.contains("MariaDB") { BLOCKERS_MARIADB } else { BLOCKERS_MYSQL };
    let waits = transactions.iter().flatten().any(|[_, state]| state == LOCK_WAIT);
    let pairs = if waits {
        permitted(rows(connection, &limited(blockers, PAIRS_MAX)).await)?
    } else {
        transactions.as_ref().map(|_| Vec::new())
    };
    Ok(Tables { user, processes, transactions, pairs })
}

/// State of a transaction that waits for a lock.
const LOCK_WAIT: &str = "LOCK WAIT";

/// Returns the rows as text, with `NULL` as nothing.
async fn rows<const COLUMNS: usize>(
    connection: &mut Conn,
    sql: &str,
) -> Result<Vec<[String; COLUMNS]>, Error> {
    let rows: Vec<Row> = connection.query(sql).await?;
    let text = |row: &Row, at: usize| match row.as_ref(at) {
        Some(Value::Bytes(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        Some(Value::Int(n)) => n.to_string(),
        Some(Value::UInt(n)) => n.to_string(),
        _ => String::new(),
    };
    Ok(rows.iter().map(|row| std::array::from_fn(|at| text(row, at))).collect())
}

/// Returns `None` where a privilege is missing.
fn permitted<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Error::Server(error)) if ACCESS_DENIED.contains(&error.code) => Ok(None),
        Err(error) => Err(error),
    }
}

fn look_of(tables: &Tables) -> DatabaseLook {
    let transactions = tables.transactions.as_deref().unwrap_or_default();
    let of = |state: fn(&str) -> bool| -> BTreeSet<&str> {
        let found = transactions.iter().filter(|[_, its]| state(its));
        found.map(|[session, _]| session.as_str()).collect()
    };
    let (all, locked) = (of(|_| true), of(|state| state == LOCK_WAIT));
    let mut blockers: HashMap<&str, Vec<String>> = HashMap::new();
    for [waiting, blocking] in tables.pairs.iter().flatten() {
        blockers.entry(waiting).or_default().push(blocking.clone());
    }
    let session = |[id, command, state, statement]: &[String; 4]| Session {
        id: id.clone(),
        state: match command.as_str() {
            _ if locked.contains(id.as_str()) => {
                SessionState::Waiting(SessionWait::new(SessionWaitKind::Lock, "InnoDB row lock"))
            }
            "Sleep" if all.contains(id.as_str()) => SessionState::IdleInTransaction,
            "Sleep" => SessionState::Idle,
            _ => state_of(state),
        },
        statement: if statement.is_empty() && all.contains(id.as_str()) {
            "its statement has ended, its transaction has not".to_owned()
        } else {
            shown(statement, Dialect::Mysql)
        },
        blocked_by: blockers.get(id.as_str()).cloned().unwrap_or_default(),
    };
    let restriction = match (&tables.transactions, &tables.pairs) {
        (None, _) => Some(format!(
            "sessions of other users and lock waits are not visible: GRANT PROCESS ON *.* TO {} \
             shows them",
            account(&tables.user)
        )),
        (_, None) => Some(format!(
            "the holders of locks are not visible: GRANT SELECT ON \
             performance_schema.data_lock_waits TO {} shows them",
            account(&tables.user)
        )),
        _ => None,
    };
    DatabaseLook { sessions: tables.processes.iter().map(session).collect(), restriction }
}

/// Quotes `user@host` as in a grant.
fn account(user: &str) -> String {
    let (name, host) = user.rsplit_once('@').unwrap_or((user, "%"));
    format!("'{name}'@'{host}'")
}

/// Classifies the state of a session that runs a statement.
fn state_of(state: &str) -> SessionState {
    let lower = state.to_ascii_lowercase();
    let contains = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    let kind = if lower.starts_with("waiting") && contains(&["lock"]) {
        SessionWaitKind::Lock
    } else if contains(&["commit", "flush", "sync"]) {
        SessionWaitKind::Disk
    } else if contains(&["writing to net", "sending to client", "reading from net"]) {
        SessionWaitKind::Client
    } else if lower.starts_with("waiting") || lower == "user sleep" {
        SessionWaitKind::Other
    } else {
        return SessionState::Running;
    };
    SessionState::Waiting(SessionWait::new(kind, state))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(id: &str, command: &str, state: &str) -> [String; 4] {
        [id, command, state, "UPDATE t SET n = 1"].map(str::to_owned)
    }

    #[test]
    fn states_are_classified() {
        let cases = [
            (
                "Waiting for table metadata lock",
                "waiting for Lock (Waiting for table metadata lock)",
            ),
            ("Waiting for prior transaction to commit", "waiting for Disk (Waiting for prior"),
            ("Commit", "waiting for Disk (Commit)"),
            ("Writing to net", "waiting for Client (Writing to net)"),
            ("User sleep", "waiting for Other (User sleep)"),
            ("Sending data", "running"),
            ("", "running"),
        ];
        for (state, words) in cases {
            assert!(state_of(state).words().starts_with(words), "{state}: {:?}", state_of(state));
        }
    }

    #[test]
    fn missing_privileges_are_named() {
        let mut tables = Tables {
            user: "shop@%".to_owned(),
            processes: vec![process("7", "Sleep", ""), process("8", "Query", "Updating")],
            ..Tables::default()
        };
        let look = look_of(&tables);
        let restriction = look.restriction.unwrap_or_default();
        assert!(restriction.contains("GRANT PROCESS ON *.* TO 'shop'@'%'"), "{restriction}");
        let states: Vec<String> = look.sessions.iter().map(|one| one.state.words()).collect();
        assert_eq!(states, ["idle", "running"]);
        let transaction = |id: &str, state: &str| [id.to_owned(), state.to_owned()];
        tables.transactions = Some(vec![transaction("7", "RUNNING"), transaction("8", LOCK_WAIT)]);
        let look = look_of(&tables);
        let restriction = look.restriction.unwrap_or_default();
        assert!(restriction.contains("data_lock_waits"), "{restriction}");
        let states: Vec<String> = look.sessions.iter().map(|one| one.state.words()).collect();
        assert_eq!(states, ["idle in transaction", "waiting for Lock (InnoDB row lock)"]);
        tables.pairs = Some(vec![["8".to_owned(), "7".to_owned()]]);
        let look = look_of(&tables);
        assert_eq!((look.restriction, look.sessions[1].blocked_by.len()), (None, 1));
    }
}
