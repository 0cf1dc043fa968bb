//! Reads of standbys: the choice of one, three statements on a connection of its own, and what
//! follows from a refusal.
//!
//! The statements of one read, each in a transaction of its own: what the standby has replayed, the
//! rows, its state. `hotrow_source::standby` judges the three. A standby that cannot answer is left
//! alone for a while; nothing of it counts for the primary's limits and breaker.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures_core::Stream as _;
use hotrow_types::key::{CollectionId, Key};
use hotrow_types::version::Position;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::types::PgLsn;
use tokio_postgres::{Client, Error};

use super::config::Config;
use super::connect::{Settings, full_text};
use super::plan::ReadPlan;
use super::pool::{Connection, Connector, Pool, fault};
use super::reader::Answer;
use super::shared::{Plan, Shared};
use super::target::Target;
use super::{OpenError, PostgresSource};
use hotrow_source::attempts::Fault;
use hotrow_source::background::Background;
use hotrow_source::json::Pace;
use hotrow_source::standby::{StandbyRead, StandbyRefusal, StandbyView, StateAfter, judge};
use hotrow_source::{Room, Row, RowBudget, SourceError};

/// Most standbys that one read asks.
const ASKED_MAX: usize = 2;
/// Longest wait for a connection: the primary can answer as well.
const LEASE_TIMEOUT: Duration = Duration::from_millis(5);
/// Part of the time limit of a read that a standby may use.
const READ_TIMEOUT_DIVISOR: u32 = 4;
/// Time for which a standby that could not answer is left alone: the first time, and the longest.
const PAUSE: std::ops::Range<Duration> = Duration::from_millis(50)..Duration::from_secs(2);
/// Time for which a standby that was behind is taken to be still there.
const REPLAYED_VALID: Duration = Duration::from_millis(5);
/// Most bytes between the end of a record and the start of the next: the header of a page, which
/// is longest at the start of a segment (SizeOfXLogLongPHD in PostgreSQL's xlog_internal.h).
const HEADER_BYTES_MAX: u64 = 40;

const REPLAYED_SQL: &str = "SELECT pg_catalog.pg_last_wal_replay_lsn()";
const STATE_SQL: &str = "SELECT pg_catalog.pg_is_in_recovery(), \
    pg_catalog.pg_last_wal_replay_lsn(), pg_catalog.pg_last_wal_receive_lsn(), \
    (SELECT received_tli FROM pg_catalog.pg_stat_wal_receiver WHERE status = 'streaming')";

