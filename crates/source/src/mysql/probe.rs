//! Probes of the log's end: which of them the feed has passed, and so how fresh it certainly is.
//!
//! A probe asks, on a connection of its own, where the log ends. Whatever was committed before the question was sent lies
//! before that end. Once the feed has delivered everything up to there, it has delivered everything that was committed
//! before the question was sent; nothing that arrives (a heartbeat, say) proves more.
//!
//! MariaDB tells the end of what is visible (`binlog_snapshot_file` and `…_position`, which outside of a snapshot follow the
//! newest commit that its engines have done); MySQL tells the end of the log, which can be ahead of that, and the set of what
//! is visible.

use std::collections::VecDeque;
use std::sync::Arc;

use hotrow_cache::version::{GtidSet, Position, Version};
use hotrow_measure::clock::Nanos;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Row};
use tokio::sync::mpsc;

use super::place::Place;
use super::server::{Flavor, Identity};
use super::session::{Ended, every, timely};
use super::tuning::Tuning;
use crate::LossCause;

/// Most probes that wait. When there are more, the newest gives way: the oldest is the next one to be passed.
const WAITING_MAX: usize = 64;

/// An answered probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    /// When the question was sent.
    pub(crate) sent_at: Nanos,
    /// The log's end, as a point.
    pub(crate) end: u64,
    /// What a read sees that is sent now.
    pub(crate) visible: Version,
}

/// The log's end.
#[derive(Clone, Debug)]
pub(crate) struct End {
    /// Name of the file.
    pub(crate) file: String,
    pub(crate) place: Place,
    /// What is visible: on MariaDB what lies before `place`.
    pub(crate) visible: Version,
}

/// Asks where the log ends.
///
/// # Errors
/// When the server fails, or has no log.
pub(crate) async fn log_end(conn: &mut Conn, identity: &Identity) -> Result<End, Ended> {
    let (file, offset, executed) = match identity.flavor {
        Flavor::MariaDb => {
            let rows: Vec<(String, String)> = conn.query("SHOW STATUS LIKE 'binlog_snapshot_%'").await?;
            let value = |name| rows.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.clone());
            (value("binlog_snapshot_file"), value("binlog_snapshot_position").and_then(|v| v.parse().ok()), None)
        }
        Flavor::MySql => {
            let row: Option<Row> = conn.query_first(identity.log_end_sql()).await?;
            let text = |i: usize| row.as_ref().and_then(|row| row.get_opt::<String, _>(i)?.ok());
            let offset = row.as_ref().and_then(|row| row.get_opt::<u64, _>(1)?.ok());
            (text(0), offset, Some(text(4).unwrap_or_default()))
        }
    };
    let missing =
        || Ended::new(LossCause::NotWatched, "the server does not tell where its binary log ends: `log_bin` is off");
    let (file, offset) = (file.filter(|file| !file.is_empty()).ok_or_else(missing)?, offset.ok_or_else(missing)?);
    let place = Place::new(file.as_bytes(), offset);
    let place =
        place.ok_or_else(|| Ended::new(LossCause::NotWatched, format!("no place in a log: {file}, {offset}")))?;
    let visible = match executed {
        None => Version::Log(Position { incarnation: identity.incarnation, at: place.point() }),
        Some(set) => Version::Gtids(Arc::new(GtidSet::parse(&set).map_err(|e| {
            Ended::new(LossCause::Unavailable, format!("the server's set of transactions cannot be read: {e}"))
        })?)),
    };
    Ok(End { file, place, visible })
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
        let probe = Probe { sent_at, end: end.place.point(), visible: end.visible };
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
