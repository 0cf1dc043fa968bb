//! A batch job that reads everything, in order and at random, while other clients continue. Hits
//! are counted from each answer's `Hotrow-Cache`, over the same requests of the other clients with
//! and without the job. The job has a connection of its own, or it shares one with the others
//! behind a trusted proxy.

use hotrow_testkit::harness::{Client, Config, Database, Server};

const ITEMS: u64 = 12_000;
/// Requests of the other clients, equal for warm-up, for the count without the job, and for the
/// count beside it.
const REQUESTS: usize = 24_000;
/// Requests sent together.
const PIPELINE: usize = 100;
/// Largest loss of the other clients' hit ratio, in percentage points.
const POINTS_MAX: f64 = 1.0;

/// Access pattern: 80 % of the requests to 20 % of the items, scattered over the ids.
struct Others(u64);

impl Others {
    fn below(&mut self, n: u64) -> u64 {
        // Knuth's linear congruential generator for MMIX; its upper bits are good.
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn next(&mut self) -> u64 {
        let hot = ITEMS / 5;
        let rank = if self.below(5) < 4 { self.below(hot) } else { hot + self.below(ITEMS - hot) };
        // Coprime to the number of items: a permutation.
        1 + rank * 7_919 % ITEMS
    }
}

/// Header field with which a proxy names the client of a request; empty without a proxy.
#[derive(Clone, Copy)]
enum Sender {
    Direct,
    Other,
    Job,
}

impl Sender {
    fn field(self, n: usize) -> String {
        match self {
            Self::Direct => String::new(),
            // Eight clients.
            Self::Other => format!("X-Forwarded-For: 192.0.2.{}\r\n", 1 + n % 8),
            Self::Job => "X-Forwarded-For: 198.51.100.7\r\n".to_owned(),
        }
    }
}

/// Requests these ids at once. Returns which answers are hits.
fn hits(client: &mut Client, sender: Sender, ids: &[u64]) -> Vec<bool> {
    let request = |(n, id): (usize, &u64)| {
        format!("GET /products/{id} HTTP/1.1\r\nHost: h\r\n{}\r\n", sender.field(n))
    };
    client.send(ids.iter().enumerate().map(request).collect::<String>());
    let answers = ids.iter().map(|id| {
        let answer = client.answer();
        assert_eq!((answer.status, &answer.json()["id"]), (200, &serde_json::json!(id)));
        answer.cache() == "hit"
    });
    answers.collect()
}

/// Requests these ids in one batch.
fn batch(client: &mut Client, ids: &[u64]) {
    let answer = client.post("/products", format!("{{\"ids\":{ids:?}}}"));
    assert_eq!((answer.status, &answer.json()["missing"]), (200, &serde_json::json!([])));
}

/// Returns which of the other clients' requests are hits. After every [`PIPELINE`] of them the job
/// runs one part, which may use their connection.
fn others_hits(client: &mut Client, sender: Sender, mut job: impl FnMut(&mut Client)) -> Vec<bool> {
    let mut others = Others(1);
    let mut found = Vec::with_capacity(REQUESTS);
    while found.len() < REQUESTS {
        let ids: Vec<u64> = (0..PIPELINE).map(|_| others.next()).collect();
        found.extend(hits(client, sender, &ids));
        job(client);
    }
    found
}

fn percent(hits: &[bool]) -> f64 {
    100.0 * hits.iter().filter(|hit| **hit).count() as f64 / hits.len() as f64
}

/// Returns three standard deviations of the difference of two such ratios, in points. The requests
/// are the same, so only those with different results count (McNemar, 1947).
fn margin(before: &[bool], beside: &[bool]) -> f64 {
    let differ = before.iter().zip(beside).filter(|(before, beside)| before != beside).count();
    300.0 * (differ as f64).sqrt() / before.len() as f64
}

/// Starts a server over the items with this capacity.
fn server(database: &Database, capacity: &str) -> Server {
    database.execute("UPDATE products SET name = 'p' || id || hex(zeroblob(90))");
    let config = Config::new(database.path())
        .collection("products")
        .set("cache.capacity", capacity)
        .set("limits.rate.trusted_proxies", "[\"127.0.0.0/8\"]")
        .set("limits.rate.client_header", "\"x-forwarded-for\"");
    Server::start(&config)
}

/// Reads for the job's next part: half the rate of the others, so that each job reads as many as
/// there are.
fn in_order(read: &mut u64) -> Vec<u64> {
    let from = *read;
    *read += PIPELINE as u64 / 2;
    (from..*read).map(|id| 1 + id % ITEMS).collect()
}

fn at_random(random: &mut Others) -> Vec<u64> {
    (0..PIPELINE / 2).map(|_| 1 + random.below(ITEMS)).collect()
}

/// Fails if the others' hit ratio falls by more than `points_max`.
fn compare(undisturbed: &[bool], disturbed: &[bool], points_max: f64, what: &str) {
    let (before, beside) = (percent(undisturbed), percent(disturbed));
    let margin = margin(undisturbed, disturbed);
    let summary =
        format!("{before:.2} % to {beside:.2} % (± {margin:.2}) beside a job that reads {what}");
    println!("hit ratio of the others: {summary}");
    assert!(before - beside <= points_max + margin, "{summary}");
}

#[test]
fn a_client_that_reads_everything_costs_the_others_at_most_a_point_of_hit_ratio() {
    let database = Database::with_products(ITEMS as u32);
    // Space for a quarter of the items: 105 bytes of bookkeeping, 11 of key and about 220 of JSON
    // each.
    let server = server(&database, "\"1MiB\"");
    let mut client = server.client();
    let mut random = Others(2);
    let mut read = 0;
    others_hits(&mut client, Sender::Direct, |_| {});
    let fit = server.metrics().sum("hotrow_cache_entries", &[]);
    assert!((0.2..0.3).contains(&(fit / ITEMS as f64)), "{fit} of {ITEMS} items fit");
    let undisturbed = others_hits(&mut client, Sender::Direct, |_| {});
    let before = percent(&undisturbed);
    assert!(before > 60.0, "{before} %");
    let mut check = |what: &str, read: &mut dyn FnMut(&mut Client)| {
        let mut job = server.client();
        let disturbed = others_hits(&mut client, Sender::Direct, |_| read(&mut job));
        compare(&undisturbed, &disturbed, POINTS_MAX, what);
    };
    check("in order", &mut |job| _ = hits(job, Sender::Direct, &in_order(&mut read)));
    check("in order, in batches", &mut |job| batch(job, &in_order(&mut read)));
    check("at random", &mut |job| _ = hits(job, Sender::Direct, &at_random(&mut random)));
    let passed = server.metrics().sum("hotrow_fills_not_admitted_total", &[]);
    assert!(passed > ITEMS as f64, "{passed} answers were not kept");
}

/// The published case is the job in order: it took a hit ratio of 93 % down to 88 %. At random the
/// job finds so much of what is in memory that it is recognised later.
#[test]
fn a_job_that_shares_a_proxys_connection_with_the_others_costs_them_little() {
    let database = Database::with_products(ITEMS as u32);
    let server = server(&database, "\"1800KiB\"");
    let mut client = server.client();
    let mut random = Others(2);
    let mut read = 0;
    others_hits(&mut client, Sender::Other, |_| {});
    let undisturbed = others_hits(&mut client, Sender::Other, |_| {});
    let before = percent(&undisturbed);
    assert!((91.0..95.0).contains(&before), "{before} %");
    let mut check = |what: &str, points_max, ids: &mut dyn FnMut() -> Vec<u64>| {
        let disturbed = others_hits(&mut client, Sender::Other, |shared| {
            hits(shared, Sender::Job, &ids());
        });
        compare(&undisturbed, &disturbed, points_max, what);
    };
    check("in order", POINTS_MAX, &mut || in_order(&mut read));
    check("at random", 2.0 * POINTS_MAX, &mut || at_random(&mut random));
    let passed = server.metrics().sum("hotrow_fills_not_admitted_total", &[]);
    assert!(passed > 0.0, "{passed} answers were not kept");
}
