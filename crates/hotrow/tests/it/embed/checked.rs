//! A writer changes parents and children while readers ask for records: every answer is a state of
//! the whole record that the history of the writes allows.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{LogsOldRows, embedding};
use crate::alias::Users;
use crate::alias::checked::{Random, Shared};
use crate::backend::postgres::Postgres;
use hotrow_testkit::harness::{Answer, Client, Server};

const PARENTS: u64 = 4;
const CHILDREN: u64 = 12;
/// Most children in one record, as configured.
const LIMIT: usize = 3;
const BOUND: Duration = Duration::from_millis(500);
/// Least time of a short run, and the time after which one without enough answers fails.
const RUN: std::ops::Range<Duration> = Duration::from_secs(4)..Duration::from_secs(60);
/// Time of a long run.
const LONG: Duration = Duration::from_secs(120);
const READERS: u64 = 3;

impl LogsOldRows for Shared {
    const OLD_ROWS_SQL: Option<&str> = None;
}

/// State of the tables, as the writer leaves them.
#[derive(Clone, Default)]
struct State {
    /// Number of the commit that wrote the parent.
    parents: [Option<u64>; PARENTS as usize],
    /// Parent and amount.
    children: [Option<(u64, u64)>; CHILDREN as usize],
}

impl State {
    /// Returns the record of a parent as JSON.
    fn record(&self, id: u64) -> Option<String> {
        let number = self.parents[id as usize]?;
        let of_parent = |(child, row): (usize, &Option<(u64, u64)>)| {
            row.filter(|(parent, _)| *parent == id).map(|(_, amount)| (u64::MAX - amount, child))
        };
        let mut children: Vec<(u64, usize)> =
            self.children.iter().enumerate().filter_map(of_parent).collect();
        children.sort_unstable();
        let child = |(rank, child): &(u64, usize)| {
            format!(r#"{{"region":"r{child}","amount":{}}}"#, u64::MAX - rank)
        };
        let children: Vec<String> = children.iter().take(LIMIT).map(child).collect();
        Some(format!(r#"{{"id":{id},"name":"n{number}","prices":[{}]}}"#, children.join(",")))
    }
}

/// One change: from the time before it was sent to the time after it returned, either state may be
/// seen.
struct Change {
    begun: Instant,
    ended: Instant,
    records: [Option<String>; PARENTS as usize],
}

/// The writes so far. Before the first there are no records.
#[derive(Default)]
struct History(Mutex<Vec<Change>>);

impl History {
    /// Returns the first state, not before `floor`, that this was at some time from `from` to `to`.
    fn state(
        &self,
        id: u64,
        record: Option<&str>,
        floor: usize,
        (from, to): (Instant, Instant),
    ) -> Option<usize> {
        let changes = self.0.lock().unwrap();
        // The newest state that was certainly in force at `from`, and all that may have been later.
        let first = changes.iter().rposition(|change| change.ended < from);
        if first.is_none() && floor == 0 && record.is_none() {
            return Some(0);
        }
        let later = changes.iter().enumerate().skip(first.unwrap_or(0).max(floor));
        let mut later = later.take_while(|(_, change)| change.begun <= to);
        let found = later.find(|(_, change)| change.records[id as usize].as_deref() == record);
        found.map(|(number, _)| number)
    }
}

/// Returns the SQL of one change, after it has been applied to the state.
fn change(state: &mut State, random: &mut Random, number: u64, empty: &str) -> String {
    let (parent, child) = (random.below(PARENTS), random.below(CHILDREN));
    let row = &mut state.children[child as usize];
    let of_child = match (*row, random.below(16)) {
        (_, 0) => {
            state.children = Default::default();
            empty.to_owned()
        }
        (Some(_), 1..4) => {
            *row = None;
            format!("DELETE FROM prices WHERE id = {child}")
        }
        (Some(_), _) => {
            *row = Some((parent, number));
            format!("UPDATE prices SET product_id = {parent}, amount = {number} WHERE id = {child}")
        }
        (None, _) => {
            *row = Some((parent, number));
            format!("INSERT INTO prices VALUES ({child}, {parent}, 'r{child}', {number})")
        }
    };
    if random.below(3) > 0 {
        return of_child;
    }
    let of_parent = match (state.parents[parent as usize], random.below(4)) {
        (Some(_), 0) => {
            state.parents[parent as usize] = None;
            format!("DELETE FROM products WHERE id = {parent}")
        }
        (before, _) => {
            state.parents[parent as usize] = Some(number);
            match before {
                Some(_) => format!("UPDATE products SET name = 'n{number}' WHERE id = {parent}"),
                None => format!("INSERT INTO products VALUES ({parent}, 'n{number}')"),
            }
        }
    };
    format!("BEGIN; {of_parent}; {of_child}; COMMIT")
}

fn write<U: Users + LogsOldRows>(database: &U, history: &History, is_over: &AtomicBool) {
    let mut random = Random(1);
    let mut state = State::default();
    // All children go at once: with TRUNCATE where the engine has it.
    let empty = if U::OLD_ROWS_SQL.is_some() { "TRUNCATE prices" } else { "DELETE FROM prices" };
    for number in 1.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let sql = change(&mut state, &mut random, number, empty);
        let records = std::array::from_fn(|id| state.record(id as u64));
        let begun = Instant::now();
        // Readers may see the change before it returns.
        history.0.lock().unwrap().push(Change { begun, ended: begun + LONG * 10, records });
        database.execute(&sql);
        let ended = Instant::now();
        history.0.lock().unwrap().last_mut().unwrap().ended = ended;
        thread::sleep(Duration::from_millis(random.below(12)));
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
        is_over(&self.found, 1_000)
            && is_over(&self.absent, 50)
            && is_over(&self.from_memory, 200)
            && history.0.lock().unwrap().len() > 100
    }
}

/// One reader, with the newest state of each record that it was answered.
struct Reader<'a> {
    client: Client,
    history: &'a History,
    counts: &'a Counts,
    floors: [usize; PARENTS as usize],
}

impl Reader<'_> {
    fn check(&mut self, id: u64, record: Option<&str>, asked: Instant) {
        match record {
            Some(_) => self.counts.found.fetch_add(1, Ordering::Relaxed),
            None => self.counts.absent.fetch_add(1, Ordering::Relaxed),
        };
        // The reader and the database share a clock.
        let span = (asked.checked_sub(BOUND).unwrap_or(asked), Instant::now());
        let floor = &mut self.floors[id as usize];
        match self.history.state(id, record, *floor, span) {
            Some(state) => *floor = state,
            None => panic!("product {id} was not {record:?} since state {floor}"),
        }
    }

