//! Preflight checks of the server's settings and privileges for the feed.

use std::collections::HashMap;

use mysql_async::{Conn, Error};

use super::catalog_row;
use super::config::{Config, Tuning};
use super::connect;
use super::dump::{Dump, StreamOptions};
use super::error::full_text;
use super::feed;
use super::inspect::{PRIMARY, Table, account, current_user};
use super::probe;
use super::server::{Flavor, Identity};
use super::start;
use super::target::Target;
use super::{Finding, OpenError};
use hotrow_source::spec::Follow;

/// Error numbers of the server for a missing privilege.
const DENIED: [u16; 2] = [1045, 1227];

/// Adds the problems that prevent the feed to `found`, or none if changes are not followed.
/// `tables` are those that can be served.
///
/// # Errors
/// Fails if the server fails during the checks.
pub(super) async fn feed(
    config: &Config,
    target: &Target,
    readers: &Identity,
    tables: &[Table],
    found: Vec<Finding>,
) -> Result<Vec<Finding>, OpenError> {
    let mut findings = found;
    let tuning = Tuning::new(config);
    match config.server.follow {
        Follow::Changes => {}
        Follow::Nothing => return Ok(findings),
        Follow::Hub => {
            let settings = feed::settings(config, &tuning);
            findings.extend(reads_log_end(target, settings, tables).await?);
            return Ok(findings);
        }
    }
    let mut session = match connect::primary(target, feed::settings(config, &tuning), None).await {
        Ok(session) => session,
        Err(errors) => {
            let why = feed::unreachable(&errors).detail;
            findings.push(Finding::new(
                format!("the feed cannot connect: {why}"),
                "correct `feed_url` (or `url`)",
            ));
            return Ok(findings);
        }
    };
    if session.identity != *readers {
        findings.push(Finding::new(
            format!("`feed_url` leads to {}, and `url` to {readers}", session.identity),
            "name the same server in both",
        ));
        return Ok(findings);
    }
    let failed = |e: Error| OpenError::Failed { detail: full_text(&e) };
    let conn = &mut session.conn;
    let account = account(&current_user(conn).await.map_err(failed)?);
    findings.extend(settings(conn, readers, config, tables).await.map_err(failed)?);
    let log = log(conn, readers, &account, tables).await.map_err(failed)?;
    let has_log = log.is_empty() && findings.is_empty();
    findings.extend(log);
    if has_log && let Err(why) = dump(config, target, &tuning, &mut session).await {
        findings.push(stream_finding(&why, &account));
    }
    Ok(findings)
}

/// Checks that readers may query the log's end, which each answer needs.
async fn reads_log_end(
    target: &Target,
    settings: connect::Settings,
    tables: &[Table],
) -> Result<Vec<Finding>, OpenError> {
    let session = connect::primary(target, settings, None).await;
    let mut session = session.map_err(OpenError::Unreachable)?;
    let failed = |e: Error| OpenError::Failed { detail: full_text(&e) };
    let conn = &mut session.conn;
    let account = account(&current_user(conn).await.map_err(failed)?);
    log(conn, &session.identity, &account, tables).await.map_err(failed)
}

/// Checks the server's settings.
pub(super) async fn settings(
    conn: &mut Conn,
    identity: &Identity,
    config: &Config,
    tables: &[Table],
) -> Result<Vec<Finding>, Error> {
    const SQL: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('log_bin', 'binlog_format', \
                       'gtid_mode', 'log_bin_compress', 'binlog_row_value_options', \
                       'binlog_row_image', 'server_id')";
    let rows = catalog_row::rows(conn, SQL, catalog_row::name_and_value).await?;
    let of: HashMap<String, String> = rows.into_iter().collect();
    let value = |name: &str| of.get(name).map_or("", String::as_str);
    let mut findings = Vec::new();
    let mut find = |what: String, fix: &str| findings.push(Finding::new(what, fix));
    if value("log_bin") != "ON" {
        find(
            "the server writes no binary log (`log_bin` is OFF), which the feed reads".into(),
            "start the server with `log_bin` (in section [mysqld] of its option file; managed \
             services have a parameter for it)",
        );
    }
    if value("binlog_format") != "ROW" {
        find(
            format!("`binlog_format` is {}; the feed needs ROW", value("binlog_format")),
            "SET GLOBAL binlog_format = ROW;\nand set it in the server's option file, too; open \
             sessions keep the old format",
        );
    }
    if identity.flavor == Flavor::MySql && value("gtid_mode") != "ON" {
        find(
            format!("`gtid_mode` is {}; the feed needs ON", value("gtid_mode")),
            "SET GLOBAL enforce_gtid_consistency = ON;\nthen set `gtid_mode` to OFF_PERMISSIVE, \
             ON_PERMISSIVE and ON, one after the other",
        );
    }
    if value("log_bin_compress") == "ON" {
        find(
            "`log_bin_compress` is ON; the feed does not read compressed events".into(),
            "SET GLOBAL log_bin_compress = OFF;\nand set it in the server's option file, too",
        );
    }
    if !value("binlog_row_value_options").is_empty() {
        find(
            format!(
                "`binlog_row_value_options` is {}; the feed needs whole rows",
                value("binlog_row_value_options")
            ),
            "SET GLOBAL binlog_row_value_options = '';\n\
             and set it in the server's option file, too",
        );
    }
    if value("binlog_row_image") == "MINIMAL"
        && let Some(table) = tables.iter().find(|table| table.index != PRIMARY)
    {
        find(
            format!(
                "`binlog_row_image` is MINIMAL, so the log has only the primary key of a deleted \
                 row, but the key of collection `{}` is the unique index `{}`",
                config
                    .server
                    .collections
                    .get(usize::from(table.collection.0))
                    .map_or("", |spec| &spec.name),
                table.index
            ),
            "SET GLOBAL binlog_row_image = FULL;\nand set it in the server's option file, too; or \
             name the primary key's columns",
        );
    }
    if value("binlog_row_image") == "MINIMAL" {
        note_missing_parents(tables);
    }
    if config.server_id == Some(identity.server_id) {
        find(
            format!("`source.server_id` is {}, which is the server's own", identity.server_id),
            "choose a number that no replica has, or omit it",
        );
    }
    Ok(findings)
}

