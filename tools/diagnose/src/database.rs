//! What the sessions of a database wait for: one look at them, and the means over many. Pure.
//!
//! A session that waits for a lock waits for another one. The *blocker* is the session at the end
//! of that chain, which waits for no lock itself.
//!
//! Reference `diagnosis`: Sources and grants of databases
//!
//! - PostgreSQL 10 or later; no TLS: `sslmode` `disable` or `prefer`: `pg_stat_activity`; `GRANT
//!   pg_read_all_stats TO user`; without it sessions of other users are counted only
//! - MySQL, MariaDB: process list, InnoDB's transactions; `GRANT PROCESS ON *.* TO user`; in MySQL
//!   8 for blockers also `SELECT` on `performance_schema.data_lock_waits`
//! - MongoDB, experimental: `currentOp`; blocking operations are not named; role `clusterMonitor`

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Most sessions of one look that are counted.
pub const SESSIONS_MAX: usize = 10_000;
/// Most characters of a statement that are kept.
pub const STATEMENT_CHARS_MAX: usize = 120;
/// Most kept waits of different names, and most kept blocking statements.
const GROUPS_MAX: usize = 200;
/// Most kept statements of one wait.
const STATEMENTS_MAX: usize = 100;
/// Name of a transaction's wait for its client's next statement.
const IDLE_IN_TRANSACTION: &str = "idle in transaction";
/// Most sessions counted as blocking with one statement.
const BLOCKERS_MAX: usize = 1_000;

/// What a session waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SessionWaitKind {
    /// A lock that another session holds.
    Lock,
    /// Reads, writes or flushes.
    Disk,
    /// Its client: the next statement of a transaction, or the reception of a result.
    Client,
    /// Nothing: it computes, or waits for a CPU.
    Running,
    /// Anything else.
    Other,
}

/// A wait of a session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionWait {
    /// What it waits for.
    pub kind: SessionWaitKind,
    /// The server's own name of the wait, as in `transactionid`; empty if it has none.
    pub name: String,
}

/// State of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// Not visible to this user.
    Hidden,
    /// Neither a statement nor a transaction.
    Idle,
    /// In a transaction, without a statement: the client is due.
    IdleInTransaction,
    /// It runs a statement and waits for nothing.
    Running,
    /// It runs a statement that waits.
    Waiting(SessionWait),
}

/// One session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The server's own id of it.
    pub id: String,
    /// Its state.
    pub state: SessionState,
    /// Its current or latest statement without literals, at most [`STATEMENT_CHARS_MAX`].
    pub statement: String,
    /// Sessions that it waits for; empty where unknown.
    pub blocked_by: Vec<String>,
}

/// All sessions at one moment, without the asking one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatabaseLook {
    /// The sessions, at most [`SESSIONS_MAX`].
    pub sessions: Vec<Session>,
    /// What this user may not see, and the grant that changes it.
    pub restriction: Option<String>,
}

/// Means over the looks during a load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DatabaseWaits {
    /// The engine's name.
    pub engine: String,
    /// Number of looks.
    pub looks: u64,
    /// Mean number of sessions that run a statement.
    pub active: f64,
    /// Their waits and those of idle transactions, the most frequent first.
    pub waits: Vec<MeanWait>,
    /// The statement whose sessions block most others.
    pub blocker: Option<Blocker>,
    /// Mean number of sessions whose state is not visible.
    pub hidden: f64,
    /// What this user may not see, and the grant that changes it.
    pub restriction: Option<String>,
}

/// A wait with the mean number of sessions in it.
#[derive(Clone, Debug, PartialEq)]
pub struct MeanWait {
    /// The wait.
    pub wait: SessionWait,
    /// Mean number of sessions.
    pub sessions: f64,
    /// Their most frequent statement.
    pub statement: String,
}

