//! A run: a database, instances, writers and readers, and the judgement at its end.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::ask::Ask;
use crate::board::{Board, Instance};
use crate::engine::Engine;
use crate::explain::explain;
use crate::faults::is_fresh;
use crate::harness::{Config, SOON, Server, await_until};
use crate::history::{Histories, History, Ns};
use crate::observation::{Observation, Purge, Seen, Wish};
use crate::reader::{Reader, Taste};
use crate::rows::{Random, Sizes};
use crate::rules::{Report, Terms, check};
use crate::sqlite::Sqlite;
use crate::writer::{Habit, Kept, Writer};

/// The default of `cache.max_staleness`.
pub(crate) const MAX_STALENESS: Duration = Duration::from_secs(1);
/// Violations that are told in full.
const STORIES_MAX: usize = 3;

/// What a run is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) keys: u32,
    pub(crate) sizes: Sizes,
    pub(crate) writers: u8,
    pub(crate) habit: Habit,
    pub(crate) max_staleness: Duration,
    /// So many keys at the end of the range are changed by the test alone.
    pub(crate) own: u32,
    /// SQLite: whether the database is in WAL mode and watched by triggers; else it has a rollback journal and is watched
    /// as a whole.
    pub(crate) logged: bool,
}

impl Default for Plan {
    fn default() -> Self {
        let sizes = Sizes { from: 100, to: 1900 };
        Self {
            keys: 3000,
            sizes,
            writers: 3,
            habit: Habit::default(),
            max_staleness: MAX_STALENESS,
            own: 0,
            logged: true,
        }
    }
}

impl Plan {
    /// Every seventh key has no row at first.
    pub(crate) fn has_first_row(key: u32) -> bool {
        key % 7 != 3
    }

    /// All keys in their first state.
    pub(crate) fn first_histories(&self) -> Histories {
        (0..self.keys).map(|key| History::starting(Self::has_first_row(key))).collect()
    }
}

/// A run over SQLite.
pub(crate) type Run = Trial<Sqlite>;

/// A run under way.
pub(crate) struct Trial<E: Engine> {
    pub(crate) plan: Plan,
    pub(crate) board: Arc<Board>,
    pub(crate) servers: Vec<Server>,
    pub(crate) database: E::Database,
    writers: Vec<JoinHandle<()>>,
    readers: Vec<JoinHandle<Vec<Observation>>>,
    /// Changes the keys that are the test's own, and nothing by itself.
    own: Option<Writer<E::Session>>,
    /// What the writers did, each for itself.
    pub(crate) kept: Vec<Kept>,
    pub(crate) purges: Vec<Purge>,
    pub(crate) observations: Vec<Observation>,
    pub(crate) histories: Histories,
}

impl<E: Engine> Trial<E> {
    /// Creates the database.
    pub(crate) fn new(plan: Plan) -> Self {
        Self::over(E::create(&plan), plan)
    }

    /// Over a database as [`Engine::create`] makes it.
    pub(crate) fn over(database: E::Database, plan: Plan) -> Self {
        let histories = plan.first_histories();
        let board = Arc::new(Board::new());
        let (writers, readers, servers, kept) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (purges, observations) = (Vec::new(), Vec::new());
        Self { plan, board, database, servers, writers, readers, own: None, kept, purges, observations, histories }
    }

    /// The configuration of an instance: everything that a client may ask is granted.
    pub(crate) fn config(&self) -> Config {
        E::config(&self.database, &self.plan)
            .collection("items")
            .set("collections.items.allow_no_cache", "true")
            .set("listen.workers", "2")
            .set("cache.capacity", "\"1MiB\"")
            .set("cache.max_staleness", &format!("\"{}ms\"", self.plan.max_staleness.as_millis()))
    }

    /// Starts an instance; readers find it.
    pub(crate) fn serve(&mut self, config: &Config, environment: &[(&str, &str)]) -> Instance {
        let server = Server::start_with(config, environment);
        server.await_ready();
        let instance = Instance { id: self.servers.len() as u8, data: server.data, admin: server.admin };
        self.servers.push(server);
        self.board.add_instance(instance);
        instance
    }

    pub(crate) fn start_writers(&mut self) {
        let (shared, writers) = (self.plan.keys - self.plan.own, u32::from(self.plan.writers));
        for id in 0..self.plan.writers {
            let writer = self.writer(id, (0..shared).filter(|key| key % writers == u32::from(id)));
            self.writers.push(std::thread::spawn(move || writer.run()));
        }
        self.own = Some(self.writer(self.plan.writers, shared..self.plan.keys));
    }

    fn writer(&mut self, id: u8, keys: impl Iterator<Item = u32>) -> Writer<E::Session> {
        let histories = keys.map(|key| (key, self.histories[key as usize].clone())).collect();
        let histories = Kept::new(Mutex::new(histories));
        self.kept.push(histories.clone());
        Writer {
            id,
            session: E::session(&self.database, &self.plan),
            board: self.board.clone(),
            histories,
            sizes: self.plan.sizes,
            habit: self.plan.habit,
            random: Random(u64::from(id) + 1),
        }
    }

