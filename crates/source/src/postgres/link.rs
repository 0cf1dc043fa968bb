//! From nothing to a running feed: the server, its catalogue, a replication session, a slot, the fence.

use std::pin::pin;

use tokio::time::{Instant, sleep_until};
use tokio_postgres::Client;

use super::config::Config;
use super::connect::{self, Settings, full_text};
use super::error::Finding;
use super::probe::LogLayout;
use super::server::Identity;
use super::session::{Ended, timely};
use super::stream::{self, ConnectError, Stream};
use super::target::{self, Host, Target};
use super::tuning::Tuning;
use super::visibility::{Fence, blockers, parse_snapshot};
use super::wire::replication::{Lsn, SlotName, quote_identifier};
use super::wire::startup::{self, Binding, Login};
use super::wire::{Wire, WireError, deadline};
use crate::LossCause;
use hotrow_cache::version::Snapshot;

/// The log names the same blockers again after so many times the first wait.
const REMIND_FACTOR: u32 = 30;

/// What reaching a server takes.
#[derive(Clone, Copy)]
pub(crate) struct Reach<'a> {
    pub(crate) config: &'a Config,
    pub(crate) target: &'a Target,
    pub(crate) tuning: &'a Tuning,
}

impl Reach<'_> {
    /// An SQL session of the feed's own with the primary.
    ///
    /// # Errors
    /// What each host said.
    pub(crate) async fn sql(&self) -> Result<connect::Session, Ended> {
        let statement_timeout = self.tuning.silence_max;
        let settings = Settings { statement_timeout, connect_timeout: self.config.connect_timeout };
        let session = connect::primary(self.target, settings, None).await.map_err(|errors| {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            Ended::new(LossCause::Unavailable, errors.join("; "))
        })?;
        // The publication may have to be made; and what we write ourselves waits for no standby.
        const SQL: &str = "SET default_transaction_read_only = off; SET synchronous_commit = local";
        timely(statement_timeout, "setting up the feed's session", session.client.batch_execute(SQL)).await?;
        Ok(session)
    }

    /// A replication session with the server that `host` and `identity` name.
    ///
    /// # Errors
    /// When it cannot be had, or leads to another server.
    pub(crate) async fn wire(&self, host: &Host, identity: &Identity) -> Result<Wire<Stream>, Attempt> {
        let limit = deadline(self.target.connect_timeout.unwrap_or(self.config.connect_timeout));
        let mut wire = self.log_in(host, limit).await?;
        let system = wire.identify_system(limit).await.map_err(|e| self.refused(host, &e))?;
        if (system.identifier, system.timeline) != (identity.system, identity.timeline) {
            let detail = format!(
                "{host} led to {identity} first, and to system {} on timeline {} for the replication session",
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
            let (attempt, may_be_for_encryption) = match stream::open(self.target, host, *encryption, limit).await {
                Err(e) => (unreachable(&e), e.may_be_for_encryption()),
                Ok(stream) => match self.start(stream, limit).await {
                    Ok(wire) => return Ok(wire),
                    // Class 28: invalid authorization specification.
                    Err(e) => {
                        let is_refusal = e.code().is_some_and(|code| code.starts_with("28"));
                        (self.refused(host, &e), is_refusal)
                    }
                },
            };
            if !may_be_for_encryption {
                return Err(failed.unwrap_or(attempt));
            }
            // As libpq: what the first attempt said counts when the second fails too.
            failed = failed.or(Some(attempt));
        }
        Err(failed.unwrap_or_else(|| Attempt { detail: format!("{host}: no way to connect"), finding: None }))
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
        let login = Login { user: &self.target.user, database: &self.target.dbname, password, channel_binding };
        startup::start(stream, &login, limit).await
    }
}

/// Why there is no replication session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    detail: String,
    /// What it means, where that is known.
    finding: Option<Finding>,
}

impl From<Attempt> for Ended {
    fn from(attempt: Attempt) -> Self {
        Self::new(LossCause::Unavailable, with_mend(&attempt.detail, attempt.finding.as_ref()))
    }
}

fn with_mend(detail: &str, finding: Option<&Finding>) -> String {
    finding.map_or_else(|| detail.to_owned(), |f| format!("{detail}; {}: {}", f.what, f.mend.replace('\n', " ")))
}

/// A failed attempt as a finding at the start.
pub(crate) fn attempt_finding(attempt: &Attempt) -> Finding {
    match &attempt.finding {
        Some(finding) => Finding::new(format!("{} ({})", finding.what, attempt.detail), finding.mend.clone()),
        None => Finding::new(format!("no replication session: {}", attempt.detail), "see the server's log"),
    }
}

/// What a refused replication session or slot means, and what mends it.
fn session_finding(e: &WireError, user: &str) -> Option<Finding> {
    let WireError::Server(error) = e else { return None };
    let says = |text: &str| error.message.contains(text);
    Some(match error.code.as_str() {
        "53300" => Finding::new(
            "the server has no free replication connection",
            "raise `max_wal_senders` and restart the server, or end a replication connection that is not needed (pg_stat_replication)",
        ),
        "53400" => Finding::new(
            "the server has no free replication slot",
            "raise `max_replication_slots` and restart the server, or drop a slot that is not needed (pg_replication_slots)",
        ),
        "55000" if says("wal_level") => Finding::new(
            "`wal_level` is not `logical`",
            "ALTER SYSTEM SET wal_level = 'logical';\nthen restart the server",
        ),
        "42501" => Finding::new(
            format!("user `{user}` may not replicate"),
            format!(
                "ALTER ROLE {} REPLICATION; (managed services have a role of their own to grant, such as rds_replication)",
                quote_identifier(user)
            ),
        ),
        "28000" if says("replication") || says("pg_hba.conf") => Finding::new(
            "`pg_hba.conf` has no line for this user's replication connection to this database",
            "add a line with this database and user (a line for the database `replication` does not count), then SELECT pg_reload_conf();",
        ),
        "08P01" if says("unsupported startup parameter") => Finding::new(
            "the connection leads to a pooler, which cannot carry a replication session",
            "set `feed_url` to the server itself",
        ),
        _ => return None,
    })
}

