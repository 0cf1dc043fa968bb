//! Probes of the log's end, which measure the freshness of the feed.
//!
//! A probe queries the log's end on a separate connection. Every commit before the query lies
//! before that end. When the feed has delivered everything up to it, it has delivered every commit
//! before the query. Nothing that arrives on the stream, such as a heartbeat, proves more.
//!
//! The log's end can be ahead of what is visible to reads. MariaDB reports the visible point as
//! `binlog_snapshot_file` and `binlog_snapshot_position`, which outside of a snapshot follow the
//! newest commit of the engines. It may be older if another session with a snapshot reads it at the
//! same moment, so it is not used to measure freshness. MySQL reports the visible transactions as a
//! set.

use std::collections::VecDeque;
use std::sync::Arc;

use hotrow_measure::clock::Nanos;
use hotrow_types::version::{GtidSet, Position, Version};
use mysql_async::{Conn, Error};
use tokio::sync::{Notify, mpsc};

use super::binlog::Xid;
use super::catalog_row::{self, CatalogRow};
use super::config::Tuning;
use super::connect::driver_error;
use super::place::LogPosition;
use super::server::{Flavor, Identity};
use super::start::Fence;
use super::xa_commits::Prepared;
use hotrow_source::LossCause;
use hotrow_source::feed_loop::{Ended, every, timely};
use hotrow_source::looks::{self, Looks};

/// Maximum of pending probes. Beyond it the newest is dropped, because the oldest is passed first.
const WAITING_MAX: usize = 64;

/// Answered probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    /// Time before the query was sent.
    pub(crate) sent_at: Nanos,
    /// Log end as a point.
    pub(crate) end: u64,
    /// Version that a read sent now sees at least.
    pub(crate) visible: Version,
    /// MySQL: every commit before the first probe is visible.
    pub(crate) is_settled: bool,
    pub(crate) prepared: Prepared,
}

/// End of the log.
#[derive(Clone, Debug)]
pub(crate) struct LogEnd {
    /// The end as a point.
    pub(crate) point: u64,
    /// Start for a follower: everything before it is visible or in `visible`. MariaDB's may lie
    /// before `point`.
    pub(crate) file: String,
    pub(crate) position: LogPosition,
    /// Version that is visible at least.
    pub(crate) visible: Version,
    /// MariaDB: prepared transactions, queried after `visible`.
    pub(crate) prepared: Prepared,
}

/// Queries the log's end and the visible version.
///
/// # Errors
/// Fails if the server fails or has no log.
pub(crate) async fn log_end(conn: &mut Conn, identity: &Identity) -> Result<LogEnd, Ended> {
    let missing =
        || Ended::new(LossCause::NotWatched, "the server has no binary log: `log_bin` is off");
    // Before the log's end is queried, so that the visible point is never after it.
    let visible = match identity.flavor {
        Flavor::MariaDb => Some(visible_end(conn).await?.ok_or_else(missing)?),
        Flavor::MySql => None,
    };
    let row = catalog_row::first(conn, identity.log_end_sql()).await.map_err(driver_error)?;
    let row = row.ok_or_else(missing)?;
    let file: String = row.required(0, "File").map_err(driver_error)?;
    let offset = row.required(1, "Position").map_err(driver_error)?;
    let end = log_position(&file, offset)?;
    match visible {
        Some((file, offset)) => {
            let position = log_position(&file, offset)?;
            let at = Position { incarnation: identity.incarnation, at: position.point() };
            Ok(LogEnd {
                point: end.point().max(at.at),
                file,
                position,
                visible: Version::Log(at),
                prepared: prepared(conn).await?,
            })
        }
        None => {
            let set = row.text(4, "Executed_Gtid_Set").map_err(driver_error)?;
            let set = GtidSet::parse(&set).map_err(|e| {
                Ended::new(
                    LossCause::Unavailable,
                    format!("the server's set of transactions cannot be read: {e}"),
                )
            })?;
            Ok(LogEnd {
                point: end.point(),
                file,
                position: end,
                visible: Version::Gtids(Arc::new(set)),
                prepared: Prepared::default(),
            })
        }
    }
}

/// Returns MariaDB's visible point. None without a log.
async fn visible_end(conn: &mut Conn) -> Result<Option<(String, u64)>, Ended> {
    let sql = "SHOW STATUS LIKE 'binlog\\_snapshot\\_%'";
    let rows = catalog_row::rows(conn, sql, catalog_row::name_and_value).await;
    let rows = rows.map_err(driver_error)?;
    let value = |name| {
        rows.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    };
    let file = value("binlog_snapshot_file").filter(|file| !file.is_empty());
    Ok(file.map(str::to_owned).zip(value("binlog_snapshot_position").and_then(|v| v.parse().ok())))
}

/// Returns MariaDB's prepared transactions, which need no privilege.
async fn prepared(conn: &mut Conn) -> Result<Prepared, Ended> {
    let asked_at = Nanos::now();
    let rows = catalog_row::rows(conn, "XA RECOVER", prepared_row).await.map_err(driver_error)?;
    Ok(Prepared { asked_at, xids: rows.into_iter().flatten().collect() })
}

