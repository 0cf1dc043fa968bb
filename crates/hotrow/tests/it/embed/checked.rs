//! A writer changes parents and children while readers ask for records: every answer is a state of
//! the whole record that the history of the writes allows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{LogsOldRows, embedding};
use crate::alias::Users;
use crate::backend::maria::Maria;
use crate::backend::postgres::Postgres;
use crate::histories::{self, Counts, Extent, Random, SHORT, Shared, bounded, long};
use hotrow_testkit::harness::{Answer, Client, Server};

const PARENTS: u64 = 4;
const CHILDREN: u64 = 12;
/// Most children in one record, as configured.
const LIMIT: usize = 3;

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

type Records = [Option<String>; PARENTS as usize];
type History = histories::History<Records>;

/// Returns the SQL of one change, after it has been applied to the state. `empty` deletes all
/// children at once, also in a transaction if that is true.
fn change(state: &mut State, random: &mut Random, number: u64, empty: (&str, bool)) -> String {
    let (parent, child) = (random.below(PARENTS), random.below(CHILDREN));
    let row = &mut state.children[child as usize];
    let of_child = match (*row, random.below(16)) {
        (_, 0) => {
            state.children = Default::default();
            if !empty.1 {
                return empty.0.to_owned();
            }
            empty.0.to_owned()
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

/// One reader, with the newest state of each record that it was answered.
struct Reader<'a> {
    client: Client,
    history: &'a History,
    counts: &'a Counts,
    floors: [usize; PARENTS as usize],
}

impl Reader<'_> {
    fn check(&mut self, id: u64, record: Option<&str>, asked: Instant) {
        self.counts.add(record.is_some());
        let floor = &mut self.floors[id as usize];
        let is_right = |records: &Records| records[id as usize].as_deref() == record;
        match self.history.find(asked, *floor, record.is_none(), is_right) {
            Some(state) => *floor = state,
            None => panic!("product {id} was not {record:?} since state {floor}"),
        }
    }

    fn one(&mut self, id: u64, headers: &[(&str, &str)]) {
        let asked = Instant::now();
        let answer = self.client.get_with(&format!("/products/{id}"), headers);
        match answer.status {
            _ if self.counts.is_refusal(&answer) => {}
            200 => self.check(id, Some(&answer.text()), asked),
            404 => self.check(id, None, asked),
            _ => panic!("{answer:?}"),
        }
    }

    fn batch(&mut self) {
        let asked = Instant::now();
        let names: Vec<String> = (0..PARENTS).map(|id| id.to_string()).collect();
        let answer: Answer = self.client.get(&format!("/products?ids={}", names.join(",")));
        if self.counts.is_refusal(&answer) {
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
fn every_answer_is_a_state_of_the_record<U>(is_precise: bool, extent: &Extent)
where
    U: Users + LogsOldRows + Sync,
{
    let database = super::with_prices::<U>();
    database.execute("DELETE FROM prices");
    database.execute("DELETE FROM products");
    if let Some(sql) = U::OLD_ROWS_SQL.filter(|_| is_precise) {
        database.execute(sql);
    }
    let server = Server::start(&bounded(embedding(database.service())));
    let (mut random, mut state) = (Random(1), State::default());
    histories::run(
        extent,
        |history, number| {
            let sql = change(&mut state, &mut random, number, U::EMPTY_SQL);
            // Half of the changes, where it is a choice of the session.
            let is_blind = !is_precise && number.is_multiple_of(2);
            let sql = if is_blind { format!("{}{sql}", U::BLIND_SESSION_SQL) } else { sql };
            let records = std::array::from_fn(|id| state.record(id as u64));
            history.change(records, || database.execute(&sql));
            thread::sleep(Duration::from_millis(random.below(12)));
        },
        |history, counts, seed, is_over| {
            let client = server.client();
            Reader { client, history, counts, floors: Default::default() }.run(seed, is_over);
        },
    );
}

checks! {
    over_postgresql_with_old_rows:
        every_answer_is_a_state_of_the_record::<Postgres>(true, &SHORT);
    over_postgresql_without_old_rows:
        every_answer_is_a_state_of_the_record::<Postgres>(false, &SHORT);
    /// Half of the sessions log no old rows.
    over_mariadb:
        every_answer_is_a_state_of_the_record::<Maria>(false, &SHORT);
    over_sqlite:
        every_answer_is_a_state_of_the_record::<Shared>(true, &SHORT);
}

#[test]
#[ignore = "a million answers of each; ./test --long runs it"]
fn long_over_each() {
    every_answer_is_a_state_of_the_record::<Postgres>(true, &long("embed-postgres-full-long"));
    every_answer_is_a_state_of_the_record::<Postgres>(false, &long("embed-postgres-long"));
    every_answer_is_a_state_of_the_record::<Shared>(true, &long("embed-sqlite-long"));
}

#[test]
#[ignore = "a million answers twice; ./test --long runs it"]
fn long_over_mariadb() {
    every_answer_is_a_state_of_the_record::<Maria>(true, &long("embed-mariadb-full-long"));
    every_answer_is_a_state_of_the_record::<Maria>(false, &long("embed-mariadb-long"));
}
