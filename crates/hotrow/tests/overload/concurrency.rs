//! More cold reads than the database can carry, clients with deadlines, clients that try again at once.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::harness::{Answer, Client, Config, Database, SOON, Server, await_until};

const MISS: &str = "miss";
/// Rows of `heavy`; no id of it is asked for twice, so that each is a read.
const ROWS: u32 = 100_000;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Adds `heavy(id, burn)`, whose rows cost the reader about `each` of CPU time.
fn add_heavy_table(database: &Database, each: Duration) {
    // A comparison that has to look at all of its text.
    const BURN: &str = "LIKE '%0%0%0%0%0%1'";
    let took = |work: u32| {
        let begun = Instant::now();
        let sql = format!("SELECT hex(zeroblob({work})) {BURN}");
        let _: i64 = database.connection.query_row(&sql, [], |row| row.get(0)).unwrap();
        begun.elapsed()
    };
    let mut work = 1 << 16;
    // The least of three: other work on this machine makes none of them shorter.
    while (0..3).map(|_| took(work)).min().unwrap() < each {
        work += work / 4;
    }
    database.execute(&format!(
        // The column comes last, for an INSERT would compute it.
        "CREATE TABLE heavy(id INTEGER PRIMARY KEY);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})
         INSERT INTO heavy(id) SELECT i FROM n;
         ALTER TABLE heavy ADD COLUMN burn INTEGER AS (hex(zeroblob({work} + id % 2)) {BURN}) VIRTUAL"
    ));
}

/// One query of up to 20 rows at a time, and 5 ms for each row: 200 rows a second at most.
fn heavy() -> (Database, Server) {
    let database = Database::with_products(10);
    add_heavy_table(&database, Duration::from_millis(5));
    let config = Config::new(database.path())
        .set("source.reads_in_flight", "1")
        .set("source.query_keys", "20")
        .set("limits.max_batch", "20")
        .set("limits.request_timeout", "\"5s\"")
        .collection("heavy")
        .collection("products");
    let server = Server::start(&config);
    (database, server)
}

/// What clients saw.
#[derive(Default)]
struct Seen {
    /// When each was asked for, how long the answer took, and its status.
    answers: Mutex<Vec<(Instant, Duration, u16)>>,
    next_id: AtomicU32,
    over: AtomicBool,
}

impl Seen {
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
        self.answers.lock().unwrap().iter().filter(|(begun, _, s)| *s == status && *begun >= from).count()
    }
}

