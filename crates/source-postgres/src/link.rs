//! Start of a feed session: the server, its catalogue, a replication session, a slot, the fence.
//!
//! A slot delivers only commits after its first position. The *fence* waits until all earlier
//! commits are visible to readers, so that no change falls between reads and feed.

use std::pin::pin;

use tokio::time::{Instant, sleep_until};
use tokio_postgres::Client;

use super::Finding;
use super::config::{Config, Tuning};
use super::connect;
use super::error::{full_text, sql_error, timely};
use super::probe::LogLayout;
use super::server::Identity;
use super::stream::{self, ConnectError, Stream};
use super::target::{self, Host, Target};
use super::visibility::{Fence, blockers, parse_snapshot};
use super::wire::replication::{Lsn, SlotName, quote_identifier};
use super::wire::startup::{self, Binding, Login};
use super::wire::{Wire, WireError, deadline};
use hotrow_source::feed_loop::Ended;
use hotrow_source::{LossCause, preflight};
use hotrow_types::version::Snapshot;

/// Multiple of the first wait after which the same blockers are logged again.
const REMIND_FACTOR: u32 = 30;

/// Inputs of a connection to the server.
#[derive(Clone, Copy)]
pub(crate) struct Connector<'a> {
    pub(crate) config: &'a Config,
    pub(crate) target: &'a Target,
    pub(crate) tuning: &'a Tuning,
}

impl Connector<'_> {
    /// Opens the feed's own SQL session with the primary.
    ///
    /// # Errors
    /// The error of each host.
    pub(crate) async fn connect_sql(&self) -> Result<connect::Session, Ended> {
        let statement_timeout = self.tuning.silence_max;
        let settings = self.config.server.session(statement_timeout);
        let session = connect::primary(self.target, settings, None)
            .await
            .map_err(|errors| Ended::new(LossCause::Unavailable, preflight::joined(&errors)))?;
        // The publication may have to be created; our own writes wait for no standby.
        const SQL: &str = "SET default_transaction_read_only = off; SET synchronous_commit = local";
        timely(
            statement_timeout,
            "setting up the feed's session",
            session.client.batch_execute(SQL),
        )
        .await?;
        Ok(session)
    }

    /// Opens a replication session with the server identified by `host` and `identity`.
    ///
    /// # Errors
    /// The session is refused, or leads to another server.
    pub(crate) async fn connect_replication(
        &self,
        host: &Host,
        identity: &Identity,
    ) -> Result<Wire<Stream>, Attempt> {
        let limit =
            deadline(self.target.connect_timeout.unwrap_or(self.config.server.connect_timeout));
        let mut wire = self.log_in(host, limit).await?;
        let system = wire.identify_system(limit).await.map_err(|e| self.refused(host, &e))?;
        if (system.identifier, system.timeline) != (identity.system, identity.timeline) {
            let detail = format!(
                "{host} led the SQL session to {identity} and the replication session to \
                 system {} on timeline {}",
                system.identifier, system.timeline
            );
            return Err(Attempt { detail, finding: None });
        }
        Ok(wire)
    }

    async fn log_in(&self, host: &Host, limit: Instant) -> Result<Wire<Stream>, Attempt> {
        let mut failed: Option<Attempt> = None;
        for encryption in self.target.attempts(host) {
            let unreachable = |e: &ConnectError| Attempt { detail: e.to_string(), finding: None };
            let (attempt, may_be_encryption) =
                match stream::open(self.target, host, *encryption, limit).await {
                    Err(e) => (unreachable(&e), e.may_be_encryption()),
                    Ok(stream) => match self.start(stream, limit).await {
                        Ok(wire) => return Ok(wire),
                        // Class 28: invalid authorization specification.
                        Err(e) => {
                            let is_refusal = e.code().is_some_and(|code| code.starts_with("28"));
                            (self.refused(host, &e), is_refusal)
                        }
                    },
                };
            if !may_be_encryption {
                return Err(failed.unwrap_or(attempt));
            }
            // As in libpq, the first attempt's error is reported if the second fails too.
            failed = failed.or(Some(attempt));
        }
        Err(failed.unwrap_or_else(|| Attempt {
            detail: format!("{host}: no way to connect"),
            finding: None,
        }))
    }

    fn refused(&self, host: &Host, e: &WireError) -> Attempt {
        Attempt { detail: format!("{host}: {e}"), finding: session_finding(e, &self.target.user) }
    }

    async fn start(&self, stream: Stream, limit: Instant) -> Result<Wire<Stream>, WireError> {
        let end_point = stream.server_end_point();
        let channel_binding = match (self.target.channel_binding, &stream, end_point) {
            (target::Binding::Require, _, None) => {
                return Err(WireError::Login(
                    "`channel_binding=require` needs TLS with a certificate that has a hash".into(),
                ));
            }
            (target::Binding::Require, _, Some(hash)) => Binding::Required(hash),
            (target::Binding::Prefer, _, Some(hash)) => Binding::EndPoint(hash),
            (target::Binding::Prefer | target::Binding::Disable, _, _) => Binding::None,
        };
        let password = self.target.password.as_ref().map(|p| p.0.as_bytes());
        let login = Login {
            user: &self.target.user,
            database: &self.target.dbname,
            password,
            channel_binding,
        };
        startup::start(stream, &login, limit).await
    }
}

