//! A replication slot that outlives its sessions: it is found or created, taken from a session that
//! has it, and its stream is started where it was confirmed.
//!
//! Only one session can use a slot. A process that is entitled to it ends the other session, where
//! the role may do so: it may if both have the same role, or as a member of `pg_signal_backend`.
//! Otherwise it waits until the server notices that the other is gone.

use std::time::Duration;

use hotrow_source::LossCause;
use hotrow_source::feed_loop::Ended;
use hotrow_source::place::Place;
use hotrow_types::version::Snapshot;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::Finding;
use super::config::{KeptSlot, Tuning};
use super::error::{full_text, sql_error, timely};
use super::link;
use super::stream::Stream;
use super::wire::replication::{Lsn, SlotName, quote_literal};
use super::wire::{Wire, deadline};

/// First major version whose slots standbys synchronize.
pub(crate) const FAILOVER_MAJOR_MIN: i32 = 17;
/// Interval at which a slot in use is looked at again.
const POLL_EVERY: Duration = Duration::from_millis(10);
/// SQLSTATE of a slot that another session uses.
const OBJECT_IN_USE: &str = "55006";
/// SQLSTATE of a slot that does not exist.
const UNDEFINED_OBJECT: &str = "42704";
/// SQLSTATE of a slot that was invalidated, among others.
const NOT_IN_PREREQUISITE_STATE: &str = "55000";
/// Most times that a slot may change between two looks at it.
const CHANGES_MAX: u32 = 1_000;

/// A slot as the server lists it.
#[derive(Debug)]
pub(crate) struct Found {
    /// Reason for which it cannot be used by this feed.
    pub(crate) unusable: Option<String>,
    /// Process that uses it.
    holder: Option<i32>,
    /// The server has removed log that it needs.
    is_lost: bool,
    confirmed: Option<Lsn>,
}

/// Returns the slot of this name.
///
/// # Errors
/// The server's failure.
pub(crate) async fn find(client: &Client, slot: &KeptSlot) -> Result<Option<Found>, FindError> {
    const SQL: &str = "SELECT coalesce(plugin::text, 'none'), coalesce(database::text, 'none'), \
        temporary, active_pid, coalesce(wal_status, '') = 'lost', confirmed_flush_lsn::text, \
        coalesce(database = pg_catalog.current_database() AND plugin = 'pgoutput', false) \
        FROM pg_catalog.pg_replication_slots WHERE slot_name::text = $1";
    let rows = client.query_typed(SQL, &[(&slot.name, Type::TEXT)]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let is_temporary: bool = row.try_get(2)?;
    let fits = row.try_get::<_, bool>(6)? && !is_temporary;
    let unusable = if fits {
        None
    } else {
        let (plugin, database): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        let kind = if is_temporary { "temporary" } else { "permanent" };
        Some(format!(
            "the replication slot `{}` is a {kind} one of plugin {plugin} and database {database}, \
             and not one of this feed",
            slot.name
        ))
    };
    let confirmed: Option<String> = row.try_get(5)?;
    Ok(Some(Found {
        unusable,
        holder: row.try_get(3)?,
        is_lost: row.try_get(4)?,
        confirmed: confirmed.and_then(|text| text.parse().ok()),
    }))
}

type FindError = tokio_postgres::Error;

/// Returns the finding of a slot that cannot be used.
pub(crate) fn unusable_finding(why: String) -> Finding {
    Finding::new(why, "choose another name (`hub.slot`), or drop the slot if nothing needs it")
}

/// Returns whether the server removes log that a slot needs beyond a bound: its setting.
///
/// # Errors
/// The server's failure.
pub(crate) async fn log_bound(client: &Client) -> Result<Option<String>, FindError> {
    const SQL: &str = "SELECT setting <> '-1', pg_catalog.current_setting(name) \
                       FROM pg_catalog.pg_settings WHERE name = 'max_slot_wal_keep_size'";
    let row = client.query_one(SQL, &[]).await?;
    Ok(if row.try_get(0)? { Some(row.try_get(1)?) } else { None })
}

/// A session that is about to use the slot.
pub(crate) struct Taking<'a> {
    pub(crate) wire: &'a mut Wire<Stream>,
    pub(crate) client: &'a Client,
    pub(crate) slot: &'a KeptSlot,
    pub(crate) publication: &'a str,
    pub(crate) user: &'a str,
    pub(crate) place: &'a dyn Place,
    pub(crate) tuning: &'a Tuning,
}