/// The sessions that block others with one statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Blocker {
    /// The latest of them.
    pub session: String,
    /// Number of different ones.
    pub sessions: usize,
    /// What they do, as text.
    pub doing: String,
    /// Their current or latest statement.
    pub statement: String,
    /// Mean number of sessions that they block, directly or through others.
    pub blocked: f64,
}

/// Sums over looks. Its size is bounded, however many looks are added.
#[derive(Debug, Default)]
pub struct WaitTally {
    looks: u64,
    active: u64,
    hidden: u64,
    waits: BTreeMap<SessionWait, WaitCount>,
    blockers: BTreeMap<(String, String), BlockerCount>,
    restriction: Option<String>,
}

#[derive(Debug, Default)]
struct WaitCount {
    sessions: u64,
    statements: HashMap<String, u64>,
}

#[derive(Debug, Default)]
struct BlockerCount {
    blocked: u64,
    sessions: BTreeSet<String>,
    latest: String,
}

impl SessionWait {
    /// Creates a wait.
    #[must_use]
    pub fn new(kind: SessionWaitKind, name: &str) -> Self {
        Self { kind, name: name.to_owned() }
    }

    /// Returns whether it is that of an idle transaction: its session is not active.
    pub fn is_idle(&self) -> bool {
        self.kind == SessionWaitKind::Client && self.name == IDLE_IN_TRANSACTION
    }

    /// Returns the wait as text, such as `Lock (transactionid)`.
    pub fn words(&self) -> String {
        match self.name.as_str() {
            "" => format!("{:?}", self.kind),
            name => format!("{:?} ({name})", self.kind),
        }
    }
}

impl SessionState {
    /// Returns the state as text.
    pub fn words(&self) -> String {
        match self {
            Self::Hidden => "not visible".to_owned(),
            Self::Idle => "idle".to_owned(),
            Self::IdleInTransaction => IDLE_IN_TRANSACTION.to_owned(),
            Self::Running => "running".to_owned(),
            Self::Waiting(wait) => format!("waiting for {}", wait.words()),
        }
    }

    /// Returns the wait; `None` if the session takes no part in the work, or is not visible.
    fn wait(&self) -> Option<SessionWait> {
        match self {
            Self::Hidden | Self::Idle => None,
            Self::IdleInTransaction => {
                Some(SessionWait::new(SessionWaitKind::Client, IDLE_IN_TRANSACTION))
            }
            Self::Running => Some(SessionWait::new(SessionWaitKind::Running, "")),
            Self::Waiting(wait) => Some(wait.clone()),
        }
    }

    fn waits_for_lock(&self) -> bool {
        matches!(self, Self::Waiting(wait) if wait.kind == SessionWaitKind::Lock)
    }
}

impl WaitTally {
    /// Adds one look.
    pub fn add(&mut self, look: DatabaseLook) {
        self.looks += 1;
        let counted = &look.sessions[..look.sessions.len().min(SESSIONS_MAX)];
        for session in counted {
            self.hidden += u64::from(session.state == SessionState::Hidden);
            let Some(wait) = session.state.wait() else { continue };
            self.active += u64::from(session.state != SessionState::IdleInTransaction);
            if let Some(count) = entry(&mut self.waits, wait) {
                count.sessions += 1;
                let known = count.statements.contains_key(&session.statement);
                if known || count.statements.len() < STATEMENTS_MAX {
                    *count.statements.entry(session.statement.clone()).or_default() += 1;
                }
            }
        }
        for (id, blocked) in blocked_by_roots(counted) {
            self.add_blocker(counted, id, blocked);
        }
        self.restriction = look.restriction;
    }

    fn add_blocker(&mut self, sessions: &[Session], id: &str, blocked: u64) {
        let session = sessions.iter().find(|session| session.id == id);
        let doing = session.map_or(SessionState::Hidden, |session| session.state.clone()).words();
        let statement = session.map(|session| session.statement.clone()).unwrap_or_default();
        let Some(count) = entry(&mut self.blockers, (doing, statement)) else { return };
        count.blocked += blocked;
        id.clone_into(&mut count.latest);
        if count.sessions.len() < BLOCKERS_MAX {
            count.sessions.insert(id.to_owned());
        }
    }

