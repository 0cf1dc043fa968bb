//! `--demo-writes N`: somebody else who changes the data, evenly paced, over a connection of their own.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use hotrow_measure::clock::Nanos;
use rusqlite::{Connection, params};
use tokio::sync::watch;

use super::PRODUCTS;
use super::products::price_cents;
use super::random::Random;
use crate::signals::Phase;

/// Most writes a second that can be asked for; each is a transaction of its own.
pub const WRITES_PER_SECOND_MAX: u32 = 20_000;
/// What a late writer makes up for; what is older is skipped, so that a pause is not followed by a storm.
const CATCH_UP: Duration = Duration::from_millis(100);
/// Longest wait between two looks at the phase.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);
const UPDATE: &str = "UPDATE products SET price_cents = ?2, stock = ?3, updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now') \
     WHERE id = ?1";

/// The running writer; dropping it stops it and waits for its end.
#[derive(Debug)]
pub struct Writer {
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            tracing::error!("the demonstration's writer ended in a panic");
        }
    }
}

/// Starts to change `per_second` random products of `file` a second.
#[must_use]
pub fn start(file: PathBuf, per_second: NonZeroU32, phase: watch::Receiver<Phase>) -> Writer {
    let (stop, stopped) = sync_channel(0);
    let work = move || match write(&file, per_second, &phase, &stopped) {
        Ok(tally) => {
            tracing::info!(written = tally.written, skipped = tally.skipped, "the demonstration's writer stopped")
        }
        Err(e) => tracing::error!("the demonstration's writer stopped: {e}"),
    };
    match std::thread::Builder::new().name("demo-writer".to_owned()).spawn(work) {
        Ok(thread) => Writer { stop: Some(stop), thread: Some(thread) },
        Err(e) => {
            tracing::error!("the demonstration's writer could not be started: {e}");
            Writer { stop: None, thread: None }
        }
    }
}

struct Tally {
    written: u64,
    skipped: u64,
}

fn write(
    file: &Path,
    per_second: NonZeroU32,
    phase: &watch::Receiver<Phase>,
    stopped: &Receiver<()>,
) -> Result<Tally, rusqlite::Error> {
    let db = Connection::open(file)?;
    db.busy_timeout(BUSY_TIMEOUT)?;
    db.pragma_update(None, "synchronous", "NORMAL")?;
    let mut update = db.prepare(UPDATE)?;
    let begun = Nanos::now();
    let mut random = Random::new(begun.0);
    let mut pace = Pace::new(per_second, begun);
    let mut tally = Tally { written: 0, skipped: 0 };
    loop {
        let due = pace.due(Nanos::now());
        tally.skipped += due.skipped;
        for _ in 0..due.writes {
            let (id, price, stock) = (1 + random.below(PRODUCTS), price_cents(&mut random), random.below(1_000));
            update.execute(params![id, price, stock])?;
            tally.written += 1;
        }
        let wait = pace.next.since(Nanos::now()).min(LOOK_EVERY);
        let told_to_stop = matches!(stopped.recv_timeout(wait), Err(RecvTimeoutError::Disconnected));
        if told_to_stop || *phase.borrow() == Phase::Draining {
            return Ok(tally);
        }
    }
}

/// When writes are due: pure arithmetic on the times it is told.
struct Pace {
    interval: Duration,
    /// When the next write is due.
    next: Nanos,
}

#[derive(Debug, PartialEq, Eq)]
struct Due {
    writes: u64,
    skipped: u64,
}

impl Pace {
    fn new(per_second: NonZeroU32, now: Nanos) -> Self {
        Self { interval: Duration::from_secs(1) / per_second.get(), next: now }
    }

    /// Takes the writes that are due out of the schedule.
    fn due(&mut self, now: Nanos) -> Due {
        if now < self.next {
            return Due { writes: 0, skipped: 0 };
        }
        let interval_ns = self.interval.as_nanos().max(1) as u64;
        let due = (now.0 - self.next.0) / interval_ns + 1;
        let writes = due.min((CATCH_UP.as_nanos() as u64 / interval_ns).max(1));
        self.next = Nanos(self.next.0.saturating_add(due.saturating_mul(interval_ns)));
        Due { writes, skipped: due - writes }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::demo::database;

    fn per_second(n: u32) -> NonZeroU32 {
        NonZeroU32::new(n).expect("not zero")
    }

    #[test]
    fn writes_come_evenly() {
        let ms = |ms: u64| Nanos(ms * 1_000_000);
        let mut pace = Pace::new(per_second(100), ms(1000));
        assert_eq!(pace.due(ms(999)), Due { writes: 0, skipped: 0 });
        let writes: Vec<u64> = (1000..1040).map(|t| pace.due(ms(t)).writes).collect();
        assert!(writes.iter().enumerate().all(|(i, w)| *w == u64::from(i % 10 == 0)), "{writes:?}");
    }

    #[test]
    fn a_pause_is_made_up_for_within_bounds() {
        let ms = |ms: u64| Nanos(ms * 1_000_000);
        let mut pace = Pace::new(per_second(100), ms(0));
        assert_eq!(pace.due(ms(55)), Due { writes: 6, skipped: 0 });
        assert_eq!(pace.due(ms(10_059)), Due { writes: 10, skipped: 990 });
        assert_eq!(pace.next, ms(10_060));
        let mut slow = Pace::new(per_second(1), ms(0));
        assert_eq!(slow.due(ms(5_000)), Due { writes: 1, skipped: 5 });
    }

    #[test]
    fn it_changes_rows_and_stops_when_told() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("p.db");
        // Ids are drawn from all products; with all of them each write changes a row.
        database::create(&file, PRODUCTS, &mut |_| true).expect("created");
        let (_sender, phase) = watch::channel(Phase::Running);
        let writer = start(file.clone(), per_second(1000), phase);
        let db = Connection::open(&file).expect("opens");
        db.busy_timeout(BUSY_TIMEOUT).expect("settable");
        let recent =
            "SELECT count(*) FROM products WHERE updated_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-1 hour')";
        let changed = || db.query_row(recent, [], |r| r.get::<_, u32>(0)).expect("countable");
        let deadline = Instant::now() + Duration::from_secs(20);
        // Generated moments lie in 2025: none is recent.
        while changed() < 50 {
            assert!(Instant::now() < deadline, "no changes came");
            std::thread::yield_now();
        }
        // Returns only when the thread has ended.
        drop(writer);
    }

    #[test]
    fn a_drain_ends_it() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("p.db");
        database::create(&file, 10, &mut |_| true).expect("created");
        let (sender, phase) = watch::channel(Phase::Running);
        let mut writer = start(file, per_second(5), phase);
        sender.send_replace(Phase::Draining);
        let thread = writer.thread.take().expect("started");
        let deadline = Instant::now() + Duration::from_secs(20);
        while !thread.is_finished() {
            assert!(Instant::now() < deadline, "it goes on");
            std::thread::yield_now();
        }
    }
}
