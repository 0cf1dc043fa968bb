//! Writers move values between rows while readers look them up: every answer is checked against
//! the history of the writes.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{Users, aliased, by, by_batch};
use hotrow_testkit::harness::{Answer, Client, Config, Database, Server};

use crate::backend::maria::Maria;
use crate::backend::postgres::Postgres;

/// Rows that may have a value.
const IDS: u64 = 6;
/// Values; more than rows, so that some are free.
const VALUES: u64 = 8;
const BOUND: Duration = Duration::from_millis(500);
/// Least time of a run, and the time after which one without enough answers fails.
const RUN: std::ops::Range<Duration> = Duration::from_secs(4)..Duration::from_secs(60);
const READERS: u64 = 3;

/// One change: from the time before it was sent to the time after it returned, either state may be
/// seen.
struct Change {
    begun: Instant,
    ended: Instant,
    /// Rows by value after it.
    owners: [Option<u64>; VALUES as usize],
}

/// The writes so far. The state before the first has no owners.
#[derive(Default)]
struct History(Mutex<Vec<Change>>);

impl History {
    /// Returns whether a value had this owner at some time from `from` to `to`.
    fn had(&self, value: u64, owner: Option<u64>, (from, to): (Instant, Instant)) -> bool {
        let changes = self.0.lock().unwrap();
        let of = |change: &Change| change.owners[value as usize] == owner;
        // The newest state that was certainly in force at `from`, and all that may have been later.
        let first = changes.iter().rposition(|change| change.ended < from);
        if first.is_none() && owner.is_none() {
            return true;
        }
        let later = changes.iter().skip(first.unwrap_or(0));
        later.take_while(|change| change.begun <= to).any(of)
    }
}

/// Random numbers (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

fn write<U: Users>(database: &U, history: &History, is_over: &AtomicBool) {
    let mut random = Random(1);
    let mut rows: [Option<u64>; IDS as usize] = [None; IDS as usize];
    let mut number = 0;
    while !is_over.load(Ordering::Relaxed) {
        number += 1;
        let id = random.below(IDS);
        let value = random.below(VALUES);
        let holder = rows.iter().position(|own| *own == Some(value));
        let sql = match (rows[id as usize], holder) {
            (Some(_), _) if random.below(4) == 0 => {
                rows[id as usize] = None;
                format!("DELETE FROM users WHERE id = {id}")
            }
            (_, Some(holder)) if holder as u64 != id => {
                // Give the value away, and take it in one transaction.
                rows[holder] = None;
                let had = rows[id as usize].replace(value).is_some();
                let take = set(id, value, number, had);
                format!("BEGIN; DELETE FROM users WHERE id = {holder}; {take}; COMMIT")
            }
            (own, _) => {
                rows[id as usize] = Some(value);
                set(id, value, number, own.is_some())
            }
        };
        let owners = std::array::from_fn(|value| {
            let id = rows.iter().position(|own| *own == Some(value as u64));
            id.map(|id| id as u64)
        });
        let begun = Instant::now();
        // Readers may see the change before it returns.
        history.0.lock().unwrap().push(Change { begun, ended: begun + RUN.end * 10, owners });
        database.execute(&sql);
        let ended = Instant::now();
        history.0.lock().unwrap().last_mut().unwrap().ended = ended;
        thread::sleep(Duration::from_millis(random.below(12)));
    }
}

fn set(id: u64, value: u64, number: u64, exists: bool) -> String {
    match exists {
        true => format!("UPDATE users SET email = 'v{value}', note = '{number}' WHERE id = {id}"),
        false => {
            format!("INSERT INTO users VALUES ({id}, 'v{value}', 'f{id}', 'l{id}', '{number}')")
        }
    }
}

/// Counts of the answers.
#[derive(Default)]
struct Counts {
    found: AtomicU64,
    absent: AtomicU64,
    from_memory: AtomicU64,
    refused: AtomicU64,
}

impl Counts {
    /// Returns whether they prove something.
    fn are_enough(&self, history: &History) -> bool {
        let is_over = |count: &AtomicU64, least| count.load(Ordering::Relaxed) > least;
        is_over(&self.found, 300)
            && is_over(&self.absent, 300)
            && is_over(&self.from_memory, 100)
            && history.0.lock().unwrap().len() > 30
    }
}

