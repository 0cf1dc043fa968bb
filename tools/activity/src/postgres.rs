//! PostgreSQL: `pg_stat_activity`, and `pg_blocking_pids` of sessions that wait for a lock.

use hotrow_diagnose::database::{
    DatabaseLook, SESSIONS_MAX, Session, SessionState, SessionWait, SessionWaitKind,
};
use hotrow_trial::observe::DatabaseProbe;
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage, SimpleQueryRow};

use crate::connection::{Connection, with_causes, without_password};
use crate::statement::{Dialect, shown};
use crate::{APPLICATION, FIRST_LOOK_TIME_MAX, WAITERS_MAX};

/// Prepared transactions hold locks without a session; the server calls them by this id.
const PREPARED_TRANSACTION: &str = "0";

/// Connection to a server, opened on demand.
pub(crate) struct PostgresProbe {
    config: Config,
    connection: Connection<Client>,
    url: String,
}

impl PostgresProbe {
    pub(crate) fn new(url: &str) -> Result<Self, String> {
        let wrong = |error: tokio_postgres::Error| {
            let text = without_password(&with_causes(&error), url);
            if text.contains("sslmode") { format!("{text}; {NO_TLS}") } else { text }
        };
        let mut config: Config = url.parse().map_err(wrong)?;
        if config.get_ssl_mode() == SslMode::Require {
            return Err(format!("sslmode=require: {NO_TLS}"));
        }
        config.connect_timeout(FIRST_LOOK_TIME_MAX).application_name(APPLICATION);
        Ok(Self { config, connection: Connection::new()?, url: url.to_owned() })
    }
}

const NO_TLS: &str = "this connection has no TLS, so sslmode can be disable or prefer: ask on the \
                      database's machine, or through a tunnel";

impl DatabaseProbe for PostgresProbe {
    fn engine(&self) -> &'static str {
        "PostgreSQL"
    }

    fn look(&mut self) -> Result<DatabaseLook, String> {
        let Self { config, connection, url } = self;
        let text = |error: tokio_postgres::Error| without_password(&with_causes(&error), url);
        let connect = async || {
            let (client, driver) = config.connect(NoTls).await.map_err(text)?;
            tokio::spawn(driver);
            Ok(client)
        };
        let request = async |client: &mut Client| client.simple_query(&query()).await.map_err(text);
        Ok(look_of(connection.ask(connect, request)?))
    }
}

/// Returns the query. Sessions of other users without the grant have neither a type nor a state;
/// those without a database are the server's own. Idle ones come last, for the limit.
fn query() -> String {
    format!(
        "SELECT pid, state, wait_event_type, wait_event, query, hidden, current_user, CASE WHEN \
         wait_event_type = 'Lock' AND place <= {WAITERS_MAX} THEN array_to_string(\
         pg_blocking_pids(pid), ',') END FROM (SELECT pid, state, wait_event_type, wait_event, \
         left(query, 1000) AS query, backend_type IS NULL AS hidden, row_number() OVER (PARTITION \
         BY wait_event_type ORDER BY query_start, pid) AS place FROM pg_stat_activity WHERE pid <> \
         pg_backend_pid() AND (backend_type = 'client backend' OR backend_type IS NULL AND datid \
         IS NOT NULL) ORDER BY coalesce(state = 'idle', false) LIMIT {SESSIONS_MAX}) AS sessions"
    )
}

fn look_of(messages: Vec<SimpleQueryMessage>) -> DatabaseLook {
    let rows: Vec<SimpleQueryRow> = messages
        .into_iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        })
        .collect();
    let user = rows.first().and_then(|row| row.get(6)).unwrap_or_default().to_owned();
    let mut sessions: Vec<Session> = rows.iter().map(session).collect();
    let hidden = sessions.iter().filter(|session| session.state == SessionState::Hidden).count();
    let restriction = (hidden > 0).then(|| {
        format!(
            "{hidden} PostgreSQL sessions of other users are not visible: GRANT \
             pg_read_all_stats TO \"{user}\" shows them"
        )
    });
    add_prepared_transaction(&mut sessions);
    DatabaseLook { sessions, restriction }
}

fn session(row: &SimpleQueryRow) -> Session {
    let column = |at: usize| row.get(at).unwrap_or_default();
    let (kind, event) = (column(2), column(3));
    let state = match column(1) {
        _ if column(5) == "t" => SessionState::Hidden,
        "active" | "fastpath function call" => match kind {
            "" => SessionState::Running,
            _ => SessionState::Waiting(SessionWait::new(wait_kind(kind, event), event)),
        },
        "idle in transaction" | "idle in transaction (aborted)" => SessionState::IdleInTransaction,
        _ => SessionState::Idle,
    };
    let blocked_by = column(7).split(',').filter(|pid| !pid.is_empty());
    Session {
        id: column(0).to_owned(),
        statement: if state == SessionState::Hidden {
            String::new()
        } else {
            shown(column(4), Dialect::Postgres)
        },
        state,
        blocked_by: blocked_by.map(str::to_owned).collect(),
    }
}

/// Names the holder of locks that has no session.
fn add_prepared_transaction(sessions: &mut Vec<Session>) {
    let holds = |session: &Session| session.blocked_by.iter().any(|id| id == PREPARED_TRANSACTION);
    if sessions.iter().any(holds) {
        sessions.push(Session {
            id: PREPARED_TRANSACTION.to_owned(),
            state: SessionState::IdleInTransaction,
            statement: "PREPARE TRANSACTION, without a session (pg_prepared_xacts)".to_owned(),
            blocked_by: Vec::new(),
        });
    }
}

/// Returns the kind of a wait event. `WALWrite` as a lightweight lock is the wait for another
/// session's flush of the log.
fn wait_kind(event_type: &str, event: &str) -> SessionWaitKind {
    match (event_type, event) {
        ("Lock", _) => SessionWaitKind::Lock,
        ("IO", _) | ("LWLock", "WALWrite" | "WALWriteLock") => SessionWaitKind::Disk,
        ("Client", _) => SessionWaitKind::Client,
        _ => SessionWaitKind::Other,
    }
}
