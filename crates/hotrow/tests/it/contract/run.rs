//! A run: a database, instances, writers, readers, and the check at its end.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::contract::ask::ReadRequest;
use crate::contract::board::{Board, Instance};
use crate::contract::check::Report;
use crate::contract::engine::Engine;
use crate::contract::faults::is_fresh;
use crate::contract::pushed::copies::CopyReader;
use crate::contract::pushed::followers::{Extent, Followed, FollowerThread};
use crate::contract::pushed::front::Front;
use crate::contract::pushed::has_redis;
use crate::contract::reader::{ReadProfile, Reader};
use crate::contract::rows::{Random, Sizes};
use crate::contract::sqlite::Sqlite;
use crate::contract::writer::{SharedHistories, WriteProfile, Writer};
use hotrow_testkit::harness::{Config, SOON, Server, await_until};
use hotrow_verify::history::{History, Ns};
use hotrow_verify::observation::{Claim, Observation, Purge, Requirement};
use hotrow_verify::rules::{ContractTerms, TokenTerms};

/// Default of `cache.max_staleness`.
pub(crate) const MAX_STALENESS: Duration = Duration::from_secs(1);
/// Most violations that are reported in full.
const EXPLANATIONS_MAX: usize = 3;

/// Parameters of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) keys: u32,
    pub(crate) sizes: Sizes,
    pub(crate) writers: u8,
    pub(crate) write_profile: WriteProfile,
    pub(crate) max_staleness: Duration,
    /// Number of keys, at the end of the range, that only the test changes.
    pub(crate) reserved: u32,
    /// SQLite: true for WAL mode with triggers; false for a rollback journal, with the file watched
    /// as a whole.
    pub(crate) logged: bool,
    /// SQLite: true to serve the table through a view.
    pub(crate) through_view: bool,
}

impl Default for Plan {
    fn default() -> Self {
        let sizes = Sizes { from: 100, to: 1900 };
        Self {
            keys: 3000,
            sizes,
            writers: 3,
            write_profile: WriteProfile::default(),
            max_staleness: MAX_STALENESS,
            reserved: 0,
            logged: true,
            through_view: false,
        }
    }
}

impl Plan {
    /// Returns true if the key has a row at first; every seventh has none.
    pub(crate) fn has_first_row(key: u32) -> bool {
        key % 7 != 3
    }

    /// Returns all keys in their first state.
    pub(crate) fn first_histories(&self) -> Vec<History> {
        (0..self.keys).map(|key| History::starting(Self::has_first_row(key))).collect()
    }
}

/// A run over SQLite.
pub(crate) type Run = Trial<Sqlite>;

/// A run in progress.
pub(crate) struct Trial<E: Engine> {
    pub(crate) plan: Plan,
    pub(crate) board: Arc<Board>,
    pub(crate) servers: Vec<Server>,
    pub(crate) database: E::Database,
    writers: Vec<JoinHandle<()>>,
    readers: Vec<JoinHandle<Vec<Observation>>>,
    followers: Vec<JoinHandle<(Vec<Observation>, Followed)>>,
    /// What the followers have got, once they have ended.
    pub(crate) followed: Vec<Followed>,
    /// A cache in front of the instances.
    pub(crate) front: Option<Front>,
    /// Writer that changes the reserved keys, driven by the test.
    test_writer: Option<Writer<E::Session>>,
    /// Histories of each writer.
    pub(crate) writer_histories: Vec<SharedHistories>,
    /// Ids of the logs that the database has had, for engines on which a restart begins another.
    pub(crate) logs: BTreeSet<u64>,
    pub(crate) purges: Vec<Purge>,
    pub(crate) observations: Vec<Observation>,
    /// Histories of all keys, indexed by key.
    pub(crate) histories: Vec<History>,
}

impl<E: Engine> Trial<E> {
    /// Creates the database.
    pub(crate) fn new(plan: Plan) -> Self {
        let database = E::create(&plan);
        let histories = plan.first_histories();
        let board = Arc::new(Board::new());
        Self {
            plan,
            board,
            database,
            servers: Vec::new(),
            writers: Vec::new(),
            readers: Vec::new(),
            followers: Vec::new(),
            followed: Vec::new(),
            front: None,
            test_writer: None,
            writer_histories: Vec::new(),
            logs: BTreeSet::new(),
            purges: Vec::new(),
            observations: Vec::new(),
            histories,
        }
    }

