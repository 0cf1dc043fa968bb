//! Landmarks of the binary log: where the feed is, and whether the log still has the
//! place where an earlier feed was, possibly one of another process.
//!
//! A place is resumed only if the log's file was created at the same second and the commit that
//! begins there has the same GTID and the same end. Otherwise the log was purged, reset or is of
//! another server, and changes may be missing.

use hotrow_types::landmark::{CommitId, CommitMark, Landmark};
use hotrow_types::version::{Gtid, SourceId};
use mysql_async::Conn;
use mysql_async::binlog::events::{BinlogEventHeader, Event as Raw, GtidEvent};

use super::binlog::{self, Event};
use super::dump::{Dump, StreamOptions};
use super::place::LogPosition;
use super::resume_rules::{ResumeRule, ResumeRules};

/// Tracker of the newest landmark of a session.
#[derive(Debug, Default)]
pub(crate) struct Landmarks {
    file_created_s: Option<u32>,
    /// Start and number of the group that has not ended.
    open: Option<(u64, CommitId)>,
    newest: Option<Landmark>,
    /// The newest one was not reported yet.
    is_new: bool,
    rules: ResumeRules,
}

impl Landmarks {
    /// Creates the tracker of a session, whose place is `newest` if it was resumed.
    pub(crate) fn new(newest: Option<Landmark>, rules: ResumeRules) -> Self {
        // The stream of a resumed session is past the file's first event.
        let file_created_s = newest.map(|landmark| landmark.file_created_s);
        Self { file_created_s, newest, rules, ..Self::default() }
    }

    /// Records an event before it is delivered. The event before it ended at `before`.
    pub(crate) fn begin(&mut self, raw: &Raw, before: u64) {
        let header = raw.header();
        if is_format(&header) {
            self.file_created_s = Some(header.timestamp());
            if self.newest.is_none() {
                let file_created_s = header.timestamp();
                self.newest = Some(Landmark { at: before, file_created_s, commit: None });
                self.is_new = true;
            }
        }
        if let Some(gtid) = gtid(raw) {
            self.open = Some((before, gtid));
        }
    }

    /// Records that everything before `delivered` was delivered, and everything before `read` was
    /// read.
    pub(crate) fn delivered(&mut self, delivered: u64, read: u64) {
        let end = if self.rules.has(ResumeRule::WholeCommit) { delivered } else { read };
        let Some((at, gtid)) = self.open.filter(|(at, _)| *at < end) else { return };
        self.open = None;
        let Some(file_created_s) = self.file_created_s else { return };
        let commit = Some(CommitMark { gtid, end });
        self.newest = Some(Landmark { at, file_created_s, commit });
        self.is_new = true;
    }

    /// Returns the newest landmark, once.
    pub(crate) fn take(&mut self) -> Option<Landmark> {
        std::mem::take(&mut self.is_new).then_some(self.newest).flatten()
    }
}

fn is_format(header: &BinlogEventHeader) -> bool {
    header.event_type_raw() == binlog::FORMAT_DESCRIPTION
}

/// Parses a transaction's number with the driver.
pub(crate) fn mysql_gtid(raw: &Raw) -> Option<Gtid> {
    let event: GtidEvent = raw.read_event().ok()?;
    let tag = event.tag().map(ToString::to_string).unwrap_or_default();
    let source = SourceId::new(u128::from_be_bytes(event.sid()), &tag).ok()?;
    Some(Gtid { source, number: event.gno() })
}

/// Returns the number of the group that the event begins.
fn gtid(raw: &Raw) -> Option<CommitId> {
    let header = raw.header();
    if Event::is_mysql_gtid(header.event_type_raw()) {
        return mysql_gtid(raw).map(CommitId::MySql);
    }
    let (sequence, domain) = binlog::mariadb_gtid(header.event_type_raw(), raw.data())?;
    Some(CommitId::MariaDb(domain, header.server_id(), sequence))
}

/// Starts the stream at the end of a landmark. `newest_file` is the name of the log's last file.
/// `rules` are in force.
///
/// # Errors
/// The reason for which changes after the landmark may be missing.
pub(crate) async fn resume(
    conn: Conn,
    options: StreamOptions,
    landmark: Landmark,
    newest_file: &str,
    rules: ResumeRules,
) -> Result<(Dump, LogPosition), String> {
    let mut position = LogPosition::of_point(landmark.at);
    let file = position.file_name(newest_file);
    let dump = Dump::start(conn, options, &file, position.offset());
    let mut dump = dump.await.map_err(|ended| ended.detail)?;
    let mut search =
        Search { landmark, rules, has_format: false, has_gtid: false, in_payload: false };
    loop {
        let event = tokio::time::timeout(options.limit, dump.next()).await;
        let raw = event.map_err(|_| "the stream is silent")?.map_err(|ended| ended.detail)?;
        if !search.in_payload {
            position.pass(raw.header().log_pos());
        }
        if search.take(&raw, position.point())? {
            return Ok((dump, position));
        }
    }
}

/// Search for a landmark in a stream that begins there.
struct Search {
    landmark: Landmark,
    rules: ResumeRules,
    has_format: bool,
    has_gtid: bool,
    /// Within a compressed transaction, whose events follow the one that has its end.
    in_payload: bool,
}

impl Search {
    /// Returns whether the landmark ends with this event, which ends at `end`.
    fn take(&mut self, raw: &Raw, end: u64) -> Result<bool, &'static str> {
        let header = raw.header();
        if is_format(&header) && !self.has_format {
            let is_same = header.timestamp() == self.landmark.file_created_s;
            if !is_same && self.rules.has(ResumeRule::FileCreated) {
                return Err("the log's file was created anew");
            }
            self.has_format = true;
        }
        let Some(commit) = self.landmark.commit else { return Ok(self.has_format) };
        if let Some(gtid) = gtid(raw)
            && !std::mem::replace(&mut self.has_gtid, true)
            && gtid != commit.gtid
            && self.rules.has(ResumeRule::SameCommit)
        {
            return Err("another commit is at the place");
        }
        if !self.rules.has(ResumeRule::CommitEnd) {
            return Ok(self.has_gtid && binlog::is_commit(header.event_type_raw()));
        }
        if end > commit.end {
            return Err("the commit at the place ends elsewhere");
        }
        self.in_payload |= binlog::is_payload(header.event_type_raw());
        if self.in_payload && !binlog::is_commit(header.event_type_raw()) {
            return Ok(false);
        }
        Ok(self.has_format && self.has_gtid && end == commit.end)
    }
}