/// A failed attempt to open a replication session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    detail: String,
    /// Diagnosis, if known.
    finding: Option<Finding>,
}

impl From<Attempt> for Ended {
    fn from(attempt: Attempt) -> Self {
        Self::new(LossCause::Unavailable, with_remedy(&attempt.detail, attempt.finding.as_ref()))
    }
}

fn with_remedy(detail: &str, finding: Option<&Finding>) -> String {
    finding.map_or_else(
        || detail.to_owned(),
        |f| format!("{detail}; {}: {}", f.problem, f.remedy.replace('\n', " ")),
    )
}

/// Returns a failed attempt as a finding of the checks at the start.
pub(crate) fn attempt_finding(attempt: &Attempt) -> Finding {
    match &attempt.finding {
        Some(finding) => Finding::new(
            format!("{} ({})", finding.problem, attempt.detail),
            finding.remedy.clone(),
        ),
        None => Finding::new(
            format!("no replication session: {}", attempt.detail),
            "see the server's log",
        ),
    }
}

/// Returns the diagnosis and the remedy of a refused replication session or slot.
fn session_finding(e: &WireError, user: &str) -> Option<Finding> {
    let WireError::Server(error) = e else { return None };
    let mentions = |text: &str| error.message.contains(text);
    Some(match error.code.as_str() {
        "53300" => Finding::new(
            "the server has no free replication connection",
            "raise `max_wal_senders` and restart the server, or end a replication connection that \
             is not needed (pg_stat_replication)",
        ),
        "53400" => Finding::new(
            "the server has no free replication slot",
            "raise `max_replication_slots` and restart the server, or drop a slot that is not \
             needed (pg_replication_slots)",
        ),
        "55000" if mentions("wal_level") => Finding::new(
            "`wal_level` is not `logical`",
            "ALTER SYSTEM SET wal_level = 'logical';\nthen restart the server",
        ),
        "42501" => Finding::new(
            format!("user `{user}` may not replicate"),
            format!(
                "ALTER ROLE {} REPLICATION;\nor, on a managed service, grant its own role for \
                 that, such as rds_replication",
                quote_identifier(user)
            ),
        ),
        "28000" if mentions("replication") || mentions("pg_hba.conf") => Finding::new(
            "`pg_hba.conf` has no line for this user's replication connection to this database",
            "add a line with this database and user (a line for the database `replication` does \
             not count), then SELECT pg_reload_conf();",
        ),
        "08P01" if mentions("unsupported startup parameter") => Finding::new(
            "the connection leads to a pooler, which cannot carry a replication session",
            "set `feed_url` to the server itself",
        ),
        _ => return None,
    })
}

/// Returns the sizes that decide where records can end.
pub(crate) async fn log_layout(client: &Client, tuning: &Tuning) -> Result<LogLayout, Ended> {
    const SQL: &str = "SELECT (SELECT setting::int8 FROM pg_catalog.pg_settings \
                       WHERE name = 'wal_block_size'), \
         (SELECT setting::int8 FROM pg_catalog.pg_settings WHERE name = 'wal_segment_size')";
    let row = timely(tuning.silence_max, "the log's layout", client.query_one(SQL, &[])).await?;
    let bytes = |i: usize| {
        row.try_get::<_, i64>(i)
            .map(i64::unsigned_abs)
            .map_err(|e| sql_error("the log's layout", &e))
    };
    Ok(LogLayout { page_bytes: bytes(0)?, segment_bytes: bytes(1)? })
}

/// Returns the snapshot that a reader would take now.
async fn snapshot(client: &Client, tuning: &Tuning) -> Result<Snapshot, Ended> {
    const SQL: &str = "SELECT pg_catalog.pg_current_snapshot()::text";
    let row = timely(tuning.silence_max, "a snapshot", client.query_one(SQL, &[])).await?;
    let text: String = row.try_get(0).map_err(|e| sql_error("a snapshot", &e))?;
    parse_snapshot(&text)
        .ok_or_else(|| Ended::new(LossCause::Unavailable, format!("`{text}` is not a snapshot")))
}

/// Returns a snapshot that lists every running transaction. A snapshot ends behind the newest
/// completed transaction; later transactions are invisible in it without being listed. A
/// transaction of our own is therefore completed first.
pub(crate) async fn listing_snapshot(client: &Client, tuning: &Tuning) -> Result<Snapshot, Ended> {
    const SQL: &str = "SELECT pg_catalog.pg_current_xact_id()";
    timely(tuning.silence_max, "a transaction number", client.batch_execute(SQL)).await?;
    snapshot(client, tuning).await
}