    /// Returns the means; `None` without a look.
    #[must_use]
    pub fn means(self, engine: &str) -> Option<DatabaseWaits> {
        let looks = self.looks;
        let mean = |count: u64| count as f64 / looks as f64;
        let most = |statements: HashMap<String, u64>| {
            // The text decides between equals, so that the order of the table does not.
            let most = statements
                .into_iter()
                .max_by(|one, other| one.1.cmp(&other.1).then_with(|| other.0.cmp(&one.0)));
            most.map(|(statement, _)| statement).unwrap_or_default()
        };
        let mut waits: Vec<MeanWait> = self
            .waits
            .into_iter()
            .map(|(wait, count)| MeanWait {
                wait,
                sessions: mean(count.sessions),
                statement: most(count.statements),
            })
            .collect();
        waits.sort_by(|one, other| other.sessions.total_cmp(&one.sessions));
        let blocker = self.blockers.into_iter().max_by_key(|(_, count)| count.blocked);
        let blocker = blocker.map(|((doing, statement), count)| Blocker {
            session: count.latest,
            sessions: count.sessions.len(),
            doing,
            statement,
            blocked: mean(count.blocked),
        });
        (looks > 0).then(|| DatabaseWaits {
            engine: engine.to_owned(),
            looks,
            active: mean(self.active),
            waits,
            blocker,
            hidden: mean(self.hidden),
            restriction: self.restriction,
        })
    }
}

impl DatabaseWaits {
    /// Returns the mean number of sessions in waits of a kind.
    pub fn sessions(&self, kind: SessionWaitKind) -> f64 {
        // Not `sum`: of nothing it is -0.
        self.of(kind).fold(0.0, |sum, wait| sum + wait.sessions)
    }

    /// Returns the waits of a kind, the most frequent first.
    pub fn of(&self, kind: SessionWaitKind) -> impl Iterator<Item = &MeanWait> {
        self.waits.iter().filter(move |wait| wait.wait.kind == kind)
    }
}

/// Returns an entry of a bounded table; `None` for a new key of a full one.
fn entry<K: Ord, V: Default>(table: &mut BTreeMap<K, V>, key: K) -> Option<&mut V> {
    let full = table.len() >= GROUPS_MAX;
    (!full || table.contains_key(&key)).then(|| table.entry(key).or_default())
}

/// Returns each blocker with the number of sessions that it blocks, directly or through others.
/// Sessions that block each other have none: the server ends that deadlock.
fn blocked_by_roots(sessions: &[Session]) -> Vec<(&str, u64)> {
    let mut waiters: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for session in sessions {
        for blocker in &session.blocked_by {
            waiters.entry(blocker).or_default().push(&session.id);
        }
    }
    // A blocked session may have waiters behind it and is no root, even if its own blockers are
    // unknown.
    let waiting: HashSet<&str> = sessions
        .iter()
        .filter(|session| session.state.waits_for_lock() || !session.blocked_by.is_empty())
        .map(|session| session.id.as_str())
        .collect();
    let roots = waiters.keys().copied().filter(|id| !waiting.contains(id));
    roots.map(|root| (root, reached(root, &waiters))).collect()
}

/// Returns the number of sessions behind a blocker.
fn reached(root: &str, waiters: &BTreeMap<&str, Vec<&str>>) -> u64 {
    let mut found = HashSet::new();
    let mut next = vec![root];
    while let Some(blocker) = next.pop() {
        let behind = waiters.get(blocker).into_iter().flatten().copied();
        next.extend(behind.filter(|waiter| found.insert(*waiter)));
    }
    found.len() as u64
}

#[cfg(test)]
mod tests;
