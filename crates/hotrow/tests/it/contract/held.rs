//! Race A forced: the whole service in this process behind a socket, with the database's answer
//! held between its read and its delivery.

use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use hotrow::config::{Overrides, Resolved, SourceConfig, parse};
use hotrow_cache::Cache;
use hotrow_measure::clock::Nanos;
use hotrow_server::service::Service;
use hotrow_service::in_force::InForce;
use hotrow_service::shared::Shared;
use hotrow_source::sources::Sources;
use hotrow_source_sqlite::{Hooks, Sqlite, open};
use hotrow_supervisor::Supervisor;
use hotrow_supervisor::shutdown::Shutdown;
use hotrow_telemetry::lookups::Calendar;
use hotrow_types::source::SourceId;

use hotrow_testkit::harness::{Client, Config, Database, SOON, await_until};

/// Switch that holds the first answer after it is armed.
#[derive(Default)]
struct AnswerHold {
    state: Mutex<HoldState>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum HoldState {
    #[default]
    Off,
    Armed,
    Held,
    Released,
}

impl AnswerHold {
    fn set(&self, state: HoldState) {
        *self.state.lock().expect("no panics here") = state;
        self.changed.notify_all();
    }

    fn is(&self, state: HoldState) -> bool {
        *self.state.lock().expect("no panics here") == state
    }

    /// Hook of the reader's thread: waits while the answer is held.
    fn pass(&self) {
        let mut state = self.state.lock().expect("no panics here");
        if *state == HoldState::Armed {
            *state = HoldState::Held;
            while *state == HoldState::Held {
                state = self.changed.wait(state).expect("no panics here");
            }
        }
    }
}

/// The service, run in this process.
struct InProcessService {
    data: SocketAddr,
    hold: Arc<AnswerHold>,
    shared: Shared,
    shutdown: Shutdown,
    threads: Vec<JoinHandle<()>>,
}

impl InProcessService {
    fn start(
        database: &Database,
        prepare: impl FnOnce(&Cache<hotrow_source::ReadFailure>),
    ) -> Self {
        let config =
            Config::new(database.path()).collection("products").set("source.reads_in_flight", "2");
        let unset = |_: &str| Err(std::env::VarError::NotPresent);
        let Resolved { server, cache, collections, mut sources, .. } =
            parse(&config.text(), "test", &unset, &Overrides::default()).expect("valid");
        let SourceConfig::Sqlite(source) = sources.remove(0) else { panic!("{sources:?}") };
        let hold = Arc::new(AnswerHold::default());
        let held = hold.clone();
        let hooks =
            Hooks { after_read: Some(Arc::new(move |_, _| held.pass())), ..Hooks::default() };
        let Sqlite { source, mut feed } =
            open(source, hooks, &Supervisor::default()).expect("open");
        let cache = Cache::new(cache, collections);
        prepare(&cache);
        let sources = Sources::only(source);
        let shared =
            Shared::new(&server, cache, sources, Calendar::new(Nanos::now(), 0)).expect("shared");
        let sink = Arc::new(shared.sink(SourceId::FIRST));
        let shutdown = Shutdown::new();
        let service = Service::bind(&server).expect("free ports");
        let data = service.data();
        let feed_thread = {
            let shutdown = shutdown.clone();
            std::thread::spawn(move || feed.run(sink, &shutdown).expect("an event loop"))
        };
        let serve_thread = {
            let shutdown = shutdown.clone();
            let shared = shared.clone();
            std::thread::spawn(move || {
                let in_force = InForce::new(server.clone(), shared);
                service.run(&server, (&in_force, None), &shutdown, |_| ()).expect("serve")
            })
        };
        await_until("the feed", SOON, || shared.cache.is_current(SourceId::FIRST, Nanos::now()));
        Self { data, hold, shared, shutdown, threads: vec![feed_thread, serve_thread] }
    }

    /// Reads the record's price.
    fn price(&self) -> u64 {
        price(&mut Client::connect(self.data))
    }
}

impl Drop for InProcessService {
    fn drop(&mut self) {
        self.hold.set(HoldState::Released);
        self.shutdown.now();
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

/// Forces the race: a fill reads the old row; the change is committed and processed; then the row
/// is delivered. Returns the price of the following read and, with `between`, that of a read made
/// while the first one was held.
fn price_after_the_race(
    between: bool,
    prepare: impl FnOnce(&Cache<hotrow_source::ReadFailure>),
) -> (Option<u64>, u64) {
    let database = Database::with_products(1);
    let service = InProcessService::start(&database, prepare);
    service.hold.set(HoldState::Armed);
    let data = service.data;
    let first = std::thread::spawn(move || price(&mut Client::connect(data)));
    await_until("the read of the old row", SOON, || service.hold.is(HoldState::Held));
    let changes = service.shared.feed_counts(SourceId::FIRST).changes_total();
    database.execute("UPDATE products SET price = 7 WHERE id = 1");
    await_until("the change to be handled", SOON, || {
        service.shared.feed_counts(SourceId::FIRST).changes_total() > changes
    });
    let middle = between.then(|| service.price());
    service.hold.set(HoldState::Released);
    assert_eq!(first.join().expect("an answer"), 100, "the held read began before the change");
    (middle, service.price())
}

#[test]
fn race_a_a_row_read_before_its_change_is_not_cached() {
    assert_eq!(price_after_the_race(false, |_| ()), (None, 7));
}

#[test]
fn race_a_a_read_after_the_change_does_not_join_one_from_before_it() {
    assert_eq!(price_after_the_race(true, |_| ()), (Some(7), 7));
}

#[cfg(feature = "failpoints")]
#[test]
fn race_a_without_its_safeguard_the_old_row_stays() {
    assert_eq!(
        price_after_the_race(false, |cache| cache.disable(hotrow_cache::Safeguard::Lease)),
        (None, 100),
        "the failpoint does not disable the safeguard"
    );
}
