//! What the feed needs from the server, looked at before anything is served.

use std::collections::HashMap;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error, Row};

use super::config::Config;
use super::connect::{self, full_text};
use super::dump::Dump;
use super::error::{Finding, OpenError};
use super::feed;
use super::inspect::{Table, account};
use super::server::{Flavor, Identity};
use super::start;
use super::target::Target;
use super::tuning::Tuning;
use crate::spec::Follow;

/// The server wants a privilege that the account lacks.
const DENIED: [u16; 2] = [1045, 1227];

/// Adds everything that keeps the feed from running to what was `found` before; nothing where none is wanted. `tables` are
/// those that can be served.
///
/// # Errors
/// When the server fails in the middle.
pub(super) async fn feed(
    config: &Config,
    target: &Target,
    readers: &Identity,
    tables: &[Table],
    found: Vec<Finding>,
) -> Result<Vec<Finding>, OpenError> {
    let mut findings = found;
    if config.follow == Follow::Nothing {
        return Ok(findings);
    }
    let tuning = Tuning::new(config);
    let mut session = match connect::primary(target, feed::settings(config, &tuning), None).await {
        Ok(session) => session,
        Err(errors) => {
            let why = feed::unreachable(&errors).detail;
            findings.push(Finding::new(format!("the feed cannot connect: {why}"), "correct `feed_url` (or `url`)"));
            return Ok(findings);
        }
    };
    if session.identity != *readers {
        findings.push(Finding::new(
            format!("`feed_url` leads to {}, and `url` to {readers}", session.identity),
            "let both lead to one server",
        ));
        return Ok(findings);
    }
    let failed = |e: Error| OpenError::Failed { detail: full_text(&e) };
    let conn = &mut session.conn;
    let user: Option<String> = conn.query_first("SELECT CURRENT_USER()").await.map_err(failed)?;
    let account = account(&user.unwrap_or_default());
    findings.extend(settings(conn, readers, config).await.map_err(failed)?);
    let log = log(conn, readers, &account, tables).await.map_err(failed)?;
    let has_log = log.is_empty() && findings.is_empty();
    findings.extend(log);
    if has_log && let Err(why) = dump(config, target, &tuning, &mut session).await {
        findings.push(stream_finding(&why, &account));
    }
    Ok(findings)
}

/// What the server's settings say.
async fn settings(conn: &mut Conn, identity: &Identity, config: &Config) -> Result<Vec<Finding>, Error> {
    const SQL: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('log_bin', 'binlog_format', 'gtid_mode', \
                       'log_bin_compress', 'binlog_row_value_options', 'server_id')";
    let rows: Vec<(String, String)> = conn.query(SQL).await?;
    let of: HashMap<String, String> = rows.into_iter().collect();
    let value = |name: &str| of.get(name).map_or("", String::as_str);
    let mut findings = Vec::new();
    let mut find = |what: String, mend: &str| findings.push(Finding::new(what, mend));
    if value("log_bin") != "ON" {
        find(
            "the server writes no binary log (`log_bin` is OFF), which the feed reads".into(),
            "start the server with `log_bin` (a section [mysqld] of its option file; managed services have a parameter for it)",
        );
    }
    if value("binlog_format") != "ROW" {
        find(
            format!("`binlog_format` is {}; the feed needs ROW", value("binlog_format")),
            "SET GLOBAL binlog_format = ROW;\nand set it in the server's option file, too; sessions that are open keep theirs",
        );
    }
    if identity.flavor == Flavor::MySql && value("gtid_mode") != "ON" {
        find(
            format!("`gtid_mode` is {}; the feed needs ON", value("gtid_mode")),
            "SET GLOBAL enforce_gtid_consistency = ON;\nthen set `gtid_mode` to OFF_PERMISSIVE, ON_PERMISSIVE and ON, one after the other",
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
            format!("`binlog_row_value_options` is {}; the feed needs whole rows", value("binlog_row_value_options")),
            "SET GLOBAL binlog_row_value_options = '';\nand set it in the server's option file, too",
        );
    }
    if config.server_id == Some(identity.server_id) {
        find(
            format!("`source.server_id` is {}, which is the server's own", identity.server_id),
            "choose a number that no replica has, or leave it out",
        );
    }
    Ok(findings)
}

/// Whether the account may ask about the log, and whether the log has the collections.
async fn log(conn: &mut Conn, identity: &Identity, account: &str, tables: &[Table]) -> Result<Vec<Finding>, Error> {
    let row: Option<Row> = match conn.query_first(identity.log_end_sql()).await {
        Ok(row) => row,
        Err(Error::Server(e)) if DENIED.contains(&e.code) => {
            let privilege = if identity.flavor == Flavor::MariaDb { "BINLOG MONITOR" } else { "REPLICATION CLIENT" };
            return Ok(vec![Finding::new(
                format!("{account} may not ask where the binary log ends"),
                format!("GRANT {privilege} ON *.* TO {account};"),
            )]);
        }
        Err(e) => return Err(e),
    };
    let filter = |i: usize| {
        let names = row.as_ref().and_then(|row| row.get_opt::<Option<String>, _>(i)?.ok()?).unwrap_or_default();
        names.split(',').map(|name| name.trim().to_lowercase()).filter(|name| !name.is_empty()).collect::<Vec<_>>()
    };
    let (only, never) = (filter(2), filter(3));
    let mut findings = Vec::new();
    for table in tables {
        let schema = table.name.schema.to_lowercase();
        let setting = match (only.is_empty() || only.contains(&schema), never.contains(&schema)) {
            (false, _) => "binlog_do_db",
            (_, true) => "binlog_ignore_db",
            _ => continue,
        };
        findings.push(Finding::new(
            format!("the server keeps changes of database `{}` out of its binary log (`{setting}`)", table.name.schema),
            format!("take `{setting}` out of the server's option file, and restart the server"),
        ));
    }
    findings.dedup();
    Ok(findings)
}

/// Tries the stream.
async fn dump(config: &Config, target: &Target, tuning: &Tuning, session: &mut connect::Session) -> Result<(), String> {
    let connect::Session { conn, identity, host } = session;
    let end = start::place(conn, identity, tuning).await.map_err(|e| e.detail)?;
    let raw = tokio::time::timeout(config.connect_timeout, connect::raw(target, host)).await;
    let raw = raw.map_err(|_| "connecting took too long".to_owned())?.map_err(|e| e.to_string())?;
    // Not the configured number: that may be in use by the instance that this one replaces.
    let id = start::random_server_id(identity);
    let started = Dump::start(raw, identity.flavor, id, &end, tuning.heartbeat, tuning.silence_max).await;
    started.map(drop).map_err(|e| e.detail)
}

fn stream_finding(why: &str, account: &str) -> Finding {
    let mend = if DENIED.iter().any(|code| why.contains(&format!("(error {code})"))) {
        format!("GRANT REPLICATION SLAVE ON *.* TO {account};")
    } else {
        "see the server's log".to_owned()
    };
    Finding::new(format!("the feed's stream cannot start: {why}"), mend)
}