/// Parses the connection strings of the standbys.
///
/// # Errors
/// The first fault found in one of them.
pub(crate) fn targets(urls: &[String]) -> Result<Vec<Target>, OpenError> {
    let target = |url: &String| {
        Target::parse(url).map_err(|error| OpenError::Target { setting: "read_urls", error })
    };
    urls.iter().map(target).collect()
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

/// Refusal with its cause, for the log.
type Refused = (StandbyRefusal, String);

impl PostgresSource {
    pub(super) async fn read_of_standby(
        &self,
        collection: CollectionId,
        keys: &[Key],
        budget: &RowBudget,
        floor: Position,
    ) -> Result<StandbyRead, StandbyRefusal> {
        let standbys = &self.standbys;
        let count = standbys.all.len();
        let first = standbys.next.fetch_add(1, Ordering::Relaxed);
        let mut last = StandbyRefusal::Unreachable;
        let mut asked = 0;
        for standby in (0..count).filter_map(|i| standbys.all.get((first + i) % count)) {
            if asked >= ASKED_MAX {
                break;
            }
            if let Some(refusal) = standby.declines(floor.at) {
                last = refusal;
                continue;
            }
            asked += 1;
            let deadline = Instant::now() + standbys.read_timeout;
            budget.restart();
            match self.ask(standby, (collection, keys, budget), floor, deadline).await {
                Ok(read) => {
                    standby.answered();
                    return Ok(read);
                }
                Err((refusal, why)) => {
                    standby.refused(refusal, why);
                    last = refusal;
                }
            }
        }
        budget.restart();
        Err(last)
    }

    async fn ask(
        &self,
        standby: &Standby,
        (collection, keys, budget): (CollectionId, &[Key], &RowBudget),
        floor: Position,
        deadline: Instant,
    ) -> Result<StandbyRead, Refused> {
        let unreachable = |why: &str| (StandbyRefusal::Unreachable, why.to_owned());
        let plan = self.shared.published.plan().map_err(|why| unreachable(&why))?;
        let lease_until = deadline.min(Instant::now() + LEASE_TIMEOUT);
        let lease = standby.pool.lease(plan.generation, &plan.identity, lease_until).await;
        let mut lease = lease.map_err(|error| match error {
            SourceError::Timeout { detail } => (StandbyRefusal::Busy, detail),
            other => (StandbyRefusal::Unreachable, other.to_string()),
        })?;
        let index = usize::from(collection.0);
        let Some(Ok(statement)) = plan.collections.get(index).cloned() else {
            lease.release();
            return Err((StandbyRefusal::Failed, "the collection cannot be read".into()));
        };
        let what = (collection, keys, budget);
        let read =
            self.statements(standby, &mut lease.connection, (&plan, &statement), what, floor);
        match timeout_at(deadline, read).await {
            Ok(Ok(Ok(read))) => {
                lease.release();
                Ok(read)
            }
            // The refusals that leave the connection usable.
            Ok(Ok(Err(refused @ (StandbyRefusal::Behind, _)))) => {
                lease.release();
                Err(refused)
            }
            // The drop of the lease closes the connection.
            Ok(Ok(Err(refused))) => Err(refused),
            Ok(Err(error)) => {
                let class = class_of(&error);
                if class == StandbyRefusal::Data {
                    lease.release();
                }
                Err((class, full_text(&error)))
            }
            Err(_) => Err((StandbyRefusal::Timeout, "the standby did not answer in time".into())),
        }
    }

    /// Runs the three statements of a read, one after the other.
    async fn statements(
        &self,
        standby: &Standby,
        connection: &mut Connection,
        (plan, statement): (&Plan, &Arc<ReadPlan>),
        (collection, keys, budget): (CollectionId, &[Key], &RowBudget),
        floor: Position,
    ) -> Result<Result<StandbyRead, Refused>, Error> {
        let index = usize::from(collection.0);
        let prepared = connection.prepared(index, statement).await?;
        let client = &connection.session.client;
        let replayed = replayed(client).await?;
        standby.note_replayed(replayed, floor.at.max(self.shared.log_end()));
        if replayed.is_none_or(|replayed| replayed < floor.at) {
            return Ok(Err((StandbyRefusal::Behind, "it has not replayed enough".into())));
        }
        let rows = client.query_raw(&prepared, statement.arguments(keys)).await?;
        let mut rows = pin!(rows);
        let mut answer = Answer::new(self, None, statement, index, keys);
        let mut pace = Pace::default();
        let mut ended = Room::Taken;
        let other_shape = "its table has another shape than the primary's";
        while let Some(row) = poll_fn(|cx| rows.as_mut().poll_next(cx)).await {
            let row = row?;
            if ended != Room::Taken {
                // Read to the end, so that the connection can be used again.
                continue;
            }
            match answer.take(&row, budget) {
                Ok((Room::Taken, bytes)) => pace.wrote(bytes).await,
                Ok((room, _)) => ended = room,
                Err(_) => return Ok(Err((StandbyRefusal::Failed, other_shape.into()))),
            }
        }
        let rows: Vec<Row> = answer.into_rows(ended);
        let state = state(client).await?;
        let timeline = plan.identity.timeline;
        let replayed = replayed.unwrap_or_default();
        let judged = judge(floor.at, replayed, &state, timeline, HEADER_BYTES_MAX);
        Ok(judged.map(|seen| StandbyRead { rows, seen }).map_err(|refusal| {
            (refusal, format!("it is in the state {state:?}, the feed is on timeline {timeline}"))
        }))
    }
}

async fn replayed(client: &Client) -> Result<Option<u64>, Error> {
    let row = client.query_typed(REPLAYED_SQL, &[]).await?;
    let lsn = row.first().map(|row| row.try_get::<_, Option<PgLsn>>(0)).transpose()?;
    Ok(lsn.flatten().map(u64::from))
}

async fn state(client: &Client) -> Result<StateAfter, Error> {
    let rows = client.query_typed(STATE_SQL, &[]).await?;
    let Some(row) = rows.first() else {
        return Ok(StateAfter { is_in_recovery: false, timeline: None, replayed: 0, received: 0 });
    };
    let lsn = |at: usize| {
        row.try_get::<_, Option<PgLsn>>(at).map(|lsn| lsn.map(u64::from).unwrap_or_default())
    };
    let timeline: Option<i32> = row.try_get(3)?;
    Ok(StateAfter {
        is_in_recovery: row.try_get(0)?,
        timeline: timeline.map(i32::cast_unsigned),
        replayed: lsn(1)?,
        received: lsn(2)?,
    })
}

/// Classifies an error of a standby. Source: PostgreSQL documentation, "Error Codes" and "Handling
/// Query Conflicts".
fn class_of(error: &Error) -> StandbyRefusal {
    let Some(db) = error.as_db_error() else { return StandbyRefusal::Unreachable };
    match db.code().code() {
        "40001" | "40P01" => StandbyRefusal::Conflict,
        "57014" => StandbyRefusal::Timeout,
        code if code.starts_with("57") || code.starts_with("08") => StandbyRefusal::Unreachable,
        _ => match fault(error) {
            Fault::Query(SourceError::Data { .. }) => StandbyRefusal::Data,
            _ => StandbyRefusal::Failed,
        },
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
