//! A run: a database, instances, writers and readers, and the judgement at its end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;

use crate::ask::Ask;
use crate::board::{Board, Instance};
use crate::explain::explain;
use crate::harness::{Config, Database, SOON, Server, await_until};
use crate::history::{Histories, History, Ns};
use crate::observation::{Observation, Purge, Seen, Wish};
use crate::reader::{Reader, Taste};
use crate::rows::{CREATE, Random, Sizes, payload};
use crate::rules::{Report, Terms, check};
use crate::writer::{Habit, Writer};

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
    /// Whether the database is in WAL mode and watched by triggers; else it has a rollback journal and is watched as a
    /// whole.
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

/// A run under way.
pub(crate) struct Run {
    pub(crate) plan: Plan,
    pub(crate) board: Arc<Board>,
    pub(crate) database: Database,
    pub(crate) servers: Vec<Server>,
    writers: Vec<JoinHandle<BTreeMap<u32, History>>>,
    readers: Vec<JoinHandle<Vec<Observation>>>,
    /// Changes the keys that are the test's own, and nothing by itself.
    own: Option<Writer>,
    pub(crate) purges: Vec<Purge>,
    pub(crate) observations: Vec<Observation>,
    pub(crate) histories: Histories,
}

impl Run {
    /// Creates the database: every seventh key has no row at first.
    pub(crate) fn new(plan: Plan) -> Self {
        let database = Database::new();
        if !plan.logged {
            database.execute("PRAGMA journal_mode = DELETE");
        }
        database.execute(CREATE);
        let histories = fill(&database.connection, plan, 0);
        let board = Arc::new(Board::new());
        let (writers, readers, servers) = (Vec::new(), Vec::new(), Vec::new());
        let (purges, observations) = (Vec::new(), Vec::new());
        Self { plan, board, database, servers, writers, readers, own: None, purges, observations, histories }
    }

    /// The configuration of an instance: everything that a client may ask is granted.
    pub(crate) fn config(&self) -> Config {
        Config::new(self.database.path())
            .collection("items")
            .set("collections.items.allow_no_cache", "true")
            .set("collections.items.allow_min_position", if self.plan.logged { "true" } else { "false" })
            .set("source.watch", if self.plan.logged { "\"triggers\"" } else { "\"none\"" })
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

    fn writer(&self, id: u8, keys: impl Iterator<Item = u32>) -> Writer {
        Writer {
            id,
            connection: self.writing_connection(),
            board: self.board.clone(),
            histories: keys.map(|key| (key, self.histories[key as usize].clone())).collect(),
            sizes: self.plan.sizes,
            habit: self.plan.habit,
            random: Random(u64::from(id) + 1),
            logged: self.plan.logged,
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
        keys.for_each(|key| own.commit(&[key]));
    }

    /// A connection for writers: no promise to survive a power failure, which would cost a sync per commit.
    pub(crate) fn writing_connection(&self) -> Connection {
        let connection = self.database.another();
        connection.execute_batch("PRAGMA synchronous = OFF").expect("no sync");
        connection
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
        let ended = self.writers.drain(..).map(|writer| writer.join().expect("a writer that did not fail"));
        let all: Vec<_> = ended.chain(self.own.take().map(|own| own.histories)).flatten().collect();
        all.into_iter().for_each(|(key, history)| self.histories[key as usize] = history);
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
        let rows = rows(&self.database.another());
        let mut reader = self.reader(Taste::plain());
        for instance in self.board.instances() {
            let keys: Vec<u32> = (0..self.plan.keys).collect();
            for keys in keys.chunks(100) {
                reader.ask(instance, &[Ask::Batch { keys: keys.to_vec(), wish: Wish::Any, post: false }]);
            }
            let singles = keys.iter().step_by(7).map(|key| Ask::One { key: *key, wish: Wish::Any, known: None });
            singles.for_each(|ask| reader.ask(instance, &[ask]));
        }
        let seen = reader.into_seen();
        for observation in &seen {
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
        Terms { max_staleness_ns: self.plan.max_staleness.as_nanos() as Ns, log }
    }
}

/// Gives the table its first rows, of this version.
pub(crate) fn fill(connection: &Connection, plan: Plan, version: u64) -> Histories {
    connection.execute_batch("BEGIN").expect("begin");
    let mut insert = connection.prepare("INSERT INTO items VALUES (?1, ?2, ?3)").expect("insert");
    let mut histories = Histories::new();
    for key in 0..plan.keys {
        let present = key % 7 != 3;
        if present {
            insert.execute((key, version.cast_signed(), payload(key, version, plan.sizes))).expect("a row");
        }
        histories.push(History::starting(present));
    }
    connection.execute_batch("COMMIT").expect("commit");
    histories
}

/// Key and version of every row.
fn rows(connection: &Connection) -> BTreeMap<u32, u64> {
    let mut statement = connection.prepare("SELECT id, version FROM items").expect("the table");
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned()))).expect("rows");
    rows.collect::<Result<_, _>>().expect("whole rows")
}
