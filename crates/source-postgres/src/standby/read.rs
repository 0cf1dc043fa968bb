//! One read of a standby: three statements, each in a transaction of its own: what the standby has
//! replayed, the rows, its state. `hotrow_source::standby` judges the three.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_core::Stream as _;
use hotrow_types::key::{CollectionId, Key};
use hotrow_types::version::Position;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::types::PgLsn;
use tokio_postgres::{Client, Error};

use super::Standby;
use crate::PostgresSource;
use crate::error::full_text;
use crate::plan::ReadPlan;
use crate::pool::{Connection, fault};
use crate::reader::Answer;
use crate::shared::Plan;
use hotrow_source::attempts::Fault;
use hotrow_source::json::Pace;
use hotrow_source::standby::{StandbyRead, StandbyRefusal, StateAfter, judge};
use hotrow_source::{Room, Row, RowBudget, SourceError};

/// Most standbys that one read asks.
const ASKED_MAX: usize = 2;
/// Longest wait for a connection: the primary can answer as well.
const LEASE_TIMEOUT: Duration = Duration::from_millis(5);
/// Most bytes between the end of a record and the start of the next: the header of a page, which
/// is longest at the start of a segment (SizeOfXLogLongPHD in PostgreSQL's xlog_internal.h).
const HEADER_BYTES_MAX: u64 = 40;

const REPLAYED_SQL: &str = "SELECT pg_catalog.pg_last_wal_replay_lsn()";
const STATE_SQL: &str = "SELECT pg_catalog.pg_is_in_recovery(), \
    pg_catalog.pg_last_wal_replay_lsn(), pg_catalog.pg_last_wal_receive_lsn(), \
    (SELECT received_tli FROM pg_catalog.pg_stat_wal_receiver WHERE status = 'streaming')";

/// Refusal with its cause, for the log.
type Refused = (StandbyRefusal, String);

/// Read of keys from a standby.
struct KeyQuery<'a> {
    plan: &'a Plan,
    statement: &'a Arc<ReadPlan>,
    /// Place of the collection.
    index: usize,
    keys: &'a [Key],
    budget: &'a RowBudget,
    /// Point that the standby must have replayed.
    floor: Position,
}

impl PostgresSource {
    pub(crate) async fn read_of_standby(
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
            match self.ask(standby, collection, keys, budget, floor, deadline).await {
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
        collection: CollectionId,
        keys: &[Key],
        budget: &RowBudget,
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
        let query = KeyQuery { plan: &plan, statement: &statement, index, keys, budget, floor };
        let read = self.statements(standby, &mut lease.connection, &query);
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
        query: &KeyQuery<'_>,
    ) -> Result<Result<StandbyRead, Refused>, Error> {
        let &KeyQuery { plan, statement, index, keys, budget, floor } = query;
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
