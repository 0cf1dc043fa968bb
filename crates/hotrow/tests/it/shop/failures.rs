//! Failures of the server: its feed held or late, or the server killed. Answers stay within the
//! contract, and the service recovers without intervention.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::shop::{
    Shop, await_body, await_readyz, await_started, cached, losses, path, staleness, starts,
};
use hotrow_testkit::harness::{Config, SOON, Server, await_until};

const BOUND: Duration = Duration::from_millis(500);

/// Returns a configuration with the bound and what happens past it.
pub(crate) fn config<S: Shop>(shop: &S, policy: &str) -> Config {
    shop.config_of_products()
        .set("cache.max_staleness", &format!("\"{}ms\"", BOUND.as_millis()))
        .set("cache.when_stale", &format!("\"{policy}\""))
        .set("admin.ready_when", "\"fresh\"")
        .set("source.read_timeout", "\"700ms\"")
}

/// Waits until the metrics show the feed past its bound, and checks that everything else agrees.
#[track_caller]
fn await_stale(server: &Server) {
    await_readyz(server, 503);
    // What was on its way when the feed was held arrives late, and makes it fresh once more.
    await_until("the bound to pass without the feed", SOON, || {
        let metrics = server.metrics();
        metrics.sum("hotrow_feed_current", &[]) == 0.0 && staleness(server) >= BOUND
    });
}

pub(crate) fn past_the_bound_the_policy_acts<S: Shop>() {
    for policy in ["bypass", "stale", "refuse"] {
        let shop = S::open();
        let server = Server::start(&config(&shop, policy));
        let mut client = server.client();
        assert_eq!(cached(&mut client, &path(1)).text(), S::body(1, 100));
        // Only the feed is held: nothing is closed and nothing is lost, but freshness is unknown.
        shop.hold_feed();
        shop.set_price(1, 1);
        let changed = Instant::now();
        await_stale(&server);
        // Until then an answer from before the change is within the bound.
        await_until("the bound to pass", SOON, || changed.elapsed() > BOUND);
        let answer = client.get(&path(1));
        match policy {
            "bypass" => assert_eq!((answer.status, answer.text()), (200, S::body(1, 1))),
            "stale" => assert_eq!((answer.cache(), answer.text()), ("stale", S::body(1, 100))),
            _ => assert_eq!((answer.status, answer.header("retry-after").is_some()), (503, true)),
        }
        shop.clear_faults();
        await_readyz(&server, 200);
        await_body(&mut client, &path(1), &S::body(1, 1));
        assert_eq!(server.metrics().sum("hotrow_feed_current", &[]), 1.0);
    }
}

/// The kernel of a paused server accepts connections, on which nothing answers.
pub(crate) fn a_server_that_never_answers_is_named_in_the_log<S: Shop>() {
    let shop = S::open();
    let server = Server::start(&config(&shop, "bypass"));
    cached(&mut server.client(), &path(1));
    let before = server.log().len();
    shop.pause();
    shop.cut();
    await_readyz(&server, 503);
    let silence = ["answer", "took longer", "Server selection timeout"];
    await_until("the log to name what the feed waits for", SOON, || {
        let is_it = |line: &str| silence.iter().any(|words| line.contains(words));
        server.log()[before..].lines().any(|line| line.contains("trying again") && is_it(line))
    });
    shop.resume();
    await_readyz(&server, 200);
}

/// Fewest looks of the test of a late stream.
const JUDGED_MIN: u32 = 10;