    /// Returns the configuration of an instance, with every client option enabled.
    pub(crate) fn config(&self) -> Config {
        E::config(&self.database, &self.plan)
            .collection("items")
            .set("collections.items.allow_no_cache", "true")
            .set("listen.workers", "2")
            .set("cache.capacity", "\"1MiB\"")
            .set("cache.max_staleness", &format!("\"{}ms\"", self.plan.max_staleness.as_millis()))
    }

    /// Starts an instance and adds it for readers.
    pub(crate) fn serve(&mut self, config: &Config, environment: &[(&str, &str)]) -> Instance {
        let instance = self.serve_unready(config, environment);
        self.server(instance).await_ready();
        instance
    }

    /// Like [`Self::serve`], without waiting until it is ready.
    pub(crate) fn serve_unready(
        &mut self,
        config: &Config,
        environment: &[(&str, &str)],
    ) -> Instance {
        let server = Server::start_with(config, environment);
        let instance = Instance {
            id: self.servers.len() as u16,
            data: server.data,
            admin: server.admin,
            redis: has_redis(config).then(|| server.redis()),
        };
        self.servers.push(server);
        self.board.add_instance(instance);
        instance
    }

    pub(crate) fn start_writers(&mut self) {
        let shared = self.plan.keys - self.plan.reserved;
        let writers = u32::from(self.plan.writers);
        for id in 0..self.plan.writers {
            let writer = self.writer(id, (0..shared).filter(|key| key % writers == u32::from(id)));
            self.writers.push(std::thread::spawn(move || writer.run()));
        }
        self.test_writer = Some(self.writer(self.plan.writers, shared..self.plan.keys));
    }

    fn writer(&mut self, id: u8, keys: impl Iterator<Item = u32>) -> Writer<E::Session> {
        let histories = keys.map(|key| (key, self.histories[key as usize].clone())).collect();
        let histories = SharedHistories::new(Mutex::new(histories));
        self.writer_histories.push(histories.clone());
        Writer {
            session: E::session(&self.database, &self.plan),
            board: self.board.clone(),
            histories,
            sizes: self.plan.sizes,
            write_profile: self.plan.write_profile,
            random: Random(u64::from(id) + 1),
        }
    }

    /// Returns the keys that only the test changes.
    pub(crate) fn reserved_keys(&self) -> std::ops::Range<u32> {
        self.plan.keys - self.plan.reserved..self.plan.keys
    }

    /// Changes each of the reserved keys.
    pub(crate) fn change_reserved(&mut self) {
        let keys = self.reserved_keys();
        let writer = self.test_writer.as_mut().expect("the writers were started");
        keys.for_each(|key| writer.change(key));
    }

    /// Changes one of the reserved keys.
    pub(crate) fn change(&mut self, key: u32) {
        self.test_writer.as_mut().expect("the writers were started").change(key);
    }

    pub(crate) fn start_readers(&mut self, count: u16, profile: ReadProfile) {
        for _ in 0..count {
            let reader = self.reader(profile);
            self.readers.push(std::thread::spawn(move || reader.run()));
        }
    }

    /// Starts readers over the Redis protocol.
    pub(crate) fn start_copy_readers(&mut self, count: u16) {
        for _ in 0..count {
            let id = self.next_reader();
            let Plan { keys, sizes, .. } = self.plan;
            let reader = CopyReader::new(id, keys, self.board.clone(), sizes);
            self.readers.push(std::thread::spawn(move || reader.run()));
        }
    }

    /// Starts a follower of the first of these instances.
    pub(crate) fn start_follower(&mut self, extent: Extent, instances: &[Instance]) {
        let id = self.next_reader();
        let reader = self.reader(ReadProfile::plain());
        let (keys, board) = (self.plan.keys, self.board.clone());
        let follower = FollowerThread::new(id, keys, (instances.to_vec(), extent), board, reader);
        self.followers.push(std::thread::spawn(move || follower.run()));
    }

    /// Starts a cache in front of the instances, and returns the configuration of the next one,
    /// which purges it.
    pub(crate) fn purged(&mut self, config: &Config) -> Config {
        if self.front.is_none() {
            let Plan { keys, sizes, .. } = self.plan;
            self.front = Some(Front::start(self.next_reader(), &self.board, keys, sizes));
        }
        let front = self.front.as_ref().expect("just started");
        front.purged_by(self.servers.len() as u16, config.clone())
    }

    fn next_reader(&self) -> u16 {
        (self.readers.len() + self.followers.len() + usize::from(self.front.is_some())) as u16
    }

    /// Creates a reader that the test drives.
    pub(crate) fn reader(&self, profile: ReadProfile) -> Reader {
        let id = self.next_reader();
        Reader::new(id, self.plan.keys, self.board.clone(), self.plan.sizes, profile)
    }

