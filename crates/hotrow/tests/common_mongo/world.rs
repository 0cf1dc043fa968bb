//! What the members of the stand-in share: what is stored, who is primary, open cursors and transactions, and what the test
//! has turned.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use mongodb::bson::{Document, RawDocumentBuf, oid::ObjectId};
use std::sync::{Condvar, Mutex, MutexGuard};

use super::failure::Failure;
use super::store::{Ns, Store};
use super::stream::Stream;
use super::writes::Pending;

/// Cursors that may be open.
pub(super) const CURSORS_MAX: usize = 1_000;
/// Transactions that may be under way.
pub(super) const TRANSACTIONS_MAX: usize = 1_000;

/// What kind of deployment it plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Members of a replica set.
    ReplicaSet,
    /// A mongos before a sharded cluster.
    Mongos,
    /// A server of its own, without an oplog.
    Standalone,
}

/// What is done to a command.
#[derive(Clone, Debug)]
pub enum Trouble {
    /// It fails.
    Fail(Failure),
    /// The connection is closed without an answer, before anything is done.
    Cut,
    /// It is carried out, and the answer is sent so much later.
    Delay(Duration),
    /// It is carried out, and the answer is kept until the trouble is taken away.
    Hold,
}

/// A trouble for commands of a name, as many as `left` says; `*` means all.
pub(super) struct Rule {
    pub(super) command: String,
    pub(super) trouble: Trouble,
    pub(super) left: Option<u32>,
}

/// A place in a result.
pub(super) enum Cursor {
    Documents { ns: Ns, rest: VecDeque<RawDocumentBuf> },
    Stream { ns: Ns, stream: Box<Stream> },
}

/// Everything behind the one lock.
pub(super) struct World {
    pub(super) kind: Kind,
    pub(super) set_name: String,
    /// Of the replica set, or of the sharded cluster.
    pub(super) id: ObjectId,
    pub(super) version: String,
    pub(super) wire_version: i32,
    /// Addresses of the members.
    pub(super) hosts: Vec<String>,
    /// Which member is primary.
    pub(super) primary: Option<usize>,
    /// Counts elections.
    pub(super) term: i64,
    pub(super) store: Store,
    pub(super) cursors: BTreeMap<i64, Cursor>,
    pub(super) next_cursor: i64,
    pub(super) transactions: BTreeMap<Vec<u8>, (i64, Pending)>,
    /// The newest answer to a write or a commit of each session, for who asks again.
    pub(super) made: BTreeMap<Vec<u8>, (i64, Document)>,
    pub(super) rules: Vec<Rule>,
    /// Answers that are held, by command.
    pub(super) held: BTreeMap<String, usize>,
    /// Commands that came, by name.
    pub(super) counts: BTreeMap<String, u64>,
    /// Open connections, with the member that each is to.
    pub(super) connections: BTreeMap<u64, (usize, TcpStream)>,
    pub(super) next_connection: u64,
    pub(super) refuse_connections: bool,
    pub(super) ended: bool,
}

/// The world and what wakes those who wait for it to change.
pub(super) struct Shared {
    world: Mutex<World>,
    changed: Condvar,
}

impl Shared {
    pub(super) fn new(world: World) -> Self {
        Self { world: Mutex::new(world), changed: Condvar::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Looks at the world or changes it, and wakes those who wait.
    pub(super) fn with<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        let done = change(&mut self.lock());
        self.changed.notify_all();
        done
    }

    pub(super) fn wake(&self) {
        self.changed.notify_all();
    }

    /// Waits for a change, until then at most; `false`: the time is over.
    pub(super) fn wait<'a>(&'a self, world: MutexGuard<'a, World>, until: Instant) -> (MutexGuard<'a, World>, bool) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return (world, false);
        }
        let waited = self.changed.wait_timeout(world, left);
        (waited.unwrap_or_else(std::sync::PoisonError::into_inner).0, true)
    }
}

impl World {
    /// The trouble that a command is in for.
    pub(super) fn trouble(&mut self, command: &str) -> Option<Trouble> {
        let rule = self.rules.iter_mut().find(|r| (r.command == command || r.command == "*") && r.left != Some(0))?;
        rule.left = rule.left.map(|left| left - 1);
        Some(rule.trouble.clone())
    }

    /// What lasting trouble the answer to a command is in for that was already under way.
    pub(super) fn late_trouble(&self, command: &str) -> Option<Trouble> {
        let lasting = |rule: &&Rule| (rule.command == command || rule.command == "*") && rule.left.is_none();
        let rule =
            self.rules.iter().filter(lasting).find(|rule| matches!(rule.trouble, Trouble::Delay(_) | Trouble::Hold));
        rule.map(|rule| rule.trouble.clone())
    }

    /// Whether answers to it are held.
    pub(super) fn holds(&self, command: &str) -> bool {
        // Even one that holds no more commands: what it holds is let go when it is taken away.
        let holding = |rule: &Rule| matches!(rule.trouble, Trouble::Hold);
        !self.ended && self.rules.iter().any(|r| (r.command == command || r.command == "*") && holding(r))
    }

    /// Closes the connections to a member, or to all.
    pub(super) fn cut(&mut self, member: Option<usize>) {
        for (to, stream) in self.connections.values() {
            if member.is_none_or(|member| member == *to) {
                // It may be closed already.
                _ = stream.shutdown(Shutdown::Both);
            }
        }
    }

    /// Keeps a cursor; its number.
    pub(super) fn keep(&mut self, cursor: Cursor) -> Result<i64, Failure> {
        if self.cursors.len() >= CURSORS_MAX {
            return Err(Failure::bad_value("too many open cursors"));
        }
        self.next_cursor += 1;
        self.cursors.insert(self.next_cursor, cursor);
        Ok(self.next_cursor)
    }
}