    fn one(&mut self, id: u64, headers: &[(&str, &str)]) {
        let asked = Instant::now();
        let answer = self.client.get_with(&format!("/products/{id}"), headers);
        match answer.status {
            200 => self.check(id, Some(&answer.text()), asked),
            404 => self.check(id, None, asked),
            503 | 504 => _ = self.counts.refused.fetch_add(1, Ordering::Relaxed),
            _ => panic!("{answer:?}"),
        }
        self.counts.from_memory.fetch_add((answer.cache() == "hit").into(), Ordering::Relaxed);
    }

    fn batch(&mut self) {
        let asked = Instant::now();
        let names: Vec<String> = (0..PARENTS).map(|id| id.to_string()).collect();
        let answer: Answer = self.client.get(&format!("/products?ids={}", names.join(",")));
        if answer.status != 200 {
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let text = answer.text();
        for id in 0..PARENTS {
            // The records are in the order of the ids, each as it would be alone.
            let start = text.find(&format!("\"{id}\":{{\"id\":{id},"));
            let record = start.map(|at| &text[at + format!("\"{id}\":").len()..]);
            let end = record.map(|record| record.find("]}").expect("the end of the children") + 2);
            self.check(id, record.zip(end).map(|(record, end)| &record[..end]), asked);
        }
    }

    fn run(&mut self, seed: u64, is_over: &AtomicBool) {
        let mut random = Random(seed);
        while !is_over.load(Ordering::Relaxed) {
            let id = random.below(PARENTS);
            match random.below(12) {
                0 => self.batch(),
                1 => self.one(id, &[("Cache-Control", "no-cache")]),
                _ => self.one(id, &[]),
            }
        }
    }
}

/// `is_precise`: the log has the old rows of children.
fn every_answer_is_a_state_of_the_record<U>(is_precise: bool, least: Duration)
where
    U: Users + LogsOldRows + Sync,
{
    let database = super::with_prices::<U>();
    database.execute("DELETE FROM prices");
    database.execute("DELETE FROM products");
    if let Some(sql) = U::OLD_ROWS_SQL.filter(|_| is_precise) {
        database.execute(sql);
    }
    let bound = format!("\"{}ms\"", BOUND.as_millis());
    let config = embedding(database.service()).set("cache.max_staleness", &bound);
    let server = Server::start(&config);
    let (history, counts, is_over) =
        (History::default(), Counts::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        let writer = scope.spawn(|| write(&database, &history, &is_over));
        let readers: Vec<_> = (1..=READERS)
            .map(|seed| {
                let (client, history, counts) = (server.client(), &history, &counts);
                let mut reader = Reader { client, history, counts, floors: Default::default() };
                let is_over = &is_over;
                scope.spawn(move || reader.run(seed, is_over))
            })
            .collect();
        let begun = Instant::now();
        let is_enough = || begun.elapsed() >= least && counts.are_enough(&history);
        let has_failed = || readers.iter().any(thread::ScopedJoinHandle::is_finished);
        while !is_enough() && !has_failed() && begun.elapsed() < RUN.end.max(least) {
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
fn over_postgresql_with_old_rows() {
    every_answer_is_a_state_of_the_record::<Postgres>(true, RUN.start);
}

#[test]
fn over_postgresql_without_old_rows() {
    every_answer_is_a_state_of_the_record::<Postgres>(false, RUN.start);
}

#[test]
fn over_sqlite() {
    every_answer_is_a_state_of_the_record::<Shared>(true, RUN.start);
}

#[test]
#[ignore = "takes two minutes each; ./test --long runs it"]
fn long_over_each() {
    every_answer_is_a_state_of_the_record::<Postgres>(true, LONG);
    every_answer_is_a_state_of_the_record::<Postgres>(false, LONG);
    every_answer_is_a_state_of_the_record::<Shared>(true, LONG);
}
