//! Writers move values between rows while readers look them up: every answer is checked against
//! the history of the writes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{Users, aliased, by, by_batch};
use crate::backend::maria::Maria;
use crate::backend::postgres::Postgres;
use crate::histories::{self, Counts, Extent, Random, SHORT, Shared, bounded, long};
use hotrow_testkit::harness::{Client, Server};

/// Rows that may have a value.
const IDS: u64 = 6;
/// Values; more than rows, so that some are free.
const VALUES: u64 = 8;

/// Rows by value.
type Owners = [Option<u64>; VALUES as usize];
type History = histories::History<Owners>;

/// Makes a change of `rows`, the values by row, in the database and in the history.
fn write(
    database: &impl Users,
    history: &History,
    random: &mut Random,
    rows: &mut [Option<u64>; IDS as usize],
    number: u64,
) {
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
    history.change(owners, || database.execute(&sql));
    thread::sleep(Duration::from_millis(random.below(12)));
}

fn set(id: u64, value: u64, number: u64, exists: bool) -> String {
    match exists {
        true => format!("UPDATE users SET email = 'v{value}', note = '{number}' WHERE id = {id}"),
        false => {
            format!("INSERT INTO users VALUES ({id}, 'v{value}', 'f{id}', 'l{id}', '{number}')")
        }
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
    }
    counts.add(owner.is_some());
    let is_right = |owners: &Owners| owners[value as usize] == owner;
    let state = history.find(asked, 0, owner.is_none(), is_right);
    assert!(state.is_some(), "v{value} was not of {owner:?}: {record:?}");
}

fn read(server: &Server, history: &History, counts: &Counts, seed: u64, is_over: &AtomicBool) {
    let mut client = server.client();
    let mut random = Random(seed);
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
            _ if counts.is_refusal(&answer) => {}
            200 => check(history, counts, value, Some(&answer.json()), asked),
            404 => check(history, counts, value, None, asked),
            _ => panic!("{answer:?}"),
        }
    }
}

fn batch(client: &mut Client, history: &History, counts: &Counts) {
    let asked = Instant::now();
    let names: Vec<String> = (0..VALUES).map(|value| format!("v{value}")).collect();
    let answer = client.get(&by_batch(&names.join(",")));
    if counts.is_refusal(&answer) {
        return;
    }
    let json = answer.json();
    for value in 0..VALUES {
        check(history, counts, value, json["items"].get(format!("v{value}")), asked);
    }
}

fn every_answer_is_one_that_the_writes_allow<U: Users + Sync>(extent: &Extent) {
    let database = U::with_users();
    database.execute("DELETE FROM users");
    let server = Server::start(&bounded(aliased(database.service())));
    let (mut random, mut rows) = (Random(1), [None; IDS as usize]);
    histories::run(
        extent,
        |history, number| write(&database, history, &mut random, &mut rows, number),
        |history, counts, seed, is_over| read(&server, history, counts, seed, is_over),
    );
}

#[test]
fn over_postgresql() {
    every_answer_is_one_that_the_writes_allow::<Postgres>(&SHORT);
}

#[test]
fn over_mariadb() {
    every_answer_is_one_that_the_writes_allow::<Maria>(&SHORT);
}

#[test]
fn over_sqlite() {
    every_answer_is_one_that_the_writes_allow::<Shared>(&SHORT);
}

#[test]
#[ignore = "a million answers of each engine; ./test --long runs it"]
fn long_over_each() {
    every_answer_is_one_that_the_writes_allow::<Postgres>(&long("alias-postgres-long"));
    every_answer_is_one_that_the_writes_allow::<Maria>(&long("alias-mariadb-long"));
    every_answer_is_one_that_the_writes_allow::<Shared>(&long("alias-sqlite-long"));
}
