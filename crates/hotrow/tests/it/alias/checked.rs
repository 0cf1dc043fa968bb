//! Writers move values between rows while readers look them up: every answer is checked against
//! the history of the writes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{Users, aliased, by, by_batch};
use crate::backend::maria::Maria;
use crate::backend::mongo::Mongo;
use crate::backend::postgres::Postgres;
use crate::histories::{self, Counts, Extent, Random, SHORT, Shared, bounded, long};
use hotrow_testkit::harness::{Client, Config, Server};

/// Rows that may have a value.
const IDS: u64 = 6;
/// Values; more than rows, so that some are free.
const VALUES: u64 = 8;

/// Rows by value.
type Owners = [Option<u64>; VALUES as usize];
type History = histories::History<Owners>;

/// A part of a change.
#[derive(Clone, Copy)]
pub(super) enum Step {
    Delete {
        id: u64,
    },
    Set {
        id: u64,
        value: u64,
        /// Number of the change.
        number: u64,
        exists: bool,
    },
}

/// A database whose writer moves values.
pub(super) trait Movers: Sync {
    /// Member of a record that is its key.
    const KEY: &str;

    /// Creates the users, without any.
    fn begin() -> Self;

    /// Returns the configuration with the aliases.
    fn aliased(&self) -> Config;

    /// Makes a change, all its steps at once.
    fn change(&self, steps: &[Step]);
}

impl<U: Users + Sync> Movers for U {
    const KEY: &str = "id";

    fn begin() -> Self {
        let database = U::with_users();
        database.execute("DELETE FROM users");
        database
    }

    fn aliased(&self) -> Config {
        aliased(self.service())
    }

    fn change(&self, steps: &[Step]) {
        let steps: Vec<String> = steps.iter().map(|step| sql(*step)).collect();
        match &steps[..] {
            [one] => self.execute(one),
            several => self.execute(&format!("BEGIN; {}; COMMIT", several.join("; "))),
        }
    }
}

fn sql(step: Step) -> String {
    match step {
        Step::Delete { id } => format!("DELETE FROM users WHERE id = {id}"),
        Step::Set { id, value, number, exists: true } => {
            format!("UPDATE users SET email = 'v{value}', note = '{number}' WHERE id = {id}")
        }
        Step::Set { id, value, number, exists: false } => {
            format!("INSERT INTO users VALUES ({id}, 'v{value}', 'f{id}', 'l{id}', '{number}')")
        }
    }
}

/// Makes a change of `rows`, the values by row, in the database and in the history.
fn write(
    database: &impl Movers,
    history: &History,
    random: &mut Random,
    rows: &mut [Option<u64>; IDS as usize],
    number: u64,
) {
    let id = random.below(IDS);
    let value = random.below(VALUES);
    let holder = rows.iter().position(|own| *own == Some(value));
    let exists = rows[id as usize].is_some();
    let set = Step::Set { id, value, number, exists };
    let steps = match holder {
        _ if exists && random.below(4) == 0 => {
            rows[id as usize] = None;
            vec![Step::Delete { id }]
        }
        Some(holder) if holder as u64 != id => {
            // Give the value away, and take it in one transaction.
            rows[holder] = None;
            rows[id as usize] = Some(value);
            vec![Step::Delete { id: holder as u64 }, set]
        }
        _ => {
            rows[id as usize] = Some(value);
            vec![set]
        }
    };
    let owners = std::array::from_fn(|value| {
        let id = rows.iter().position(|own| *own == Some(value as u64));
        id.map(|id| id as u64)
    });
    history.change(owners, || database.change(&steps));
    thread::sleep(Duration::from_millis(random.below(12)));
}

fn check<M: Movers>(
    history: &History,
    counts: &Counts,
    value: u64,
    record: Option<&serde_json::Value>,
    asked: Instant,
) {
    let owner = record.map(|record| record[M::KEY].as_u64().expect("an id"));
    if let Some(record) = record {
        assert_eq!(record["email"], format!("v{value}"), "{record}");
    }
    counts.add(owner.is_some());
    let is_right = |owners: &Owners| owners[value as usize] == owner;
    let state = history.find(asked, 0, owner.is_none(), is_right);
    assert!(state.is_some(), "v{value} was not of {owner:?}: {record:?}");
}

fn read<M: Movers>(
    server: &Server,
    history: &History,
    counts: &Counts,
    seed: u64,
    is_over: &AtomicBool,
) {
    let mut client = server.client();
    let mut random = Random(seed);
    while !is_over.load(Ordering::Relaxed) {
        let value = random.below(VALUES);
        let asked = Instant::now();
        if random.below(8) == 0 {
            batch::<M>(&mut client, history, counts);
            continue;
        }
        let headers = [("Cache-Control", "no-cache")];
        let headers = if random.below(10) == 0 { &headers[..] } else { &[] };
        let answer = client.get_with(&by(&format!("v{value}")), headers);
        match answer.status {
            _ if counts.is_refusal(&answer) => {}
            200 => check::<M>(history, counts, value, Some(&answer.json()), asked),
            404 => check::<M>(history, counts, value, None, asked),
            _ => panic!("{answer:?}"),
        }
    }
}

fn batch<M: Movers>(client: &mut Client, history: &History, counts: &Counts) {
    let asked = Instant::now();
    let names: Vec<String> = (0..VALUES).map(|value| format!("v{value}")).collect();
    let answer = client.get(&by_batch(&names.join(",")));
    if counts.is_refusal(&answer) {
        return;
    }
    let json = answer.json();
    for value in 0..VALUES {
        check::<M>(history, counts, value, json["items"].get(format!("v{value}")), asked);
    }
}

fn every_answer_is_one_that_the_writes_allow<M: Movers>(extent: &Extent) {
    let database = M::begin();
    let server = Server::start(&bounded(database.aliased()));
    let (mut random, mut rows) = (Random(1), [None; IDS as usize]);
    histories::run(
        extent,
        |history, number| write(&database, history, &mut random, &mut rows, number),
        |history, counts, seed, is_over| read::<M>(&server, history, counts, seed, is_over),
    );
}

checks! {
    over_postgresql:
        every_answer_is_one_that_the_writes_allow::<Postgres>(&SHORT);
    over_mariadb:
        every_answer_is_one_that_the_writes_allow::<Maria>(&SHORT);
    over_sqlite:
        every_answer_is_one_that_the_writes_allow::<Shared>(&SHORT);
    over_mongodb:
        every_answer_is_one_that_the_writes_allow::<Mongo>(&SHORT);
}

#[test]
#[ignore = "a million answers; ./test --long runs it"]
fn long_over_postgresql() {
    every_answer_is_one_that_the_writes_allow::<Postgres>(&long("alias-postgres-long"));
}

#[test]
#[ignore = "a million answers; ./test --long runs it"]
fn long_over_mariadb() {
    every_answer_is_one_that_the_writes_allow::<Maria>(&long("alias-mariadb-long"));
}

#[test]
#[ignore = "a million answers; ./test --long runs it"]
fn long_over_sqlite() {
    every_answer_is_one_that_the_writes_allow::<Shared>(&long("alias-sqlite-long"));
}

#[test]
#[ignore = "a million answers; ./test --long runs it"]
fn long_over_mongodb() {
    every_answer_is_one_that_the_writes_allow::<Mongo>(&long("alias-mongodb-long"));
}