pub(crate) fn a_late_stream_does_not_advance_freshness<S: Shop>() {
    let shop = S::open();
    let server = Server::start(&config(&shop, "stale"));
    let mut client = server.client();
    cached(&mut client, &path(1));
    let late = BOUND * 3;
    shop.delay_feed(late);
    // In a log without new records nothing can be late, so the test writes continuously.
    let mut price = 0;
    let mut write = || {
        price += 1;
        shop.set_price(2, price);
    };
    await_until("the bound to be passed", SOON, || {
        write();
        server.metrics().sum("hotrow_feed_current", &[]) == 0.0
    });
    await_stale(&server);
    // Staleness is never less than the age of a commit that cannot have arrived yet. A starved test
    // writes with gaps, in which nothing is late: only looks with such a commit are judged.
    let (mut writes, mut judged, begun) = (Vec::new(), 0, Instant::now());
    while begun.elapsed() < late * 2 || judged < JUDGED_MIN {
        assert!(begun.elapsed() < SOON, "only {judged} looks had a commit on its way");
        let write_began = Instant::now();
        write();
        let before = Instant::now();
        writes.push((write_began, before));
        let now = staleness(&server);
        let after = Instant::now();
        let on_its_way =
            |(began, ended): &(Instant, Instant)| *ended + BOUND <= before && *began + late > after;
        if writes.iter().any(on_its_way) {
            judged += 1;
            assert!(now >= BOUND, "{now:?} although everything is late by {late:?}");
        }
    }
    if !S::LATE_FEED_ANSWERS_RARELY {
        await_until("something to arrive", SOON, || staleness(&server) < late * 2);
    }
    shop.clear_faults();
    await_readyz(&server, 200);
}

/// Counts of the readers of [`a_killed_server_under_load`], and what they may expect.
#[derive(Default)]
struct Load {
    stop: AtomicBool,
    answered: AtomicU64,
    refused: AtomicU64,
    /// The price that every product has had for longer than the bound.
    settled: AtomicU64,
}

/// Stops the readers on drop: a failure of the test must end them, because their scope waits for
/// them.
struct StopOnDrop<'a>(&'a Load);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Release);
    }
}

impl Load {
    /// Reads products until the test ends, beginning with number `first`.
    fn read(&self, server: &Server, first: u32) {
        let mut client = server.client();
        for turn in first.. {
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            let floor = self.settled.load(Ordering::Acquire);
            let headers: &[(&str, &str)] =
                if turn % 9 == 0 { &[("Cache-Control", "no-cache")] } else { &[] };
            let answer = client.get_with(&path(1 + turn % 50), headers);
            match answer.status {
                200 => {
                    let price = answer.json()["price"].as_u64();
                    assert!(price >= Some(floor), "below {floor}: {answer:?}");
                    self.answered.fetch_add(1, Ordering::Relaxed);
                }
                503 | 504 => _ = self.refused.fetch_add(1, Ordering::Relaxed),
                _ => panic!("{answer:?}"),
            }
        }
    }
}

/// Waits until `count` has grown by more than `more`.
#[track_caller]
fn await_more(what: &str, count: &AtomicU64, more: u64) {
    let before = count.load(Ordering::Relaxed);
    await_until(what, SOON, || count.load(Ordering::Relaxed) > before + more);
}

pub(crate) fn a_killed_server_under_load<S: Shop>() {
    let mut shop = S::open();
    let server = Server::start(&config(&shop, "bypass"));
    let load = Load::default();
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&load);
        for reader in 0..6 {
            let server = &server;
            let load = &load;
            scope.spawn(move || load.read(server, reader));
        }
        for round in 1..=3 {
            await_more("answers", &load.answered, 1000);
            let started = starts(&server);
            shop.kill();
            await_readyz(&server, 503);
            if !S::FEED_RESUMES {
                await_until("the loss to be counted", SOON, || {
                    losses(&server, Some("unavailable")) >= f64::from(round)
                });
            }
            await_more("refusals", &load.refused, 0);
            shop.restart();
            if S::FEED_RESUMES {
                await_readyz(&server, 200);
            } else {
                await_started(&server, started);
            }
            let price = 1_000_000 * round;
            shop.set_all_prices(price);
            let begun = Instant::now();
            await_body(&mut server.client(), &path(1), &S::body(1, price));
            await_until("the bound to pass", SOON, || begun.elapsed() > BOUND);
            load.settled.store(price.into(), Ordering::Release);
        }
    });
    assert_eq!(server.metrics().sum("hotrow_source_reachable", &[]), 1.0);
}
