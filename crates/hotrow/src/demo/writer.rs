//! `--demo-writes N`: a client that changes the data at an even pace over its own connection.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use hotrow_measure::clock::Nanos;
use hotrow_supervisor::{self as supervisor, Supervisor};
use rusqlite::{Connection, params};
use tokio::sync::watch;

use super::PRODUCTS;
use super::products::Random;
use super::products::price_cents;
use hotrow_cli::signals::Phase;

/// Highest rate of writes per second; each write is a transaction of its own.
pub const WRITES_PER_SECOND_MAX: u32 = 20_000;
/// Lateness that the writer makes up for. Older writes are skipped, so that no burst follows a
/// pause.
const CATCH_UP: Duration = Duration::from_millis(100);
/// Longest wait between two checks of the phase.
const PHASE_CHECK_INTERVAL: Duration = Duration::from_millis(100);
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);
const UPDATE: &str = "UPDATE products SET price_cents = ?2, stock = ?3, updated_at = \
    strftime('%Y-%m-%dT%H:%M:%fZ', 'now') WHERE id = ?1";

/// Running writer; dropping it stops the thread and waits for its end.
#[derive(Debug)]
pub struct Writer {
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<Option<()>>>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.stop.take());
        // The supervisor catches and logs panics.
        _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Starts to change `per_second` random products of `file` each second.
pub fn start(
    file: PathBuf,
    per_second: NonZeroU32,
    phase: watch::Receiver<Phase>,
    supervisor: &Supervisor,
) -> Writer {
    let (stop, stopped) = sync_channel(0);
    let ending = phase.clone();
    let is_stopping = move || *ending.borrow() == Phase::Draining;
    let work = move || {
        match write(&file, per_second, &phase, &stopped) {
            Ok(Tally { written, skipped }) => {
                tracing::info!(written, skipped, "the demonstration's writer stopped");
            }
            Err(e) => tracing::error!("the demonstration's writer stopped: {e}"),
        }
        Ok(())
    };
    match supervisor.spawn("demo-writer", is_stopping, || (), work) {
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
        supervisor::turn();
        let due = pace.due(Nanos::now());
        tally.skipped += due.skipped;
        for _ in 0..due.writes {
            let id = 1 + random.below(PRODUCTS);
            let price = price_cents(&mut random);
            let stock = random.below(1_000);
            update.execute(params![id, price, stock])?;
            tally.written += 1;
        }
        let wait = pace.next.since(Nanos::now()).min(PHASE_CHECK_INTERVAL);
        let stop_requested =
            matches!(stopped.recv_timeout(wait), Err(RecvTimeoutError::Disconnected));
        if stop_requested || *phase.borrow() == Phase::Draining {
            return Ok(tally);
        }
    }
}

/// Schedule of the writes: pure arithmetic on times from outside.
struct Pace {
    interval: Duration,
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

    /// Removes the due writes from the schedule.
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
    fn writes_are_evenly_paced() {
        let ms = |ms: u64| Nanos(ms * 1_000_000);
        let mut pace = Pace::new(per_second(100), ms(1000));
        assert_eq!(pace.due(ms(999)), Due { writes: 0, skipped: 0 });
        let writes: Vec<u64> = (1000..1040).map(|t| pace.due(ms(t)).writes).collect();
        assert!(writes.iter().enumerate().all(|(i, w)| *w == u64::from(i % 10 == 0)), "{writes:?}");
    }

    #[test]
    fn lateness_is_made_up_for_within_bounds() {
        let ms = |ms: u64| Nanos(ms * 1_000_000);
        let mut pace = Pace::new(per_second(100), ms(0));
        assert_eq!(pace.due(ms(55)), Due { writes: 6, skipped: 0 });
        assert_eq!(pace.due(ms(10_059)), Due { writes: 10, skipped: 990 });
        assert_eq!(pace.next, ms(10_060));
        let mut slow = Pace::new(per_second(1), ms(0));
        assert_eq!(slow.due(ms(5_000)), Due { writes: 1, skipped: 5 });
    }

    #[test]
    fn it_changes_rows_and_stops_when_dropped() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("p.db");
        // Ids are drawn from all products, so with all of them present each write changes a row.
        database::create(&file, PRODUCTS, &mut |_| true).expect("created");
        let (_sender, phase) = watch::channel(Phase::Running);
        let writer = start(file.clone(), per_second(1000), phase, &Supervisor::default());
        let db = Connection::open(&file).expect("opens");
        db.busy_timeout(BUSY_TIMEOUT).expect("settable");
        let recent = "SELECT count(*) FROM products WHERE updated_at > \
            strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-1 hour')";
        let changed = || db.query_row(recent, [], |r| r.get::<_, u32>(0)).expect("countable");
        let deadline = Instant::now() + Duration::from_secs(20);
        // Generated times lie in 2025: none is recent.
        while changed() < 50 {
            assert!(Instant::now() < deadline, "no changes arrived");
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
        let mut writer = start(file, per_second(5), phase, &Supervisor::default());
        sender.send_replace(Phase::Draining);
        let thread = writer.thread.take().expect("started");
        let deadline = Instant::now() + Duration::from_secs(20);
        while !thread.is_finished() {
            assert!(Instant::now() < deadline, "the writer still runs");
            std::thread::yield_now();
        }
    }
}