/// Parses a row of XA RECOVER. Returns `None` for a name that no log can have.
fn prepared_row(row: &CatalogRow) -> Result<Option<Xid>, Error> {
    let format: i64 = row.required(0, "formatID")?;
    let global: usize = row.required(1, "gtrid_length")?;
    let branch: usize = row.required(2, "bqual_length")?;
    let data: Vec<u8> = row.required(3, "data")?;
    Ok(u32::try_from(format).ok().and_then(|format| Xid::listed(format, global, branch, &data)))
}

fn log_position(file: &str, offset: u64) -> Result<LogPosition, Ended> {
    LogPosition::new(file.as_bytes(), offset).ok_or_else(|| {
        Ended::new(
            LossCause::NotWatched,
            format!("no valid position in a binary log: {file}, {offset}"),
        )
    })
}

/// Probes periodically, when `early` asks for it, and when requests wait for a look, until the
/// receiver is dropped.
pub(crate) async fn run(
    conn: &mut Conn,
    identity: &Identity,
    tuning: &Tuning,
    out: mpsc::Sender<Probe>,
    early: &Notify,
    looks: Option<&Looks>,
) -> Ended {
    looks.into_iter().for_each(Looks::open);
    let mut tick = every(tuning.probe_every);
    let mut fence = Fence::of(identity);
    loop {
        // Before the query is sent: the answer covers every commit until now.
        let sent_at = Nanos::now();
        looks.into_iter().for_each(|looks| looks.sent(sent_at));
        let probe = async {
            let end = log_end(conn, identity).await?;
            let is_settled = fence.is_passed(conn).await?;
            let LogEnd { point: end, visible, prepared, .. } = end;
            Ok(Probe { sent_at, end, visible, is_settled, prepared })
        };
        let probe = match timely(tuning.silence_max, "the probe", probe).await {
            Ok(probe) => probe,
            Err(ended) => return ended,
        };
        if out.send(probe).await.is_err() {
            return Ended::new(LossCause::Unavailable, "the feed ended");
        }
        tokio::select! {
            _ = tick.tick() => {}
            () = early.notified() => {}
            () = looks::due(looks) => {}
        }
    }
}

#[derive(Debug)]
pub(crate) struct Progress {
    waiting: VecDeque<Probe>,
    /// Time and end of the newest passed probe.
    passed: Option<(Nanos, u64)>,
    /// End of the newest probe.
    newest: u64,
}

/// Progress report for the sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Advance {
    pub(crate) sent_at: Nanos,
    pub(crate) to: u64,
    /// Set only with a newly passed probe.
    pub(crate) visible: Option<Version>,
}

impl Progress {
    /// Creates the progress of a feed that delivers everything from `start` on.
    pub(crate) fn new(start: u64) -> Self {
        Self { waiting: VecDeque::new(), passed: None, newest: start }
    }

    /// Adds an answered probe. Returns false if the log's end went back, which means another log.
    pub(crate) fn probed(&mut self, probe: Probe) -> bool {
        if probe.end < self.newest {
            return false;
        }
        self.newest = probe.end;
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.pop_back();
        }
        self.waiting.push_back(probe);
        true
    }

    /// Returns the progress after everything before `delivered` was delivered. None until the first
    /// probe is passed.
    pub(crate) fn advance(&mut self, delivered: u64) -> Option<Advance> {
        let mut visible = None;
        while self.waiting.front().is_some_and(|probe| probe.end <= delivered) {
            let probe = self.waiting.pop_front()?;
            self.passed = Some((probe.sent_at, probe.end));
            visible = Some(probe.visible);
        }
        self.passed.map(|(sent_at, end)| Advance { sent_at, to: delivered.max(end), visible })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(sent_at: u64, end: u64) -> Probe {
        let (visible, prepared) = (Version::Unknown, Prepared::default());
        Probe { sent_at: Nanos(sent_at), end, visible, is_settled: true, prepared }
    }

    fn expected_advance(sent_at: u64, to: u64, visible: Option<Version>) -> Option<Advance> {
        Some(Advance { sent_at: Nanos(sent_at), to, visible })
    }

    #[test]
    fn only_a_passed_probe_proves_freshness() {
        let mut progress = Progress::new(100);
        assert_eq!(progress.advance(500), None);
        for p in [probe(1, 400), probe(2, 500), probe(3, 501)] {
            assert!(progress.probed(p));
        }
        assert_eq!(progress.advance(500), expected_advance(2, 500, Some(Version::Unknown)));
        assert_eq!(progress.advance(500), expected_advance(2, 500, None));
        assert_eq!(progress.advance(600), expected_advance(3, 600, Some(Version::Unknown)));
    }

    #[test]
    fn an_end_that_goes_back_is_another_log() {
        let mut progress = Progress::new(100);
        assert!(
            progress.probed(probe(1, 100))
                && progress.probed(probe(2, 300))
                && progress.probed(probe(3, 300))
        );
        assert!(!progress.probed(probe(4, 299)));
        assert!(!Progress::new(100).probed(probe(1, 99)));
    }

    #[test]
    fn a_feed_far_behind_keeps_the_oldest_probes() {
        let mut progress = Progress::new(0);
        assert!((1..1000).all(|n| progress.probed(probe(n, n * 1000))));
        assert_eq!(progress.waiting.len(), WAITING_MAX);
        assert_eq!(progress.waiting.back(), Some(&probe(999, 999_000)));
        assert_eq!(progress.advance(5001), expected_advance(5, 5001, Some(Version::Unknown)));
    }
}
