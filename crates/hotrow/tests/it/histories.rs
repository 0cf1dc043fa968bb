//! Runs of one writer and several readers, whose answers are checked against the history of the
//! writes: shared by the tests of aliases and of embedded rows, whose states differ.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::contract::mix::save_summary;
pub(crate) use hotrow_measure::random::SplitMix64 as Random;
use hotrow_testkit::harness::{Answer, Config, Database};

use crate::alias::Users;

/// The staleness bound.
pub(crate) const BOUND: Duration = Duration::from_millis(500);
const READERS: u64 = 3;
/// Time that no run exceeds.
const RUN_MAX: Duration = Duration::from_hours(1);

/// Extent of a run.
pub(crate) struct Extent {
    /// Least time, and the time after which a run without enough answers fails.
    time: std::ops::Range<Duration>,
    /// Least answers.
    answers: u64,
    /// Name of the kept result.
    name: Option<&'static str>,
}

/// Extent of a run in the tests of each change.
pub(crate) const SHORT: Extent =
    Extent { time: Duration::from_secs(4)..Duration::from_secs(60), answers: 1_000, name: None };

/// Returns the extent of an acceptance run.
pub(crate) fn long(name: &'static str) -> Extent {
    let time = Duration::from_secs(60)..Duration::from_mins(40);
    Extent { time, answers: 1_000_000, name: Some(name) }
}

/// One change, recorded before it is sent: until it has returned, either state may be seen.
struct Change<S> {
    ended: Instant,
    state: S,
}

/// The writes so far. Before the first, nothing is there.
pub(crate) struct History<S>(Mutex<Vec<Change<S>>>);

impl<S> History<S> {
    /// Makes a change, which `act` executes; its state may be seen before that returns.
    pub(crate) fn change(&self, state: S, act: impl FnOnce()) {
        let ended = Instant::now() + RUN_MAX;
        self.0.lock().unwrap().push(Change { ended, state });
        act();
        self.0.lock().unwrap().last_mut().unwrap().ended = Instant::now();
    }

    /// Returns the number of the first state, not before `floor`, that was in force at some time
    /// since the bound before `asked`, and in which the answer is right. `is_absent`: it is also
    /// right before the first change.
    pub(crate) fn find(
        &self,
        asked: Instant,
        floor: usize,
        is_absent: bool,
        is_right: impl Fn(&S) -> bool,
    ) -> Option<usize> {
        // The readers and the database share a clock.
        let from = asked.checked_sub(BOUND).unwrap_or(asked);
        let changes = self.0.lock().unwrap();
        // The newest state that was certainly in force then, and all that may have been later. A
        // change that is recorded was begun by now.
        let first = changes.iter().rposition(|change| change.ended < from);
        if first.is_none() && floor == 0 && is_absent {
            return Some(0);
        }
        let mut later = changes.iter().enumerate().skip(first.unwrap_or(0).max(floor));
        later.find(|(_, change)| is_right(&change.state)).map(|(number, _)| number)
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// Counts of the answers.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) found: AtomicU64,
    pub(crate) absent: AtomicU64,
    pub(crate) from_memory: AtomicU64,
    pub(crate) refused: AtomicU64,
}

impl Counts {
    pub(crate) fn add(&self, is_found: bool) {
        let counter = if is_found { &self.found } else { &self.absent };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a refusal; true if the answer is one.
    pub(crate) fn is_refusal(&self, answer: &Answer) -> bool {
        let is_refusal = matches!(answer.status, 503 | 504);
        self.refused.fetch_add(is_refusal.into(), Ordering::Relaxed);
        self.from_memory.fetch_add((answer.cache() == "hit").into(), Ordering::Relaxed);
        is_refusal
    }

    /// Returns whether they prove something.
    fn are_enough(&self, least: u64, writes: usize) -> bool {
        let [found, absent, from_memory, _] = self.totals();
        found + absent > least && found > 300 && absent > 50 && from_memory > 100 && writes > 30
    }

    fn totals(&self) -> [u64; 4] {
        [&self.found, &self.absent, &self.from_memory, &self.refused]
            .map(|count| count.load(Ordering::Relaxed))
    }
}

/// Runs `write` for one change after the other, and `read` in each reader, by its number, until
/// `is_over`. A reader panics at the first violation.
pub(crate) fn run<S: Send>(
    extent: &Extent,
    mut write: impl FnMut(&History<S>, u64) + Send,
    read: impl Fn(&History<S>, &Counts, u64, &AtomicBool) + Sync,
) {
    let (history, counts, is_over) =
        (History(Mutex::new(Vec::new())), Counts::default(), AtomicBool::new(false));
    let begun = Instant::now();
    thread::scope(|scope| {
        let (history, counts, is_over, read) = (&history, &counts, &is_over, &read);
        let writer = scope.spawn(move || {
            for number in 1.. {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                write(history, number);
            }
        });
        let readers: Vec<_> = (1..=READERS)
            .map(|seed| scope.spawn(move || read(history, counts, seed, is_over)))
            .collect();
        let Extent { time, answers, .. } = extent;
        let is_enough =
            || begun.elapsed() >= time.start && counts.are_enough(*answers, history.len());
        let has_failed = || readers.iter().any(thread::ScopedJoinHandle::is_finished);
        while !is_enough() && !has_failed() && begun.elapsed() < time.end {
            thread::sleep(Duration::from_millis(20));
        }
        is_over.store(true, Ordering::Relaxed);
        writer.join().expect("the writer ends");
        readers.into_iter().for_each(|reader| reader.join().expect("no violation"));
    });
    let writes = history.len();
    let [found, absent, memory, refused] = counts.totals();
    println!("{writes} writes, {found} found, {absent} absent, {memory} hits, {refused} refused");
    assert!(counts.are_enough(extent.answers, writes), "too few to prove anything");
    assert!(refused * 20 < found + absent, "{refused} of {found} and {absent}");
    if let Some(name) = extent.name {
        let summary = serde_json::json!({
            "schema": "hotrow.histories/1",
            "run": name,
            "took_s": begun.elapsed().as_secs_f64(),
            "changes": writes,
            "reads": found + absent,
            "absent": absent,
            "from_memory": memory,
            "refused": refused,
            "violations": 0,
        });
        save_summary(name, &summary);
    }
}

/// Returns the configuration with the bound that the answers are checked by.
pub(crate) fn bounded(config: Config) -> Config {
    config.set("cache.max_staleness", &format!("\"{}ms\"", BOUND.as_millis()))
}

/// A file for several threads: a connection of SQLite is of one at a time.
pub(crate) struct Shared(Mutex<Database>);

impl Users for Shared {
    const TEXT: &str = Database::TEXT;

    fn open() -> Self {
        Self(Mutex::new(Database::new()))
    }

    fn service(&self) -> Config {
        self.0.lock().unwrap().service()
    }

    fn execute(&self, sql: &str) {
        Users::execute(&*self.0.lock().unwrap(), sql);
    }
}
