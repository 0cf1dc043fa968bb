//! W5's batch job: one client reads everything, in order and at random, while the others go on. Counted from each answer's
//! `Hotrow-Cache`.

use crate::harness::{Client, Config, Database, Server};

const ITEMS: u64 = 12_000;
/// Requests of the others before anything is counted.
const WARM_UP: usize = 60_000;
/// Requests of the others that are counted, before the job and beside it.
const COUNTED: usize = 24_000;
/// Requests that go out together.
const PIPELINE: usize = 100;
/// What the job may cost the others, in points of hit ratio: one, and three standard deviations of what is counted
/// (`sqrt(2 · 0.8 · 0.2 / 24,000)` is 0.37 points).
const POINTS_MAX: f64 = 1.0 + 3.0 * 0.37;

/// 80 % of the requests to 20 % of the items, scattered over the ids.
struct Others(u64);

impl Others {
    fn below(&mut self, n: u64) -> u64 {
        // Knuth's linear congruential generator for MMIX; its upper bits are good.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn next(&mut self) -> u64 {
        let hot = ITEMS / 5;
        let rank = if self.below(5) < 4 { self.below(hot) } else { hot + self.below(ITEMS - hot) };
        // Coprime to the number of items: a permutation.
        1 + rank * 7_919 % ITEMS
    }
}

/// Asks for these ids, all at once, and counts the answers from memory.
fn hits(client: &mut Client, ids: &[u64]) -> usize {
    let request = |id: &u64| format!("GET /products/{id} HTTP/1.1\r\nHost: h\r\n\r\n");
    client.send(ids.iter().map(request).collect::<String>());
    let answers = ids.iter().map(|id| {
        let answer = client.answer();
        assert_eq!((answer.status, &answer.json()["id"]), (200, &serde_json::json!(id)));
        answer.cache() == "hit"
    });
    answers.filter(|hit| *hit).count()
}

/// Asks for these ids in one batch.
fn batch(client: &mut Client, ids: &[u64]) {
    let answer = client.post("/products", format!("{{\"ids\":{ids:?}}}"));
    assert_eq!((answer.status, &answer.json()["missing"]), (200, &serde_json::json!([])));
}

/// The others' hits in percent, over `requests` of them. After every [`PIPELINE`] of theirs the job does its part.
fn others_hit_percent(client: &mut Client, others: &mut Others, requests: usize, mut job: impl FnMut()) -> f64 {
    let mut found = 0;
    for _ in 0..requests / PIPELINE {
        let ids: Vec<u64> = (0..PIPELINE).map(|_| others.next()).collect();
        found += hits(client, &ids);
        job();
    }
    100.0 * found as f64 / requests as f64
}

#[test]
fn a_client_that_reads_everything_costs_the_others_at_most_a_point_of_hit_ratio() {
    let database = Database::with_products(ITEMS as u32);
    database.execute("UPDATE products SET name = 'p' || id || hex(zeroblob(60))");
    let config = Config::new(database.path())
        .collection("products")
        // A quarter of the items: 180 bytes of bookkeeping, 8 of key and about 160 of JSON each.
        .set("cache.capacity", "\"1100KiB\"")
        .set("cache.entry_size_hint", "\"160B\"");
    let server = Server::start(&config);
    let (mut client, mut others, mut random, mut read) = (server.client(), Others(1), Others(2), 0);
    // Half the others' rate, so that each job reads as many as there are.
    let mut part = || {
        let from = read;
        read += PIPELINE as u64 / 2;
        (from..read).map(|id| 1 + id % ITEMS).collect::<Vec<_>>()
    };
    others_hit_percent(&mut client, &mut others, WARM_UP, || {});
    let fit = server.metrics().sum("hotrow_cache_entries", &[]);
    assert!((0.2..0.3).contains(&(fit / ITEMS as f64)), "{fit} of {ITEMS} items fit");
    let before = others_hit_percent(&mut client, &mut others, COUNTED, || {});
    assert!(before > 60.0, "{before} %");
    let mut check = |what: &str, read: &mut dyn FnMut(&mut Client)| {
        let mut job = server.client();
        let beside = others_hit_percent(&mut client, &mut others, COUNTED, || read(&mut job));
        println!(
            "{fit} of {ITEMS} items fit; the others' hits: {before:.2} %, beside a job that reads {what} {beside:.2} %"
        );
        assert!(before - beside <= POINTS_MAX, "from {before:.2} % to {beside:.2} % beside a job that reads {what}");
    };
    check("in order", &mut |job| _ = hits(job, &part()));
    check("in order, in batches", &mut |job| batch(job, &part()));
    check("at random", &mut |job| {
        _ = hits(job, &(0..PIPELINE / 2).map(|_| 1 + random.below(ITEMS)).collect::<Vec<_>>())
    });
    let passed = server.metrics().sum("hotrow_passing_answers_total", &[]);
    assert!(passed > ITEMS as f64, "{passed} answers were not kept");
}
