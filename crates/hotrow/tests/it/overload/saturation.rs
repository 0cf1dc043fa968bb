//! More uncached reads than the database can process, and clients that retry at once.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use hotrow_testkit::harness::config::read_delay;
use hotrow_testkit::harness::{Answer, Client, Config, Database, Server};

const MISS: &str = "miss";
/// Rows of `heavy`; no id of it is requested twice, so each request is a read.
const ROWS: u32 = 100_000;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts a server that reads `heavy` by one query of up to 20 rows at a time, 5 ms per row: at
/// most 200 rows a second.
fn heavy() -> (Database, Server) {
    let database = Database::with_products(10);
    database.add_table("heavy", ROWS);
    let config = Config::new(database.path())
        .set("source.reads_in_flight", "1")
        .set("source.query_keys", "20")
        .set("limits.max_batch", "20")
        .set("limits.request_timeout", "\"5s\"")
        .collection("heavy")
        .collection("products")
        .failpoint(read_delay("heavy", Duration::from_millis(5)));
    let server = Server::start(&config);
    (database, server)
}

/// Answers that the clients received.
#[derive(Default)]
struct Received {
    /// Time of the request, time until the answer, and status.
    answers: Mutex<Vec<(Instant, Duration, u16)>>,
    next_id: AtomicU32,
    over: AtomicBool,
}

impl Received {
    fn ask(&self, client: &mut Client) -> Answer {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed) + 1;
        assert!(id <= ROWS);
        let begun = Instant::now();
        let answer = client.get(&format!("/heavy/{id}"));
        if answer.status != 200 {
            assert!(answer.problem(answer.status).0 == "Overloaded", "{answer:?}");
            assert_eq!(answer.header("retry-after"), Some("1"));
        }
        self.answers.lock().unwrap().push((begun, begun.elapsed(), answer.status));
        answer
    }

    fn count(&self, status: u16, from: Instant) -> usize {
        self.answers
            .lock()
            .unwrap()
            .iter()
            .filter(|(begun, _, s)| *s == status && *begun >= from)
            .count()
    }
}

/// Runs `count` clients until `time` has passed; `act` gets the number of its client.
fn clients(
    server: &Server,
    count: usize,
    time: Duration,
    seen: &Received,
    act: impl Fn(&mut Client, usize) + Sync,
) {
    std::thread::scope(|scope| {
        for number in 0..count {
            let act = &act;
            scope.spawn(move || {
                let mut client = server.client();
                while !seen.over.load(Ordering::Relaxed) {
                    act(&mut client, number);
                }
            });
        }
        std::thread::sleep(time);
        seen.over.store(true, Ordering::Relaxed);
    });
}

fn counted(server: &Server, name: &str) -> f64 {
    server.metrics().sum(name, &[])
}

#[test]
fn beyond_capacity_answers_are_on_time_and_the_rest_is_refused() {
    let (_database, server) = heavy();
    assert_eq!(server.get("/products/1").status, 200);
    let seen = Received::default();
    let hits = AtomicU32::new(0);
    let pressed = AtomicBool::new(false);
    let begun = Instant::now();
    // 200 clients with 5 requests a second each: 1,000 a second in total, independent of the
    // answers.
    clients(&server, 201, Duration::from_secs(4), &seen, |client, number| {
        if number == 200 {
            assert_eq!(client.get("/products/1").cache(), "hit");
            if hits.fetch_add(1, Ordering::Relaxed).is_multiple_of(100) {
                let level = server.metrics().sum("hotrow_pressure", &[("source", "database_wait")]);
                pressed.store(level == 1.0, Ordering::Relaxed);
            }
            return;
        }
        let started = Instant::now();
        seen.ask(client);
        std::thread::sleep(Duration::from_millis(200).saturating_sub(started.elapsed()));
    });
    let late = begun + Duration::from_secs(1);
    let answered = seen.count(200, late);
    let refused = seen.count(503, late);
    println!(
        "after the first second: {answered} answered, {refused} refused; {hits:?} hits in total"
    );
    assert!(answered > 50 && refused > 50, "{answered} answered, {refused} refused");
    // `ask` refuses 504; no request waited until the time-out either.
    let slowest = seen.answers.lock().unwrap().iter().map(|(_, took, _)| *took).max().unwrap();
    assert!(slowest < REQUEST_TIMEOUT, "{slowest:?}");
    assert!(hits.into_inner() > 100);
    let refusals = counted(&server, "hotrow_queue_dropped_total")
        + counted(&server, "hotrow_deadline_rejected_total");
    assert!(refusals >= refused as f64, "{refusals} of {refused}");
    assert!(pressed.into_inner(), "until the end, low priority is refused first");
    // The load is over: the next read is made at once, in order.
    let answer = server.get(&format!("/heavy/{ROWS}"));
    assert_eq!((answer.status, answer.cache()), (200, MISS));
    assert_eq!(counted(&server, "hotrow_queue_lifo"), 0.0);
    assert_eq!(counted(&server, "hotrow_waiting_keys"), 0.0);
}

#[test]
fn a_retry_storm_neither_stops_the_service_nor_outlives_itself() {
    let (_database, server) = heavy();
    let seen = Received::default();
    let begun = Instant::now();
    clients(&server, 150, Duration::from_secs(3), &seen, |client, _| {
        // Three immediate retries.
        for _ in 0..4 {
            if seen.ask(client).status == 200 {
                break;
            }
        }
    });
    for second in 0..3 {
        let from = begun + Duration::from_secs(second);
        let answered = seen.count(200, from) - seen.count(200, from + Duration::from_secs(1));
        println!("second {second}: {answered} answered");
        assert!(answered > 10, "second {second}: {answered} answered");
    }
    assert!(seen.count(503, begun) > 0, "no request was refused, so it was no storm");
    assert_eq!(server.get(&format!("/heavy/{ROWS}")).status, 200);
}