    /// The keys that only the test changes.
    pub(crate) fn own_keys(&self) -> std::ops::Range<u32> {
        self.plan.keys - self.plan.own..self.plan.keys
    }

    /// Changes each of the test's own keys.
    pub(crate) fn change_own(&mut self) {
        let keys = self.own_keys();
        let own = self.own.as_mut().expect("the writers were started");
        keys.for_each(|key| own.change(key));
    }

    /// Changes one of the test's own keys.
    pub(crate) fn change(&mut self, key: u32) {
        self.own.as_mut().expect("the writers were started").change(key);
    }

    pub(crate) fn start_readers(&mut self, count: u16, taste: Taste) {
        for _ in 0..count {
            let reader = self.reader(taste);
            self.readers.push(std::thread::spawn(move || reader.run()));
        }
    }

    /// A reader that the test drives itself.
    pub(crate) fn reader(&self, taste: Taste) -> Reader {
        let id = self.readers.len() as u16;
        Reader::new(id, self.plan.keys, self.board.clone(), self.plan.sizes, taste)
    }

    /// Waits until so many reads and changes have been made.
    pub(crate) fn await_counts(&self, reads: u64, changes: u64, within: Duration) {
        let board = &self.board;
        let so_far = || (board.reads.load(Ordering::Relaxed), board.changes.load(Ordering::Relaxed));
        await_until(&format!("{reads} reads and {changes} changes"), within, || {
            assert!(self.readers.iter().all(|r| !r.is_finished()), "a reader gave up");
            assert!(self.writers.iter().all(|w| !w.is_finished()), "a writer gave up");
            let (read, changed) = so_far();
            read >= reads && changed >= changes
        });
    }

    /// Waits until so many more reads have been made.
    pub(crate) fn await_more_reads(&self, reads: u64) {
        let goal = self.board.reads.load(Ordering::Relaxed) + reads;
        self.await_counts(goal, 0, SOON);
    }

    pub(crate) fn writer_count(&self) -> usize {
        self.writers.len()
    }

    /// Ends the writers and takes their histories.
    pub(crate) fn stop_writers(&mut self) {
        self.board.stop_writers();
        self.writers.drain(..).for_each(|writer| writer.join().expect("a writer that did not fail"));
        self.own = None;
        for kept in self.kept.drain(..) {
            let kept = std::mem::take(&mut *kept.lock().expect("no panics here"));
            kept.into_iter().for_each(|(key, history)| self.histories[key as usize] = history);
        }
    }

    /// Ends the readers and takes what they saw.
    pub(crate) fn stop_readers(&mut self) {
        self.board.stop_readers();
        for reader in self.readers.drain(..) {
            self.observations.extend(reader.join().expect("a reader that did not fail"));
        }
    }

    /// Point 4: `max_staleness` after the last commit, every key of every instance equals the database.
    pub(crate) fn converged(&mut self) {
        let last = self.histories.iter().map(|h| h.last().returned_ns).max().unwrap_or_default();
        let due = last + self.plan.max_staleness.as_nanos() as Ns;
        await_until("max_staleness to pass", self.plan.max_staleness * 2, || self.board.now() > due);
        let rows = E::rows(&self.database);
        let mut reader = self.reader(Taste::plain());
        for instance in self.board.instances() {
            let keys: Vec<u32> = (0..self.plan.keys).collect();
            for keys in keys.chunks(100) {
                reader.ask_for_good(instance, &Ask::Batch { keys: keys.to_vec(), wish: Wish::Any, post: false });
            }
            let singles = keys.iter().step_by(7).map(|key| Ask::One { key: *key, wish: Wish::Any, known: None });
            singles.for_each(|ask| reader.ask_for_good(instance, &ask));
        }
        let seen = reader.into_seen();
        // A refusal says nothing of the database, and what is marked as stale nothing of now.
        for observation in seen.iter().filter(|seen| is_fresh(seen)) {
            let expected = rows.get(&observation.key).map_or(Seen::Absent, |version| Seen::Version(*version));
            assert_eq!(observation.seen, expected, "key {} differs from the database for good", observation.key);
        }
        self.observations.extend(seen);
    }

    /// Judges everything seen so far; tells the first violations and fails if there is one.
    pub(crate) fn judge(&self, terms: &Terms) -> Report {
        let report = check(&self.histories, &self.observations, &self.purges, terms);
        let stories = report.violations.iter().take(STORIES_MAX);
        let stories: Vec<String> =
            stories.map(|v| explain(v, &self.histories, &self.observations, &self.purges)).collect();
        assert!(report.violations.is_empty(), "{} violations\n{}", report.violations.len(), stories.join("\n"));
        report
    }

    /// The contract with the log that the answers named.
    pub(crate) fn terms(&self) -> Terms {
        let log = Some(self.board.log.load(Ordering::Relaxed)).filter(|log| *log != 0);
        let max_staleness_ns = self.plan.max_staleness.as_nanos() as Ns;
        Terms { max_staleness_ns, log, tokens_are_exact: E::TOKENS_ARE_EXACT }
    }
}