pub(crate) async fn log_end(client: &Client, tuning: &Tuning) -> Result<Lsn, Ended> {
    const SQL: &str = "SELECT pg_catalog.pg_current_wal_insert_lsn()::text";
    let row = timely(tuning.silence_max, "the log's end", client.query_one(SQL, &[])).await?;
    let text: String = row.try_get(0).map_err(|e| sql_error("the log's end", &e))?;
    Ok(text.parse()?)
}

/// Creates the slot. The server first waits for the running transactions; these are logged, and the
/// SQL connection shows whether the server is still there.
pub(crate) async fn slot(
    wire: &mut Wire<Stream>,
    client: &Client,
    name: &SlotName,
    user: &str,
    tuning: &Tuning,
) -> Result<Lsn, Ended> {
    let began = Instant::now();
    let mut created = pin!(wire.create_slot(name, deadline(tuning.slot_wait_max)));
    let mut reminder = Reminder::new("the replication slot", tuning);
    loop {
        tokio::select! {
            result = &mut created => {
                return result.map_err(|e| {
                    let detail = with_remedy(&e.to_string(), session_finding(&e, user).as_ref());
                    Ended { detail, ..Ended::from(e) }
                });
            }
            () = sleep_until(began + reminder.after) => {
                reminder.log_blockers(client, None, tuning).await?;
            }
        }
    }
}

/// Waits until everything committed before the slot's first position is visible.
///
/// # Errors
/// The server's failure, or a wait beyond the limit.
pub(crate) async fn fence(client: &Client, first: &Snapshot, tuning: &Tuning) -> Result<(), Ended> {
    let began = Instant::now();
    let mut fence = Fence::new(first);
    let mut reminder = Reminder::new("the start of the feed", tuning);
    while !fence.is_open(&snapshot(client, tuning).await?) {
        if began.elapsed() >= reminder.after {
            reminder.log_blockers(client, Some(fence.waiting()), tuning).await?;
        }
        // The slot keeps the log from being recycled. A new slot begins at the end of the log.
        if began.elapsed() >= tuning.slot_wait_max {
            let count = fence.waiting().len();
            return Err(Ended::new(
                LossCause::Unavailable,
                format!(
                    "{count} transactions that ran when the slot was created have \
                     not ended for {:?}",
                    tuning.slot_wait_max
                ),
            ));
        }
        tokio::time::sleep(tuning.fence_every).await;
    }
    Ok(())
}

/// Waits until a read sees everything written by the transactions that run now, and returns the
/// log's end after that. It takes as long as these transactions do.
///
/// # Errors
/// The server's failure.
pub(crate) async fn bridge(client: &Client, tuning: &Tuning) -> Result<Lsn, Ended> {
    const WHAT: &str = "a collection whose table was added to the publication";
    let first = listing_snapshot(client, tuning).await?;
    visible(client, &first, WHAT, tuning).await?;
    log_end(client, tuning).await
}

/// Waits until all transactions that run in a listing snapshot are visible or have ended, however
/// long it takes.
///
/// # Errors
/// The server's failure.
pub(crate) async fn visible(
    client: &Client,
    first: &Snapshot,
    what: &'static str,
    tuning: &Tuning,
) -> Result<(), Ended> {
    let began = Instant::now();
    let mut fence = Fence::new(first);
    let mut reminder = Reminder::new(what, tuning);
    while !fence.is_open(&snapshot(client, tuning).await?) {
        if began.elapsed() >= reminder.after {
            reminder.log_blockers(client, Some(fence.waiting()), tuning).await?;
        }
        // The interval grows with the wait: a long transaction is polled less often.
        tokio::time::sleep(tuning.fence_every.max(began.elapsed() / 10).min(tuning.probe_every))
            .await;
    }
    Ok(())
}

/// Periodic log line with the transactions waited for.
struct Reminder {
    what: &'static str,
    after: std::time::Duration,
}

impl Reminder {
    fn new(what: &'static str, tuning: &Tuning) -> Self {
        Self { what, after: tuning.blockers_after }
    }

    async fn log_blockers(
        &mut self,
        client: &Client,
        xids: Option<&[u64]>,
        tuning: &Tuning,
    ) -> Result<(), Ended> {
        let found = tokio::time::timeout(tuning.silence_max, blockers(client, xids)).await;
        match found {
            Ok(Ok(blockers)) => tracing::warn!(
                what = self.what,
                waited_s = self.after.as_secs(),
                blockers = %blockers.join("; "),
                "waiting for write transactions to end; freshness is not guaranteed until then"
            ),
            Ok(Err(e)) if e.as_db_error().is_some() => {
                tracing::warn!(
                    what = self.what,
                    error = %full_text(&e),
                    "waiting for write transactions that cannot be listed"
                );
            }
            Ok(Err(e)) => return Err(sql_error("listing the blockers", &e)),
            Err(_) => return Err(Ended::silent("the feed's SQL connection", tuning.silence_max)),
        }
        self.after += tuning.blockers_after * REMIND_FACTOR;
        Ok(())
    }
}
