//! Race A by force: the whole service in this process, over a socket, with the database's answer held back between its
//! reading and its delivery.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use hotrow::config::{Overrides, Resolved, SourceConfig, parse};
use hotrow_cache::Cache;
use hotrow_measure::clock::Nanos;
use hotrow_server::drain::Shutdown;
use hotrow_server::lookups::Calendar;
use hotrow_server::service::Service;
use hotrow_server::shared::Shared;
use hotrow_server::sink::{CacheSink, FeedCounts};
use hotrow_source::sqlite::{Hooks, Sqlite, open};

use crate::harness::{Client, Config, Database, SOON, await_until};

/// Holds the first answer that comes after it was armed.
#[derive(Default)]
struct Hold {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Off,
    Armed,
    Held,
    Released,
}

impl Hold {
    fn set(&self, state: State) {
        *self.state.lock().expect("no panics here") = state;
        self.changed.notify_all();
    }

    fn is(&self, state: State) -> bool {
        *self.state.lock().expect("no panics here") == state
    }

    /// Runs in the reader's thread.
    fn pass(&self) {
        let mut state = self.state.lock().expect("no panics here");
        if *state == State::Armed {
            *state = State::Held;
            while *state == State::Held {
                state = self.changed.wait(state).expect("no panics here");
            }
        }
    }
}

/// A service in this process.
struct Inside {
    data: SocketAddr,
    hold: Arc<Hold>,
    counts: Arc<FeedCounts>,
    shutdown: Shutdown,
    stop_feed: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Inside {
    fn start(database: &Database, prepare: impl FnOnce(&Cache<hotrow_server::Trouble>)) -> Self {
        let config = Config::new(database.path()).collection("products").set("source.reads_in_flight", "2");
        let unset = |_: &str| Err(std::env::VarError::NotPresent);
        let Resolved { server, cache, collections, source, .. } =
            parse(&config.text(), "test", &unset, &Overrides::default()).expect("valid");
        let SourceConfig::Sqlite(source) = source else { panic!("{source:?}") };
        let hold = Arc::new(Hold::default());
        let held = hold.clone();
        let hooks = Hooks { after_read: Some(Arc::new(move |_, _| held.pass())), ..Hooks::default() };
        let Sqlite { source, feed } = open(source, hooks).expect("open");
        let cache = Cache::new(cache, collections);
        prepare(&cache);
        let shared = Shared::new(&server, cache, source, Calendar::new(Nanos::now(), 0)).expect("shared");
        let counts = Arc::new(FeedCounts::default());
        let sink = Arc::new(CacheSink::new(shared.clone(), counts.clone()));
        let (stop_feed, shutdown) = (Arc::new(AtomicBool::new(false)), Shutdown::new());
        let service = Service::bind(&server).expect("free ports");
        let data = service.data();
        let following = {
            let stop = stop_feed.clone();
            std::thread::spawn(move || feed.run(sink, stop))
        };
        let serving = {
            let (shutdown, counts, shared) = (shutdown.clone(), counts.clone(), shared.clone());
            std::thread::spawn(move || service.run(&server, &shared, counts, &shutdown, || ()).expect("serve"))
        };
        await_until("the feed", SOON, || shared.cache.is_current(Nanos::now()));
        Self { data, hold, counts, shutdown, stop_feed, threads: vec![following, serving] }
    }

    /// Reads the record's price.
    fn price(&self) -> u64 {
        price(&mut Client::connect(self.data))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.hold.set(State::Released);
        self.shutdown.now();
        self.stop_feed.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "a thread of the service panicked");
        }
    }
}

fn price(client: &mut Client) -> u64 {
    let answer = client.get("/products/1");
    answer.json()["price"].as_u64().unwrap_or_else(|| panic!("no price: {answer:?}"))
}

/// The race: a fill reads the old row; the change is committed and handled; only then is the row delivered. What does
/// the next read get? With `between`, another read comes while the first is held.
fn price_after_the_race(between: bool, prepare: impl FnOnce(&Cache<hotrow_server::Trouble>)) -> (Option<u64>, u64) {
    let database = Database::with_products(1);
    let inside = Inside::start(&database, prepare);
    inside.hold.set(State::Armed);
    let data = inside.data;
    let first = std::thread::spawn(move || price(&mut Client::connect(data)));
    await_until("the old row to be read", SOON, || inside.hold.is(State::Held));
    let changes = inside.counts.changes_total();
    database.execute("UPDATE products SET price = 7 WHERE id = 1");
    await_until("the change to be handled", SOON, || inside.counts.changes_total() > changes);
    let middle = between.then(|| inside.price());
    inside.hold.set(State::Released);
    assert_eq!(first.join().expect("an answer"), 100, "the held read began before the change");
    (middle, inside.price())
}

#[test]
fn race_a_a_row_read_before_its_change_is_not_kept() {
    assert_eq!(price_after_the_race(false, |_| ()), (None, 7));
}

#[test]
fn race_a_a_read_after_the_change_does_not_join_one_from_before_it() {
    assert_eq!(price_after_the_race(true, |_| ()), (Some(7), 7));
}

#[cfg(feature = "sabotage")]
#[test]
fn race_a_without_its_fix_the_old_row_stays() {
    assert_eq!(
        price_after_the_race(false, |cache| cache.take_out(hotrow_cache::Fix::Lease)),
        (None, 100),
        "the switch does not take the fix out"
    );
}
