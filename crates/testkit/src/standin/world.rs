//! State shared by the members of the stand-in: stored data, the primary, open cursors and
//! transactions, and the switches of the test.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use mongodb::bson::{Document, RawDocumentBuf, oid::ObjectId};
use std::sync::{Condvar, Mutex, MutexGuard};

use super::failure::Failure;
use super::store::{Ns, Store};
use super::stream::Stream;
use super::writes::Pending;

pub const CURSORS_MAX: usize = 1_000;
pub const TRANSACTIONS_MAX: usize = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    ReplicaSet,
    /// A mongos in front of a sharded cluster.
    Mongos,
    /// A standalone server, without an oplog.
    Standalone,
}

/// Fault applied to a command.
#[derive(Clone, Debug)]
pub enum Fault {
    Fail(Failure),
    /// The connection is closed without an answer, before the command is executed.
    Cut,
    /// The command is executed, and the answer is delayed.
    Delay(Duration),
    /// The command is executed, and the answer is held until the fault is removed.
    Hold,
    /// The command is executed, and the first document of the answer's batch is replaced by a
    /// number. An empty batch is left as it is.
    Malform,
}

/// Fault for commands of a name (`*`: all), at most `left` times.
pub struct Rule {
    pub command: String,
    pub fault: Fault,
    pub left: Option<u32>,
}

/// Position in a result.
pub enum Cursor {
    Documents { ns: Ns, rest: VecDeque<RawDocumentBuf> },
    Stream { ns: Ns, stream: Box<Stream> },
}

/// State behind the one lock.
pub struct World {
    pub kind: Kind,
    pub set_name: String,
    /// Id of the replica set, or of the sharded cluster.
    pub id: ObjectId,
    pub version: String,
    pub wire_version: i32,
    pub hosts: Vec<String>,
    /// Index of the primary.
    pub primary: Option<usize>,
    /// Number of elections.
    pub term: i64,
    pub store: Store,
    pub cursors: BTreeMap<i64, Cursor>,
    pub next_cursor: i64,
    pub transactions: BTreeMap<Vec<u8>, (i64, Pending)>,
    /// Newest answer to a write or a commit of each session, for retries.
    pub answered_writes: BTreeMap<Vec<u8>, (i64, Document)>,
    pub rules: Vec<Rule>,
    /// Number of held answers, by command.
    pub held: BTreeMap<String, usize>,
    /// Number of received commands, by name.
    pub counts: BTreeMap<String, u64>,
    /// Open connections, with the member of each.
    pub connections: BTreeMap<u64, (usize, TcpStream)>,
    pub next_connection: u64,
    pub refuse_connections: bool,
    pub ended: bool,
}

/// The state, and the condition that its changes signal.
pub struct Shared {
    world: Mutex<World>,
    changed: Condvar,
}

impl Shared {
    pub fn new(world: World) -> Self {
        Self { world: Mutex::new(world), changed: Condvar::new() }
    }

    pub fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Reads or changes the state, and wakes all waiters.
    pub fn with<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        let done = change(&mut self.lock());
        self.changed.notify_all();
        done
    }

    pub fn wake(&self) {
        self.changed.notify_all();
    }

    /// Waits for a change, at most until `until`. Returns `false` after that time.
    pub fn wait<'a>(
        &'a self,
        world: MutexGuard<'a, World>,
        until: Instant,
    ) -> (MutexGuard<'a, World>, bool) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return (world, false);
        }
        let waited = self.changed.wait_timeout(world, left);
        (waited.unwrap_or_else(std::sync::PoisonError::into_inner).0, true)
    }
}

impl World {
    pub fn fault(&mut self, command: &str) -> Option<Fault> {
        let rule = self
            .rules
            .iter_mut()
            .find(|r| (r.command == command || r.command == "*") && r.left != Some(0))?;
        rule.left = rule.left.map(|left| left - 1);
        Some(rule.fault.clone())
    }

    /// Returns the lasting fault for the answer to a command that is already being executed.
    pub fn late_fault(&self, command: &str) -> Option<Fault> {
        let lasting =
            |rule: &&Rule| (rule.command == command || rule.command == "*") && rule.left.is_none();
        let rule = self
            .rules
            .iter()
            .filter(lasting)
            .find(|rule| matches!(rule.fault, Fault::Delay(_) | Fault::Hold));
        rule.map(|rule| rule.fault.clone())
    }

    /// Returns whether answers to this command are held.
    pub fn holds(&self, command: &str) -> bool {
        // A rule that is used up still holds its answers until it is removed.
        let holding = |rule: &Rule| matches!(rule.fault, Fault::Hold);
        !self.ended
            && self.rules.iter().any(|r| (r.command == command || r.command == "*") && holding(r))
    }

    pub fn cut(&mut self, member: Option<usize>) {
        for (to, stream) in self.connections.values() {
            if member.is_none_or(|member| member == *to) {
                // It may be closed already.
                _ = stream.shutdown(Shutdown::Both);
            }
        }
    }

    /// Stores a cursor and returns its id.
    pub fn keep(&mut self, cursor: Cursor) -> Result<i64, Failure> {
        if self.cursors.len() >= CURSORS_MAX {
            return Err(Failure::bad_value("too many open cursors"));
        }
        self.next_cursor += 1;
        self.cursors.insert(self.next_cursor, cursor);
        Ok(self.next_cursor)
    }
}
