//! Checks of the feed's preconditions, before anything is served.

use tokio_postgres::Client;

use super::config::{Config, Follow, KeptSlot, Tuning};
use super::connect;
use super::error;
use super::kept_slot;
use super::link::{Connector, attempt_finding};
use super::publication::Repair;
use super::server::Identity;
use super::survey::Survey;
use super::target::Target;
use super::{Finding, OpenError};

/// Returns all findings that keep the feed from running, including `others`. Only if `others` is
/// empty is the publication created or completed, so that nothing is left behind in a database that
/// is not served. Without a feed of its own there are no
/// preconditions.
///
/// # Errors
/// A failure of the server during the checks.
pub(super) async fn feed(
    config: &Config,
    target: &Target,
    readers: &Identity,
    others: Vec<Finding>,
) -> Result<Vec<Finding>, OpenError> {
    if config.server.follow != Follow::Changes {
        return Ok(others);
    }
    let mut findings = others;
    let (of_server, session) = server(config, target, readers).await?;
    findings.extend(of_server);
    let Some(session) = session else { return Ok(findings) };
    let failed = |e: tokio_postgres::Error| OpenError::Failed { detail: error::full_text(&e) };
    let repair =
        if findings.is_empty() && !config.is_trial { Repair::Without(&[]) } else { Repair::Later };
    let survey = Survey::take(&session.client, config, repair).await.map_err(failed)?;
    findings.extend(survey.findings);
    for refused in survey.tables.into_iter().filter_map(Result::err).flatten() {
        // The findings of a table are in `others` already.
        if !findings.contains(&refused) {
            findings.push(refused);
        }
    }
    Ok(findings)
}

/// Checks what every collection needs of the server and of the feed's role. Also returns the feed's
/// session, if it leads to the readers' server.
///
/// # Errors
/// A failure of the server during the checks.
pub(super) async fn server(
    config: &Config,
    target: &Target,
    readers: &Identity,
) -> Result<(Vec<Finding>, Option<connect::Session>), OpenError> {
    let tuning = Tuning::new(config);
    let connector = Connector { config, target, tuning: &tuning };
    let session = match connector.connect_sql().await {
        Ok(session) => session,
        Err(ended) => {
            let finding = Finding::new(
                format!("the feed cannot connect: {}", ended.detail),
                "correct `feed_url` (or `url`)",
            );
            return Ok((vec![finding], None));
        }
    };
    if session.identity != *readers {
        let finding = Finding::new(
            format!("`feed_url` leads to {}, and `url` to {readers}", session.identity),
            "let both lead to one server and one database; only `url` may go through a pooler",
        );
        return Ok((vec![finding], None));
    }
    let failed = |e: tokio_postgres::Error| OpenError::Failed { detail: error::full_text(&e) };
    let slot = config.slot.as_ref();
    let mut findings = settings(&session.client, slot).await.map_err(failed)?;
    if slot.is_some_and(|slot| slot.has_failover)
        && session.identity.major < kept_slot::FAILOVER_MAJOR_MIN
    {
        let major = session.identity.major;
        findings.push(Finding::new(
            format!("the server runs PostgreSQL {major}, whose slots standbys do not have"),
            "remove `hub.slot_failover`, or use PostgreSQL 17 or later",
        ));
    }
    if let Err(attempt) = connector.connect_replication(&session.host, &session.identity).await {
        findings.push(attempt_finding(&attempt));
    }
    Ok((findings, Some(session)))
}

/// Checks the server's settings.
pub(super) async fn settings(
    client: &Client,
    slot: Option<&KeptSlot>,
) -> Result<Vec<Finding>, tokio_postgres::Error> {
    const SQL: &str = "SELECT current_setting('wal_level'), \
                       current_setting('max_replication_slots')::int8, \
         (SELECT count(*) FROM pg_catalog.pg_replication_slots)";
    let row = client.query_one(SQL, &[]).await?;
    let level: String = row.try_get(0)?;
    let slots_max: i64 = row.try_get(1)?;
    let slots: i64 = row.try_get(2)?;
    let mut findings = Vec::new();
    let kept = match slot {
        Some(slot) => kept_slot::find(client, slot).await?,
        None => None,
    };
    if let Some(slot) = slot {
        match kept_slot::log_bound(client).await? {
            Some(bound) => tracing::info!(
                slot = %slot.name,
                max_slot_wal_keep_size = %bound,
                "the slot is lost when it is further behind than this"
            ),
            None => tracing::warn!(
                slot = %slot.name,
                "`max_slot_wal_keep_size` is unlimited: while no relay runs, the slot keeps log \
                 until the disk is full"
            ),
        }
    }
    let has_slot = kept.is_some();
    findings.extend(kept.and_then(|found| found.unusable).map(kept_slot::unusable_finding));
    if level != "logical" {
        findings.push(Finding::new(
            format!("`wal_level` is `{level}`; the feed needs `logical`"),
            "ALTER SYSTEM SET wal_level = 'logical';\nthen restart the server (managed services \
             have a parameter for it)",
        ));
    }
    if slots >= slots_max && !has_slot {
        findings.push(Finding::new(
            format!(
                "all {slots_max} replication slots (`max_replication_slots`) are in use; \
                 each instance needs one"
            ),
            format!(
                "drop one that is not needed (SELECT slot_name, active \
                 FROM pg_replication_slots), or \
                 ALTER SYSTEM SET max_replication_slots = {};\nthen restart the server",
                slots_max + 5
            ),
        ));
    }
    Ok(findings)
}
