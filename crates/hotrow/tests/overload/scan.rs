//! W5's batch job: one client reads everything, in order and at random, while the others go on. Counted from each answer's
//! `Hotrow-Cache`, over the same requests of the others with and without the job.

use crate::harness::{Client, Config, Database, Server};

const ITEMS: u64 = 12_000;
/// Requests of the others: the same are made to warm up, to count without the job, and to count beside it.
const REQUESTS: usize = 24_000;
/// Requests that go out together.
const PIPELINE: usize = 100;
/// What the job may cost the others, in points of hit ratio.
const POINTS_MAX: f64 = 1.0;

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

/// Asks for these ids, all at once; which answers are from memory.
fn hits(client: &mut Client, ids: &[u64]) -> Vec<bool> {
    let request = |id: &u64| format!("GET /products/{id} HTTP/1.1\r\nHost: h\r\n\r\n");
    client.send(ids.iter().map(request).collect::<String>());
    let answers = ids.iter().map(|id| {
        let answer = client.answer();
        assert_eq!((answer.status, &answer.json()["id"]), (200, &serde_json::json!(id)));
        answer.cache() == "hit"
    });
    answers.collect()
}

/// Asks for these ids in one batch.
fn batch(client: &mut Client, ids: &[u64]) {
    let answer = client.post("/products", format!("{{\"ids\":{ids:?}}}"));
    assert_eq!((answer.status, &answer.json()["missing"]), (200, &serde_json::json!([])));
}

/// Which of the others' requests memory answers. After every [`PIPELINE`] of theirs the job does its part.
fn others_hits(client: &mut Client, mut job: impl FnMut()) -> Vec<bool> {
    let mut others = Others(1);
    let mut found = Vec::with_capacity(REQUESTS);
    while found.len() < REQUESTS {
        let ids: Vec<u64> = (0..PIPELINE).map(|_| others.next()).collect();
        found.extend(hits(client, &ids));
        job();
    }
    found
}

fn percent(hits: &[bool]) -> f64 {
    100.0 * hits.iter().filter(|hit| **hit).count() as f64 / hits.len() as f64
}

/// How far three standard deviations of the difference of two such ratios reach, in points. The requests are the same, so only those
/// count that were answered in one way here and in another there (McNemar, 1947).
fn margin(before: &[bool], beside: &[bool]) -> f64 {
    let differ = before.iter().zip(beside).filter(|(before, beside)| before != beside).count();
    300.0 * (differ as f64).sqrt() / before.len() as f64
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
    let (mut client, mut random, mut read) = (server.client(), Others(2), 0);
    // Half the others' rate, so that each job reads as many as there are.
    let mut part = || {
        let from = read;
        read += PIPELINE as u64 / 2;
        (from..read).map(|id| 1 + id % ITEMS).collect::<Vec<_>>()
    };
    others_hits(&mut client, || {});
    let fit = server.metrics().sum("hotrow_cache_entries", &[]);
    assert!((0.2..0.3).contains(&(fit / ITEMS as f64)), "{fit} of {ITEMS} items fit");
    let calm = others_hits(&mut client, || {});
    let before = percent(&calm);
    assert!(before > 60.0, "{before} %");
    let mut check = |what: &str, read: &mut dyn FnMut(&mut Client)| {
        let mut job = server.client();
        let disturbed = others_hits(&mut client, || read(&mut job));
        let (beside, margin) = (percent(&disturbed), margin(&calm, &disturbed));
        let told = format!("{before:.2} % to {beside:.2} % (± {margin:.2}) beside a job that reads {what}");
        println!("{fit} of {ITEMS} items fit; the others' hits: {told}");
        assert!(before - beside <= POINTS_MAX + margin, "{told}");
    };
    check("in order", &mut |job| _ = hits(job, &part()));
    check("in order, in batches", &mut |job| batch(job, &part()));
    check("at random", &mut |job| {
        _ = hits(job, &(0..PIPELINE / 2).map(|_| 1 + random.below(ITEMS)).collect::<Vec<_>>())
    });
    let passed = server.metrics().sum("hotrow_passing_answers_total", &[]);
    assert!(passed > ITEMS as f64, "{passed} answers were not kept");
}