    /// Waits until this many reads and changes have been made.
    pub(crate) fn await_counts(&self, reads: u64, changes: u64, within: Duration) {
        let board = &self.board;
        let so_far =
            || (board.reads.load(Ordering::Relaxed), board.changes.load(Ordering::Relaxed));
        await_until(&format!("{reads} reads and {changes} changes"), within, || {
            assert!(self.readers.iter().all(|r| !r.is_finished()), "a reader has ended");
            assert!(self.writers.iter().all(|w| !w.is_finished()), "a writer has ended");
            let (read, changed) = so_far();
            read >= reads && changed >= changes
        });
    }

    /// Waits until this many more reads have been made.
    pub(crate) fn await_more_reads(&self, reads: u64) {
        let goal = self.board.reads.load(Ordering::Relaxed) + reads;
        self.await_counts(goal, 0, SOON);
    }

    pub(crate) fn writer_count(&self) -> usize {
        self.writers.len()
    }

    /// Ends the writers and takes over their histories.
    pub(crate) fn stop_writers(&mut self) {
        self.board.stop_writers();
        self.writers
            .drain(..)
            .for_each(|writer| writer.join().expect("a writer that did not fail"));
        self.test_writer = None;
        for shared in self.writer_histories.drain(..) {
            let histories = std::mem::take(&mut *shared.lock().expect("no panics here"));
            for (key, history) in histories {
                self.histories[key as usize] = history;
            }
        }
    }

    /// Ends the readers and takes over their observations.
    pub(crate) fn stop_readers(&mut self) {
        self.board.stop_readers();
        for reader in self.readers.drain(..) {
            self.observations.extend(reader.join().expect("a reader that did not fail"));
        }
        for follower in self.followers.drain(..) {
            let (seen, followed) = follower.join().expect("a follower that did not fail");
            self.observations.extend(seen);
            self.followed.push(followed);
        }
        if let Some(front) = &mut self.front {
            self.observations.extend(front.stop());
        }
    }

    /// Checks point 4: `max_staleness` after the last commit, every key of every instance equals
    /// the database.
    pub(crate) fn converged(&mut self) {
        let last =
            self.histories.iter().filter_map(|h| h.last().returned_ns()).max().unwrap_or_default();
        let due = last + self.plan.max_staleness.as_nanos() as Ns;
        await_until("max_staleness to pass", self.plan.max_staleness * 2, || {
            self.board.now() > due
        });
        let rows = E::rows(&self.database);
        let mut reader = self.reader(ReadProfile::plain());
        for instance in self.board.instances() {
            let keys: Vec<u32> = (0..self.plan.keys).collect();
            for keys in keys.chunks(100) {
                reader.send_until_fresh(
                    instance,
                    &ReadRequest::Batch {
                        keys: keys.to_vec(),
                        requirement: Requirement::Any,
                        post: false,
                    },
                );
            }
            let singles = keys.iter().step_by(7).map(|key| ReadRequest::plain(*key));
            singles.for_each(|request| reader.send_until_fresh(instance, &request));
        }
        let seen = reader.into_seen();
        // A refusal contains no record, and a stale answer need not equal the database.
        for observation in seen.iter().filter(|seen| is_fresh(seen)) {
            let expected = rows
                .get(&observation.key)
                .map_or(Claim::Absent, |version| Claim::Version(*version));
            assert_eq!(
                observation.seen, expected,
                "key {} still differs from the database",
                observation.key
            );
        }
        self.observations.extend(seen);
    }

    /// Judges all observations; reports the first violations and fails if there is one.
    pub(crate) fn judge(&self, terms: &ContractTerms) -> Report {
        let report = self.check(terms);
        let explanations = report.violations.iter().take(EXPLANATIONS_MAX);
        let explanations: Vec<String> =
            explanations.map(|violation| self.explain(violation)).collect();
        assert!(
            report.violations.is_empty(),
            "{} violations\n{}",
            report.violations.len(),
            explanations.join("\n")
        );
        report
    }

    /// Returns the contract's terms, with the log that the answers named.
    pub(crate) fn terms(&self) -> ContractTerms {
        let log = Some(self.board.log.load(Ordering::Relaxed)).filter(|log| *log != 0);
        let token_terms =
            |log| TokenTerms { log, exact: E::TOKENS_ARE_EXACT, may_end: E::RESTARTS_END_TOKENS };
        ContractTerms {
            max_staleness_ns: self.plan.max_staleness.as_nanos() as Ns,
            tokens: log.map(token_terms),
        }
    }
}