fn check(
    history: &History,
    counts: &Counts,
    value: u64,
    record: Option<&serde_json::Value>,
    asked: Instant,
) {
    let owner = record.map(|record| record["id"].as_u64().expect("an id"));
    if let Some(record) = record {
        assert_eq!(record["email"], format!("v{value}"), "{record}");
        counts.found.fetch_add(1, Ordering::Relaxed);
    } else {
        counts.absent.fetch_add(1, Ordering::Relaxed);
    }
    // The reader and the database share a clock.
    let span = (asked.checked_sub(BOUND).unwrap_or(asked), Instant::now());
    assert!(history.had(value, owner, span), "v{value} was not of {owner:?}: {record:?}");
}

fn read(server: &Server, history: &History, counts: &Counts, seed: u64, is_over: &AtomicBool) {
    let mut client = server.client();
    let mut random = Random(seed);
    let count = |answer: &Answer| {
        let is_hit = answer.cache() == "hit";
        counts.from_memory.fetch_add(is_hit.into(), Ordering::Relaxed);
    };
    while !is_over.load(Ordering::Relaxed) {
        let value = random.below(VALUES);
        let asked = Instant::now();
        if random.below(8) == 0 {
            batch(&mut client, history, counts);
            continue;
        }
        let headers = [("Cache-Control", "no-cache")];
        let headers = if random.below(10) == 0 { &headers[..] } else { &[] };
        let answer = client.get_with(&by(&format!("v{value}")), headers);
        match answer.status {
            200 => check(history, counts, value, Some(&answer.json()), asked),
            404 => check(history, counts, value, None, asked),
            503 => _ = counts.refused.fetch_add(1, Ordering::Relaxed),
            _ => panic!("{answer:?}"),
        }
        count(&answer);
    }
}

fn batch(client: &mut Client, history: &History, counts: &Counts) {
    let asked = Instant::now();
    let names: Vec<String> = (0..VALUES).map(|value| format!("v{value}")).collect();
    let answer = client.get(&by_batch(&names.join(",")));
    if answer.status == 503 {
        counts.refused.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let json = answer.json();
    for value in 0..VALUES {
        check(history, counts, value, json["items"].get(format!("v{value}")), asked);
    }
}

fn every_answer_is_one_that_the_writes_allow<U: Users + Sync>() {
    let database = U::with_users();
    database.execute("DELETE FROM users");
    let bound = format!("\"{}ms\"", BOUND.as_millis());
    let config = aliased(database.service()).set("cache.max_staleness", &bound);
    let server = Server::start(&config);
    let (history, counts, is_over) =
        (History::default(), Counts::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        let writer = scope.spawn(|| write(&database, &history, &is_over));
        let readers: Vec<_> = (1..=READERS)
            .map(|seed| {
                let (server, history, counts, is_over) = (&server, &history, &counts, &is_over);
                scope.spawn(move || read(server, history, counts, seed, is_over))
            })
            .collect();
        let begun = Instant::now();
        let is_enough = || begun.elapsed() >= RUN.start && counts.are_enough(&history);
        let has_failed = || readers.iter().any(thread::ScopedJoinHandle::is_finished);
        while !is_enough() && !has_failed() && begun.elapsed() < RUN.end {
            thread::sleep(Duration::from_millis(20));
        }
        is_over.store(true, Ordering::Relaxed);
        writer.join().expect("the writer ends");
        readers.into_iter().for_each(|reader| reader.join().expect("no violation"));
    });
    let total = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let writes = history.0.lock().unwrap().len();
    let (found, absent) = (total(&counts.found), total(&counts.absent));
    let (memory, refused) = (total(&counts.from_memory), total(&counts.refused));
    println!("{writes} writes, {found} found, {absent} absent, {memory} hits, {refused} refused");
    assert!(counts.are_enough(&history), "too few to prove anything");
    assert!(refused * 20 < found + absent, "{refused} of {found} and {absent}");
}

#[test]
fn over_postgresql() {
    every_answer_is_one_that_the_writes_allow::<Postgres>();
}

#[test]
fn over_mariadb() {
    every_answer_is_one_that_the_writes_allow::<Maria>();
}

#[test]
fn over_sqlite() {
    every_answer_is_one_that_the_writes_allow::<Shared>();
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