/// Says at the start which changes will cost more than their parents.
fn note_missing_parents(tables: &[Table]) {
    let embedded = tables.iter().flat_map(|table| &table.embedded);
    for child in embedded.filter(|child| !child.has_parent_in_primary()) {
        tracing::warn!(
            table = %child.table.name.sql(),
            remedy = "SET GLOBAL binlog_row_image = FULL; and in the server's option file",
            "the log does not contain the parent of a child that is changed or deleted \
             (`binlog_row_image` is MINIMAL): each such change makes every record of the \
             collection stale"
        );
    }
}

/// Checks that the account may query the log's end and that the log contains the collections.
async fn log(
    conn: &mut Conn,
    identity: &Identity,
    account: &str,
    tables: &[Table],
) -> Result<Vec<Finding>, Error> {
    let row = match catalog_row::first(conn, identity.log_end_sql()).await {
        Ok(row) => row,
        Err(Error::Server(e)) if DENIED.contains(&e.code) => {
            let privilege = if identity.flavor == Flavor::MariaDb {
                "BINLOG MONITOR"
            } else {
                "REPLICATION CLIENT"
            };
            return Ok(vec![Finding::new(
                format!("{account} may not query the binary log's end"),
                format!("GRANT {privilege} ON *.* TO {account};"),
            )]);
        }
        Err(e) => return Err(e),
    };
    let filter = |i: usize| {
        let names = row
            .as_ref()
            .and_then(|row| row.text(i, "databases in the log").ok())
            .unwrap_or_default();
        names
            .split(',')
            .map(|name| name.trim().to_lowercase())
            .filter(|name| !name.is_empty())
            .collect::<Vec<_>>()
    };
    let only = filter(2);
    let never = filter(3);
    let mut findings = Vec::new();
    for table in tables.iter().flat_map(Table::followed) {
        let schema = table.name.schema.to_lowercase();
        let setting = match (only.is_empty() || only.contains(&schema), never.contains(&schema)) {
            (false, _) => "binlog_do_db",
            (_, true) => "binlog_ignore_db",
            _ => continue,
        };
        findings.push(Finding::new(
            format!(
                "the server keeps changes of database `{}` out of its binary log (`{setting}`)",
                table.name.schema
            ),
            format!("remove `{setting}` from the server's option file, and restart the server"),
        ));
    }
    findings.dedup();
    Ok(findings)
}

/// Starts and ends the stream as a test.
async fn dump(
    config: &Config,
    target: &Target,
    tuning: &Tuning,
    session: &mut connect::Session,
) -> Result<(), String> {
    let connect::Session { conn, identity, host } = session;
    let end = probe::log_end(conn, identity).await.map_err(|e| e.detail)?;
    let raw = tokio::time::timeout(config.server.connect_timeout, connect::raw(target, host)).await;
    let raw = raw.map_err(|_| "connecting took too long".to_owned())?.map_err(|e| e.to_string())?;
    // A random number, because the configured one may be in use by the instance that this one
    // replaces.
    let options = StreamOptions::new(identity, start::random_server_id(identity), tuning);
    let started = Dump::start(raw, options, &end.file, end.position.offset()).await;
    started.map(drop).map_err(|e| e.detail)
}

fn stream_finding(why: &str, account: &str) -> Finding {
    let fix = if DENIED.iter().any(|code| why.contains(&format!("(error {code})"))) {
        format!("GRANT REPLICATION SLAVE ON *.* TO {account};")
    } else {
        "see the server's log".to_owned()
    };
    Finding::new(format!("the feed's stream cannot start: {why}"), fix)
}