/// Runs so many clients until `time` has passed; `act` is told its client's number.
fn clients(server: &Server, count: usize, time: Duration, seen: &Seen, act: impl Fn(&mut Client, usize) + Sync) {
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
fn beyond_capacity_answers_come_in_time_and_the_rest_is_refused() {
    let (_database, server) = heavy();
    assert_eq!(server.get("/products/1").status, 200);
    let (seen, hits, pressed) = (Seen::default(), AtomicU32::new(0), AtomicBool::new(false));
    let begun = Instant::now();
    // A client of its own for each of 5 requests a second: 1,000 a second in all, whatever happens to them.
    clients(&server, 201, Duration::from_secs(4), &seen, |client, number| {
        if number == 200 {
            assert_eq!(client.get("/products/1").cache(), "hit");
            if hits.fetch_add(1, Ordering::Relaxed) % 100 == 0 {
                let level = server.metrics().sum("hotrow_pressure", &[("source", "database_wait")]);
                pressed.store(level == 1.0, Ordering::Relaxed);
            }
            return;
        }
        let asked = Instant::now();
        seen.ask(client);
        std::thread::sleep(Duration::from_millis(200).saturating_sub(asked.elapsed()));
    });
    let late = begun + Duration::from_secs(1);
    let (answered, refused) = (seen.count(200, late), seen.count(503, late));
    println!("of those asked for after a second: {answered} answered, {refused} refused; {hits:?} hits meanwhile");
    assert!(answered > 50 && refused > 50, "{answered} answered, {refused} refused");
    // `ask` refuses 504; nobody was kept until the time-out either.
    let slowest = seen.answers.lock().unwrap().iter().map(|(_, took, _)| *took).max().unwrap();
    assert!(slowest < REQUEST_TIMEOUT, "{slowest:?}");
    assert!(hits.into_inner() > 100);
    let refusals = counted(&server, "hotrow_keys_displaced_total") + counted(&server, "hotrow_keys_overdue_total");
    assert!(refusals >= refused as f64, "{refusals} of {refused}");
    assert!(pressed.into_inner(), "to the end, low priority is refused first");
    // It is over: the next is read at once, in order.
    let answer = server.get(&format!("/heavy/{ROWS}"));
    assert_eq!((answer.status, answer.cache()), (200, MISS));
    assert_eq!(counted(&server, "hotrow_queue_newest_first"), 0.0);
    assert_eq!(counted(&server, "hotrow_waiting_keys"), 0.0);
}

#[test]
fn a_retry_storm_neither_stops_the_service_nor_outlives_itself() {
    let (_database, server) = heavy();
    let seen = Seen::default();
    let begun = Instant::now();
    clients(&server, 150, Duration::from_secs(3), &seen, |client, _| {
        // At once, three times more.
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
    assert!(seen.count(503, begun) > 0, "it was no storm");
    assert_eq!(server.get(&format!("/heavy/{ROWS}")).status, 200);
}

/// A reader that is busy with a slow row; the client that holds it.
fn busy(settings: &[(&str, &str)]) -> (Database, Server, Client) {
    let database = Database::with_products(10);
    database.add_slow_table(Duration::from_millis(700));
    let config = Config::new(database.path())
        .set("source.reads_in_flight", "1")
        .collection("slow")
        .collection("products")
        .with(settings);
    let server = Server::start(&config);
    let mut holding = server.client();
    holding.send("GET /slow/1 HTTP/1.1\r\nHost: h\r\n\r\n");
    await_until("the read to begin", SOON, || counted(&server, "hotrow_queries_in_flight") == 1.0);
    (database, server, holding)
}

#[test]
fn a_clients_deadline_is_kept_and_what_comes_after_it_is_not_read() {
    let (_database, server, mut holding) = busy(&[]);
    let mut client = server.client();
    // Of the same collection, and of another one: the limit is the source's.
    for path in ["/slow/2", "/products/2", "/products?ids=3,4"] {
        let answer = client.get_with(path, &[("Hotrow-Deadline-Ms", "60")]);
        assert_eq!(answer.problem(504).0, "Timed out", "{path}");
    }
    assert_eq!(counted(&server, "hotrow_queries_in_flight"), 1.0, "the slow read still runs");
    assert_eq!(holding.answer().status, 200);
    assert_eq!(client.get_with("/products/5", &[("Hotrow-Deadline-Ms", "3000")]).status, 200);
    assert_eq!(counted(&server, "hotrow_queried_keys_total"), 2.0, "none of the four others was read");
    assert_eq!(client.get_with("/products/5", &[("Hotrow-Deadline-Ms", "0")]).cache(), "hit", "memory needs no time");
}

#[test]
fn the_time_that_a_body_takes_is_not_the_databases() {
    const BODY: &str = r#"{"ids":[1,2]}"#;
    let database = Database::with_products(3);
    let config = Config::new(database.path()).collection("products").set("limits.request_timeout", "\"2s\"");
    let server = Server::start(&config);
    let mut client = server.client();
    client.send(format!("POST /products HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", BODY.len()));
    std::thread::sleep(Duration::from_millis(2200));
    client.send(BODY);
    let answer = client.answer();
    assert_eq!((answer.status, answer.cache()), (200, "miss"), "{answer:?}");
}

#[test]
fn a_deadline_that_is_none_is_refused_unless_the_header_is_off() {
    let database = Database::with_products(3);
    let config = Config::new(database.path()).collection("products");
    let server = Server::start(&config);
    for bad in ["", "-1", "1.5", "soon", "1000000000", "250m"] {
        for path in ["/products/2", "/products?ids=1,2"] {
            let answer = server.client().get_with(path, &[("Hotrow-Deadline-Ms", bad)]);
            assert_eq!(answer.problem(400).0, "Bad header", "{bad:?} {path}");
            assert_eq!(server.get("/products/1").status, 200);
        }
        let hit = server.client().get_with("/products/1", &[("Hotrow-Deadline-Ms", bad)]);
        assert_eq!(hit.cache(), "hit", "memory needs no deadline: {bad:?}");
    }
    let off = Server::start(&config.set("limits.concurrency.deadline_header", "false"));
    assert_eq!(off.client().get_with("/products/1", &[("Hotrow-Deadline-Ms", "soon")]).status, 200);
}

#[test]
fn the_limit_is_told_and_sits_at_its_bound_while_all_is_well() {
    let database = Database::with_products(1000);
    for kind in ["gradient", "aimd", "fixed"] {
        let config = Config::new(database.path())
            .collection("products")
            .set("limits.concurrency.kind", &format!("{kind:?}"))
            .set("source.reads_in_flight", "3");
        let server = Server::start(&config);
        let mut client = server.client();
        (1..=200).for_each(|id| assert_eq!(client.get(&format!("/products/{id}")).cache(), MISS));
        let told = &server.status()["concurrency"];
        assert_eq!((&told["kind"], &told["limit"]), (&kind.into(), &3.into()), "{told}");
        assert_eq!(counted(&server, "hotrow_query_limit"), 3.0);
        assert_eq!(counted(&server, "hotrow_queue_wait_seconds_count"), 200.0);
    }
}
