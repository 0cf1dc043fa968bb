//! Probes of the log's end: which of them the feed has passed, and so how fresh it certainly is.
//!
//! A probe asks, on a connection of its own, where the log ends. Whatever was committed before the question was sent lies
//! before that end. Once the feed has delivered everything up to there, it has delivered everything that was committed
//! before the question was sent; nothing that arrives (a heartbeat, say) proves more.
//!
//! The log's end can be ahead of what is visible. That, MariaDB tells as a point (`binlog_snapshot_file` and `…_position`, which
//! outside of a snapshot follow the newest commit that its engines have done), MySQL as a set of transactions. MariaDB's point
//! may be an older one, where a session that holds a snapshot asks at the same moment: it is no end to measure freshness by.

use std::collections::VecDeque;
use std::sync::Arc;

use hotrow_cache::version::{GtidSet, Position, Version};
use hotrow_measure::clock::Nanos;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Row};
use tokio::sync::mpsc;

use super::place::Place;
use super::server::{Flavor, Identity};
use super::session::{Ended, timely};
use super::tuning::Tuning;
use crate::LossCause;
use crate::life::every;

/// Most probes that wait. When there are more, the newest gives way: the oldest is the next one to be passed.
const WAITING_MAX: usize = 64;

/// An answered probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    /// When the question was sent.
    pub(crate) sent_at: Nanos,
    /// The log's end, as a point.
    pub(crate) end: u64,
    /// What a read sees that is sent now, at least.
    pub(crate) visible: Version,
}

/// The log's end.
#[derive(Clone, Debug)]
pub(crate) struct End {
    /// The end itself, as a point.
    pub(crate) point: u64,
    /// Where to begin to follow: everything before it is visible, or is named by `visible`. MariaDB's may lie before `point`.
    pub(crate) file: String,
    pub(crate) place: Place,
    /// What is visible, at least.
    pub(crate) visible: Version,
}

/// Asks where the log ends, and what is visible.
///
/// # Errors
/// When the server fails, or has no log.
pub(crate) async fn log_end(conn: &mut Conn, identity: &Identity) -> Result<End, Ended> {
    let missing =
        || Ended::new(LossCause::NotWatched, "the server does not tell where its binary log ends: `log_bin` is off");
    // What is visible is asked first, so that the end is never before it.
    let visible = match identity.flavor {
        Flavor::MariaDb => Some(visible_end(conn).await?.ok_or_else(missing)?),
        Flavor::MySql => None,
    };
    let row: Row = conn.query_first(identity.log_end_sql()).await?.ok_or_else(missing)?;
    let text = |i: usize| row.get_opt::<String, _>(i)?.ok();
    let file = text(0).ok_or_else(missing)?;
    let end = place(&file, row.get_opt::<u64, _>(1).and_then(Result::ok).ok_or_else(missing)?)?;
    match visible {
        Some((file, offset)) => {
            let place = place(&file, offset)?;
            let at = Position { incarnation: identity.incarnation, at: place.point() };
            Ok(End { point: end.point().max(at.at), file, place, visible: Version::Log(at) })
        }
        None => {
            let set = GtidSet::parse(&text(4).unwrap_or_default()).map_err(|e| {
                Ended::new(LossCause::Unavailable, format!("the server's set of transactions cannot be read: {e}"))
            })?;
            Ok(End { point: end.point(), file, place: end, visible: Version::Gtids(Arc::new(set)) })
        }
    }
}

/// MariaDB's point up to which everything is visible; none without a log.
async fn visible_end(conn: &mut Conn) -> Result<Option<(String, u64)>, Ended> {
    let rows: Vec<(String, String)> = conn.query("SHOW STATUS LIKE 'binlog\\_snapshot\\_%'").await?;
    let value = |name| rows.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str());
    let file = value("binlog_snapshot_file").filter(|file| !file.is_empty());
    Ok(file.map(str::to_owned).zip(value("binlog_snapshot_position").and_then(|v| v.parse().ok())))
}

fn place(file: &str, offset: u64) -> Result<Place, Ended> {
    Place::new(file.as_bytes(), offset)
        .ok_or_else(|| Ended::new(LossCause::NotWatched, format!("no place in a log: {file}, {offset}")))
}

/// Probes again and again, for as long as somebody wants to know.
pub(crate) async fn run(conn: &mut Conn, identity: &Identity, tuning: &Tuning, out: mpsc::Sender<Probe>) -> Ended {
    let mut tick = every(tuning.probe_every);
    loop {
        // Before the question is sent: what was committed by now is seen by the answer.
        let sent_at = Nanos::now();
        let end = match timely(tuning.silence_max, "the probe", log_end(conn, identity)).await {
            Ok(end) => end,
            Err(ended) => return ended,
        };
        let probe = Probe { sent_at, end: end.point, visible: end.visible };
        if out.send(probe).await.is_err() {
            return Ended::new(LossCause::Unavailable, "the feed ended");
        }
        tick.tick().await;
    }
}

/// How far the feed is.
#[derive(Debug)]
pub(crate) struct Progress {
    waiting: VecDeque<Probe>,
    /// The newest passed probe's time and end.
    passed: Option<(Nanos, u64)>,
    /// The newest probe's end.
    newest: u64,
}

/// What to tell the sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Advance {
    pub(crate) sent_at: Nanos,
    pub(crate) to: u64,
    /// Only with a probe that was not told before.
    pub(crate) visible: Option<Version>,
}

impl Progress {
    /// A feed that delivers everything from `start` on.
    pub(crate) fn new(start: u64) -> Self {
        Self { waiting: VecDeque::new(), passed: None, newest: start }
    }

    /// A probe was answered. False when the log's end went back: then it is another log.
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

    /// What can be told now that everything before `delivered` is delivered; none as long as no probe was passed.
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
        Probe { sent_at: Nanos(sent_at), end, visible: Version::Unknown }
    }

    fn told(sent_at: u64, to: u64, visible: Option<Version>) -> Option<Advance> {
        Some(Advance { sent_at: Nanos(sent_at), to, visible })
    }

    #[test]
    fn only_a_passed_probe_makes_fresh() {
        let mut progress = Progress::new(100);
        assert_eq!(progress.advance(500), None);
        for p in [probe(1, 400), probe(2, 500), probe(3, 501)] {
            assert!(progress.probed(p));
        }
        assert_eq!(progress.advance(500), told(2, 500, Some(Version::Unknown)));
        assert_eq!(progress.advance(500), told(2, 500, None));
        assert_eq!(progress.advance(600), told(3, 600, Some(Version::Unknown)));
    }

    #[test]
    fn an_end_that_goes_back_is_another_log() {
        let mut progress = Progress::new(100);
        assert!(progress.probed(probe(1, 100)) && progress.probed(probe(2, 300)) && progress.probed(probe(3, 300)));
        assert!(!progress.probed(probe(4, 299)));
        assert!(!Progress::new(100).probed(probe(1, 99)));
    }

    #[test]
    fn a_feed_far_behind_keeps_the_oldest_probes() {
        let mut progress = Progress::new(0);
        assert!((1..1000).all(|n| progress.probed(probe(n, n * 1000))));
        assert_eq!(progress.waiting.len(), WAITING_MAX);
        assert_eq!(progress.waiting.back(), Some(&probe(999, 999_000)));
        assert_eq!(progress.advance(5001), told(5, 5001, Some(Version::Unknown)));
    }
}
