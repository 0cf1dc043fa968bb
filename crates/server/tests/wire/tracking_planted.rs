//! Rules of client-side caching, and that their absence is found: each scenario ends with a client
//! whose copies are up to date, and with an outdated one when its rule is disabled.

#![allow(clippy::panic, reason = "tests fail by panicking, in helpers too")]

use std::collections::BTreeMap;

use crate::common::events::position;
use crate::common::redis::{RedisClient, Reply, array, with_redis};
use crate::common::service::{Running, config};
use crate::common::shelf::{Shelf, Witness, record, start_lasting_without, tracking};
use crate::common::wait_until;
use crate::tracking::purge;
use hotrow_cache::Safeguard;
use hotrow_source::Sink;

/// Changes that, together, exceed the memory for those which wait for the proof.
const MANY: i64 = 14_000;

/// A client that keeps each reply until its invalidation arrives.
struct NearClient {
    client: RedisClient,
    copies: BTreeMap<String, Reply>,
}

impl NearClient {
    fn new(server: &Running) -> Self {
        Self { client: tracking(server, ""), copies: BTreeMap::new() }
    }

    /// Returns the next reply, and applies what is pushed before it.
    fn reply(&mut self) -> Reply {
        loop {
            match self.client.reply() {
                Reply::Push(push) => self.apply(&push),
                reply => return reply,
            }
        }
    }

    fn apply(&mut self, push: &[Reply]) {
        match &push[1] {
            Reply::Null => self.copies.clear(),
            Reply::Array(keys) => keys.iter().for_each(|key| {
                let Reply::Text(key) = key else { panic!("{key:?}") };
                self.copies.remove(key);
            }),
            other => panic!("{other:?}"),
        }
    }

    /// Applies the next message, which is a push.
    fn apply_push(&mut self) {
        let message = self.client.reply();
        let Reply::Push(push) = message else { panic!("{message:?}") };
        self.apply(&push);
    }

    fn get(&mut self, key: &str) {
        self.client.send(array(&format!("GET {key}")));
        self.keep_reply(key);
    }

    fn keep_reply(&mut self, key: &str) {
        let reply = self.reply();
        assert!(matches!(reply, Reply::Text(_)), "{reply:?}");
        self.copies.insert(key.to_owned(), reply);
    }

    /// Applies what has been pushed.
    fn settle(&mut self) {
        self.client.send(array("PING"));
        assert_eq!(self.reply(), Reply::Status("PONG".to_owned()));
    }

    fn has(&self, key: &str) -> bool {
        self.copies.contains_key(key)
    }

    /// Returns whether its copy of `products:1` is not the newest record.
    fn is_outdated(&self) -> bool {
        self.copies.get("products:1").is_some_and(|copy| *copy != Reply::text(&record(1, NEWEST)))
    }
}

/// Price of the first product at the end of a scenario.
const NEWEST: i64 = 7;

/// A scenario returns whether its client is left with an outdated copy.
type Scenario = fn(&Running, &Shelf, &mut NearClient) -> bool;

fn is_left_outdated(scenario: Scenario, disabled: Option<Safeguard>) -> bool {
    let (server, shelf) = start_lasting_without(&with_redis(config()), disabled);
    let mut near = NearClient::new(&server);
    scenario(&server, &shelf, &mut near)
}

/// Waits until everything that was proven visible has been pushed, and applies it.
fn settle(server: &Running, near: &mut NearClient) {
    Witness::new(server).wait(server);
    near.settle();
}

/// A change while the row is read.
fn changed_during_the_read(server: &Running, shelf: &Shelf, near: &mut NearClient) -> bool {
    near.get("products:5");
    shelf.shut(true);
    let reads = shelf.reads();
    near.client.send(array("GET products:1"));
    wait_until(|| shelf.reads() > reads);
    shelf.set(1, NEWEST);
    server.commit(7, 200, &[1]);
    // Its invalidation comes at once, and shows that the change before has been handled.
    server.commit(8, 300, &[5]);
    while near.has("products:5") {
        near.apply_push();
    }
    shelf.shut(false);
    near.keep_reply("products:1");
    settle(server, near);
    near.is_outdated()
}

/// Race B, after the invalidation has left without a proof: reads do not see the change yet.
fn read_before_it_is_visible(server: &Running, shelf: &Shelf, near: &mut NearClient) -> bool {
    near.get("products:1");
    shelf.hide(&[7, 8, 9]);
    server.deliver(7, 200, &[1]);
    for (xid, first) in [(8, 1_000), (9, 1_000 + MANY)] {
        let ids: Vec<i64> = (first..first + MANY).collect();
        server.deliver(xid, 200 + xid, &ids);
    }
    wait_until(|| {
        near.settle();
        !near.has("products:1")
    });
    near.get("products:1");
    shelf.hide(&[]);
    shelf.set(1, NEWEST);
    server.advance(400, Some(&[]));
    settle(server, near);
    near.is_outdated()
}

/// A change of a record that is kept under two spellings.
fn spelled_twice(server: &Running, _: &Shelf, near: &mut NearClient) -> bool {
    let spellings = ["0123456789abcdef", "0123456789ABCDEF"];
    let spellings = spellings.map(|half| format!("prices:{half}0123456789abcdef"));
    spellings.iter().for_each(|key| near.get(key));
    purge(server, "prices/0123456789abcdef0123456789abcdef");
    settle(server, near);
    spellings.iter().any(|key| near.has(key))
}

/// A new feed, which misses a change before it.
fn begun_again(server: &Running, shelf: &Shelf, near: &mut NearClient) -> bool {
    near.get("products:1");
    shelf.set(1, NEWEST);
    server.sink.started(Some(position(600)));
    server.advance(600, Some(&[]));
    settle(server, near);
    near.is_outdated()
}

const SCENARIOS: [(Safeguard, Scenario); 5] = [
    (Safeguard::CopyInterest, changed_during_the_read),
    (Safeguard::CopyOrder, changed_during_the_read),
    (Safeguard::CopyFence, read_before_it_is_visible),
    (Safeguard::CopySpelling, spelled_twice),
    (Safeguard::CopyBeginning, begun_again),
];

#[test]
fn no_copy_is_left_outdated() {
    for (rule, scenario) in SCENARIOS {
        assert!(!is_left_outdated(scenario, None), "{rule:?}");
    }
}

#[cfg(feature = "failpoints")]
#[test]
fn the_absence_of_each_rule_is_found() {
    // A further message about the overflow, which the scenario of the fence provokes, may arrive
    // after its read and hide the fault: then it is repeated.
    const ATTEMPTS_MAX: usize = 10;
    for (rule, scenario) in SCENARIOS {
        let is_found = (0..ATTEMPTS_MAX).any(|_| is_left_outdated(scenario, Some(rule)));
        assert!(is_found, "{rule:?} is disabled and not missed");
    }
}
