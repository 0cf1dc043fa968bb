//! A batch job that reads everything, in order and at random, while other clients continue. Hits
//! are counted from each answer's `Hotrow-Cache`, over the same requests of the other clients with
//! and without the job.

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

/// Requests these ids at once. Returns which answers are hits.
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

/// Requests these ids in one batch.
fn batch(client: &mut Client, ids: &[u64]) {
    let answer = client.post("/products", format!("{{\"ids\":{ids:?}}}"));
    assert_eq!((answer.status, &answer.json()["missing"]), (200, &serde_json::json!([])));
}

/// Returns which of the other clients' requests are hits. After every [`PIPELINE`] of them the job
/// runs one part.
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

/// Returns three standard deviations of the difference of two such ratios, in points. The requests
/// are the same, so only those with different results count (McNemar, 1947).
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
        // Space for a quarter of the items: 180 bytes of bookkeeping, 8 of key and about 160 of
        // JSON each.
        .set("cache.capacity", "\"1100KiB\"")
        .set("cache.entry_size_hint", "\"160B\"");
    let server = Server::start(&config);
    let mut client = server.client();
    let mut random = Others(2);
    let mut read = 0;
    // Half the rate of the others, so that each job reads as many as there are.
    let mut part = || {
        let from = read;
        read += PIPELINE as u64 / 2;
        (from..read).map(|id| 1 + id % ITEMS).collect::<Vec<_>>()
    };
    others_hits(&mut client, || {});
    let fit = server.metrics().sum("hotrow_cache_entries", &[]);
    assert!((0.2..0.3).contains(&(fit / ITEMS as f64)), "{fit} of {ITEMS} items fit");
    let undisturbed = others_hits(&mut client, || {});
    let before = percent(&undisturbed);
    assert!(before > 60.0, "{before} %");
    let mut check = |what: &str, read: &mut dyn FnMut(&mut Client)| {
        let mut job = server.client();
        let disturbed = others_hits(&mut client, || read(&mut job));
        let beside = percent(&disturbed);
        let margin = margin(&undisturbed, &disturbed);
        let summary = format!(
            "{before:.2} % to {beside:.2} % (± {margin:.2}) beside a job that reads {what}"
        );
        println!("{fit} of {ITEMS} items fit; hit ratio of the others: {summary}");
        assert!(before - beside <= POINTS_MAX + margin, "{summary}");
    };
    check("in order", &mut |job| _ = hits(job, &part()));
    check("in order, in batches", &mut |job| batch(job, &part()));
    check("at random", &mut |job| {
        _ = hits(job, &(0..PIPELINE / 2).map(|_| 1 + random.below(ITEMS)).collect::<Vec<_>>())
    });
    let passed = server.metrics().sum("hotrow_fills_not_admitted_total", &[]);
    assert!(passed > ITEMS as f64, "{passed} answers were not kept");
}