impl Taking<'_> {
    /// Starts the stream of the slot. Returns the position from which it delivers, and a snapshot
    /// that was taken after no other session could use the slot any more: a transaction that an
    /// earlier session delivered is visible in it, listed as running, or delivered again.
    ///
    /// # Errors
    /// The server's failure, or a slot of something else.
    pub(crate) async fn start(mut self) -> Result<(Lsn, Snapshot), Ended> {
        let started = self.start_stream().await;
        self.place.waits_for(None);
        started?;
        let found = self.find().await?;
        let confirmed = found.and_then(|found| found.confirmed).ok_or_else(|| {
            let detail = format!("the slot `{}` has no confirmed position", self.slot.name);
            Ended::new(LossCause::LogPruned, detail)
        })?;
        let snapshot = link::listing_snapshot(self.client, self.tuning).await?;
        Ok((confirmed, snapshot))
    }

    async fn start_stream(&mut self) -> Result<(), Ended> {
        let name = SlotName::Kept(self.slot.clone());
        let mut ended = None;
        for _ in 0..CHANGES_MAX {
            let Some(found) = self.find().await? else {
                tracing::info!(slot = %self.slot.name, "the replication slot is created");
                self.place.waits_for(Some("the end of write transactions, to create the slot"));
                link::slot(self.wire, self.client, &name, self.user, self.tuning).await?;
                continue;
            };
            if let Some(why) = found.unusable {
                return Err(Ended::new(LossCause::Unavailable, why));
            }
            if found.is_lost {
                self.drop_lost().await?;
                continue;
            }
            if let Some(holder) = found.holder {
                self.wait_for(holder, &mut ended).await?;
                continue;
            }
            let limit = deadline(self.tuning.silence_max);
            match self.wire.start_replication(&name, self.publication, limit).await {
                Ok(()) => return Ok(()),
                Err(e) => match e.code() {
                    Some(OBJECT_IN_USE | UNDEFINED_OBJECT) => tokio::time::sleep(POLL_EVERY).await,
                    Some(NOT_IN_PREREQUISITE_STATE)
                        if self.find().await?.is_some_and(|found| found.is_lost) => {}
                    _ => return Err(e.into()),
                },
            }
        }
        let detail = format!("the slot `{}` does not stay as it is", self.slot.name);
        Err(Ended::new(LossCause::Unavailable, detail))
    }

    async fn find(&self) -> Result<Option<Found>, Ended> {
        timely(self.tuning.silence_max, "the replication slot", find(self.client, self.slot)).await
    }

    /// Drops a slot whose log is gone. Its changes are lost, which the next chain shows: the new
    /// slot begins later than the old one was confirmed.
    async fn drop_lost(&self) -> Result<(), Ended> {
        tracing::error!(
            slot = %self.slot.name,
            "the server has removed log that the replication slot needs \
             (`max_slot_wal_keep_size`): changes are lost, and the slot is created anew"
        );
        let name = quote_literal(&self.slot.name);
        let sql = format!("SELECT pg_catalog.pg_drop_replication_slot({name})");
        let dropped = self.client.batch_execute(&sql);
        timely(self.tuning.silence_max, "dropping the slot", dropped).await
    }

    /// Ends the session that has the slot, once and if permitted, and waits until it is free.
    async fn wait_for(&self, holder: i32, ended: &mut Option<i32>) -> Result<(), Ended> {
        let slot = &self.slot.name;
        let mut refused = None;
        if self.place.is_entitled() && ended.replace(holder) != Some(holder) {
            refused = self.end(holder).await?;
            match &refused {
                None => tracing::warn!(slot, holder, "the session that had the slot was ended"),
                Some(why) => tracing::warn!(
                    slot,
                    holder,
                    error = %why,
                    "the session that has the slot cannot be ended: waiting until the server ends \
                     it (`wal_sender_timeout`); use one role for all relays, or \
                     GRANT pg_signal_backend"
                ),
            }
        }
        let mut what = format!("the slot `{slot}`, which process {holder} of the server uses");
        if let Some(why) = &refused {
            what = format!("{what} and this role may not end: {why}");
        }
        if refused.is_some() || ended.is_none() {
            self.place.waits_for(Some(&what));
        }
        loop {
            tokio::time::sleep(POLL_EVERY).await;
            match self.find().await? {
                Some(Found { holder: Some(now), .. }) if now == holder => {}
                _ => return Ok(()),
            }
        }
    }

    /// Ends a session. Returns why the server refuses.
    async fn end(&self, holder: i32) -> Result<Option<String>, Ended> {
        const DOING: &str = "ending the session that has the slot";
        // Only while it has the slot: its number may be given again.
        const SQL: &str = "SELECT pg_catalog.pg_terminate_backend(active_pid) \
             FROM pg_catalog.pg_replication_slots WHERE slot_name::text = $1 AND active_pid = $2";
        let parameters: &[(&(dyn tokio_postgres::types::ToSql + Sync), Type)] =
            &[(&self.slot.name, Type::TEXT), (&holder, Type::INT4)];
        let request = self.client.query_typed(SQL, parameters);
        match tokio::time::timeout(self.tuning.silence_max, request).await {
            Ok(Ok(_)) => Ok(None),
            Ok(Err(e)) if e.as_db_error().is_some() => Ok(Some(full_text(&e))),
            Ok(Err(e)) => Err(sql_error(DOING, &e)),
            Err(_) => Err(Ended::silent(DOING, self.tuning.silence_max)),
        }
    }
}