/// Where records can end.
pub(crate) async fn log_layout(client: &Client, tuning: &Tuning) -> Result<LogLayout, Ended> {
    const SQL: &str = "SELECT (SELECT setting::int8 FROM pg_catalog.pg_settings WHERE name = 'wal_block_size'), \
         (SELECT setting::int8 FROM pg_catalog.pg_settings WHERE name = 'wal_segment_size')";
    let row = timely(tuning.silence_max, "the log's layout", client.query_one(SQL, &[])).await?;
    let bytes =
        |i: usize| row.try_get::<_, i64>(i).map(i64::unsigned_abs).map_err(|e| Ended::sql("the log's layout", &e));
    Ok(LogLayout { page_bytes: bytes(0)?, segment_bytes: bytes(1)? })
}

/// What readers see now.
async fn snapshot(client: &Client, tuning: &Tuning) -> Result<Snapshot, Ended> {
    const SQL: &str = "SELECT pg_catalog.pg_current_snapshot()::text";
    let row = timely(tuning.silence_max, "a snapshot", client.query_one(SQL, &[])).await?;
    let text: String = row.try_get(0).map_err(|e| Ended::sql("a snapshot", &e))?;
    parse_snapshot(&text).ok_or_else(|| Ended::new(LossCause::Unavailable, format!("`{text}` is no snapshot")))
}

/// A snapshot that lists every transaction that runs. A snapshot ends behind the newest transaction that is complete, and
/// what runs beyond is not visible in it without being listed; so a transaction of our own is completed first.
pub(crate) async fn listing_snapshot(client: &Client, tuning: &Tuning) -> Result<Snapshot, Ended> {
    const SQL: &str = "SELECT pg_catalog.pg_current_xact_id()";
    timely(tuning.silence_max, "a transaction number", client.batch_execute(SQL)).await?;
    snapshot(client, tuning).await
}

/// Makes the slot. The server waits for the transactions that are running; meanwhile they are named in the log, and the
/// SQL connection shows whether the server still is there.
pub(crate) async fn slot(
    wire: &mut Wire<Stream>,
    client: &Client,
    name: &SlotName,
    user: &str,
    tuning: &Tuning,
) -> Result<Lsn, Ended> {
    let began = Instant::now();
    let mut made = pin!(wire.create_slot(name, deadline(tuning.slot_wait_max)));
    let mut reminder = Reminder::new("the replication slot", tuning);
    loop {
        tokio::select! {
            made = &mut made => {
                return made.map_err(|e| {
                    let detail = with_mend(&e.to_string(), session_finding(&e, user).as_ref());
                    Ended { detail, ..Ended::from(e) }
                });
            }
            () = sleep_until(began + reminder.after) => reminder.name(client, None, tuning).await?,
        }
    }
}

/// Waits until everything is visible that was committed before the slot's first position.
///
/// # Errors
/// When the server goes away, or it takes too long.
pub(crate) async fn fence(client: &Client, first: &Snapshot, tuning: &Tuning) -> Result<(), Ended> {
    let began = Instant::now();
    let mut fence = Fence::new(first);
    let mut reminder = Reminder::new("the feed", tuning);
    while !fence.is_open(&snapshot(client, tuning).await?) {
        if began.elapsed() >= reminder.after {
            reminder.name(client, Some(fence.waiting()), tuning).await?;
        }
        // The slot keeps the log from being recycled meanwhile; the next one begins where the log is by then.
        if began.elapsed() >= tuning.slot_wait_max {
            let who = format!("{} transactions", fence.waiting().len());
            return Err(Ended::new(
                LossCause::Unavailable,
                format!("{who} that ran when the slot was made have not ended for {:?}", tuning.slot_wait_max),
            ));
        }
        tokio::time::sleep(tuning.fence_every).await;
    }
    Ok(())
}

/// Names those that are waited for, now and then.
struct Reminder {
    what: &'static str,
    after: std::time::Duration,
}

impl Reminder {
    fn new(what: &'static str, tuning: &Tuning) -> Self {
        Self { what, after: tuning.blockers_after }
    }

    async fn name(&mut self, client: &Client, xids: Option<&[u64]>, tuning: &Tuning) -> Result<(), Ended> {
        let found = tokio::time::timeout(tuning.silence_max, blockers(client, xids)).await;
        match found {
            Ok(Ok(who)) => tracing::warn!(
                what = self.what,
                waited_s = self.after.as_secs(),
                blockers = %who.join("; "),
                "waits for write transactions to end; nothing is promised to be fresh until then"
            ),
            Ok(Err(e)) if e.as_db_error().is_some() => {
                tracing::warn!(what = self.what, error = %full_text(&e), "waits for write transactions that cannot be named");
            }
            Ok(Err(e)) => return Err(Ended::sql("asking for blockers", &e)),
            Err(_) => return Err(Ended::silent("the feed's SQL connection", tuning.silence_max)),
        }
        self.after += tuning.blockers_after * REMIND_FACTOR;
        Ok(())
    }
}
