//! Standbys that answer reads: their connections, and what follows from a refusal.
//!
//! A standby that cannot answer is left alone for a while; nothing of it counts for the primary's
//! limits and breaker.

mod read;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::config::Config;
use super::connect::Settings;
use super::pool::{Connector, Pool};
use super::shared::Shared;
use super::target::{Target, TargetError};
use hotrow_source::background::Background;
use hotrow_source::standby::{StandbyRefusal, StandbyView};

/// Part of the time limit of a read that a standby may use.
const READ_TIMEOUT_DIVISOR: u32 = 4;
/// Time for which a standby that could not answer is left alone: the first time, and the longest.
const PAUSE: std::ops::Range<Duration> = Duration::from_millis(50)..Duration::from_secs(2);
/// Time for which a standby that was behind is taken to be still there.
const REPLAYED_VALID: Duration = Duration::from_millis(5);

/// Parses the connection strings of the standbys.
///
/// # Errors
/// The first fault found in one of them.
pub(crate) fn targets(urls: &[String]) -> Result<Vec<Target>, TargetError> {
    urls.iter().map(|url| Target::parse(url)).collect()
}

/// The configured standbys.
pub(crate) struct Standbys {
    all: Vec<Standby>,
    /// Number of the next read: reads begin with one standby after the other.
    next: AtomicUsize,
    read_timeout: Duration,
}

/// One standby.
struct Standby {
    name: String,
    pool: Arc<Pool>,
    reads: AtomicU64,
    health: Mutex<Health>,
}

/// What the last reads of a standby showed.
#[derive(Default)]
struct Health {
    /// What it had replayed, and when it said so.
    replayed: Option<(u64, Instant)>,
    lag_bytes: Option<u64>,
    failures: u32,
    /// Until when it is left alone, and why.
    trouble: Option<(Instant, String)>,
}

impl Standbys {
    pub(crate) fn start(
        targets: Vec<Target>,
        config: &Config,
        settings: Settings,
        shared: &Arc<Shared>,
        background: &Background,
    ) -> Self {
        let start = |target: Target| {
            let hosts: Vec<String> = target.hosts.iter().map(ToString::to_string).collect();
            let shared = Arc::clone(shared);
            let connector = Connector { target, settings, shared, is_standby: true };
            let connections = config.server.reads_in_flight;
            Standby {
                name: hosts.join(","),
                pool: Pool::start_with(connector, None, connections, background),
                reads: AtomicU64::new(0),
                health: Mutex::default(),
            }
        };
        Self {
            all: targets.into_iter().map(start).collect(),
            next: AtomicUsize::new(0),
            read_timeout: config.server.read_timeout / READ_TIMEOUT_DIVISOR,
        }
    }

    pub(crate) fn views(&self) -> Vec<StandbyView> {
        let view = |standby: &Standby| {
            let health = standby.health.lock();
            let paused = health.trouble.as_ref().filter(|(until, _)| *until > Instant::now());
            StandbyView {
                name: standby.name.clone(),
                reads_total: standby.reads.load(Ordering::Relaxed),
                lag_bytes: health.lag_bytes,
                trouble: paused
                    .map(|(_, why)| why.clone())
                    .or_else(|| standby.pool.outage().health().err()),
            }
        };
        self.all.iter().map(view).collect()
    }
}

impl Standby {
    /// Returns why it need not be asked now, if that is known.
    fn declines(&self, floor: u64) -> Option<StandbyRefusal> {
        let health = self.health.lock();
        let now = Instant::now();
        if health.trouble.as_ref().is_some_and(|(until, _)| *until > now) {
            return Some(StandbyRefusal::Unreachable);
        }
        let is_behind =
            |(replayed, at): (u64, Instant)| replayed < floor && now < at + REPLAYED_VALID;
        health.replayed.is_some_and(is_behind).then_some(StandbyRefusal::Behind)
    }

    fn note_replayed(&self, replayed: Option<u64>, log_end: u64) {
        let mut health = self.health.lock();
        health.replayed = replayed.map(|replayed| (replayed, Instant::now()));
        health.lag_bytes = replayed.map(|replayed| log_end.saturating_sub(replayed));
    }

    fn answered(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let mut health = self.health.lock();
        if health.failures > 0 {
            tracing::info!(standby = %self.name, "the standby answers reads again");
        }
        (health.failures, health.trouble) = (0, None);
    }

    /// Leaves it alone for a while, unless the reason passes by itself.
    fn refused(&self, refusal: StandbyRefusal, why: String) {
        match refusal {
            StandbyRefusal::Behind
            | StandbyRefusal::Busy
            | StandbyRefusal::Conflict
            | StandbyRefusal::Data
            | StandbyRefusal::FeedBehind => return,
            StandbyRefusal::Unreachable
            | StandbyRefusal::NotStreaming
            | StandbyRefusal::OtherTimeline
            | StandbyRefusal::Promoted
            | StandbyRefusal::Timeout
            | StandbyRefusal::Failed => {}
        }
        let mut health = self.health.lock();
        if health.failures == 0 {
            tracing::warn!(
                standby = %self.name,
                reason = refusal.label(),
                error = %why,
                "a standby cannot answer reads; the primary is read"
            );
        }
        let pause = PAUSE.end.min(PAUSE.start * (1 << health.failures.min(6)));
        health.failures = health.failures.saturating_add(1);
        health.trouble = Some((Instant::now() + pause, why));
    }
}
