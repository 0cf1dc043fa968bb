//! Stream of the binary log on a separate connection.

use std::pin::Pin;
use std::time::Duration;

use futures_core::Stream as _;
use mysql_async::binlog::events::Event as Raw;
use mysql_async::prelude::Queryable as _;
use mysql_async::{BinlogStream, BinlogStreamRequest, Conn, Error};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::config::Tuning;
use super::connect::driver_error;
use super::error::full_text;
use super::server::{Flavor, Identity};
use hotrow_source::LossCause;
use hotrow_source::feed_loop::{Ended, timely};

/// Maximum of received events that wait to be handled.
const BUFFERED_MAX: usize = 8;
/// Error number of a stream that the server cannot continue.
const FATAL_READING: u16 = 1236;
/// MariaDB's error number for a replica number that is in use.
const SAME_ID: u16 = 4052;

/// How a stream is requested.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamOptions {
    pub(crate) flavor: Flavor,
    /// Number under which the server knows this replica.
    pub(crate) server_id: u32,
    pub(crate) heartbeat: Duration,
    /// Longest wait for each step of the start.
    pub(crate) limit: Duration,
}

impl StreamOptions {
    pub(crate) fn new(identity: &Identity, server_id: u32, tuning: &Tuning) -> Self {
        let &Tuning { heartbeat, silence_max: limit, .. } = tuning;
        Self { flavor: identity.flavor, server_id, heartbeat, limit }
    }
}

#[derive(Debug)]
pub(crate) struct Dump {
    events: mpsc::Receiver<Result<Raw, Error>>,
    reader: JoinHandle<()>,
}

impl Dump {
    /// Requests all events from an offset of a file on and waits for the first, which confirms the
    /// request.
    ///
    /// # Errors
    /// Errors of the server.
    pub(crate) async fn start(
        mut conn: Conn,
        options: StreamOptions,
        file: &str,
        offset: u64,
    ) -> Result<Self, Ended> {
        let StreamOptions { flavor, server_id, heartbeat, limit } = options;
        let doing = "setting up the stream";
        let set =
            async { conn.query_drop(settings(flavor, heartbeat)).await.map_err(driver_error) };
        timely(limit, doing, set).await?;
        let request =
            BinlogStreamRequest::new(server_id).with_filename(file.as_bytes()).with_pos(offset);
        let opening = async { conn.get_binlog_stream(request).await.map_err(driver_error) };
        let stream = timely(limit, doing, opening).await?;
        let (sender, events) = mpsc::channel(BUFFERED_MAX);
        // A separate task: if malformed bytes make the driver panic, only this task ends.
        let reader = tokio::spawn(read(stream, sender));
        let mut dump = Self { events, reader };
        // The first event is the name of the file.
        timely(limit, "the start of the stream", dump.next()).await?;
        Ok(dump)
    }

    /// Returns the next event.
    ///
    /// # Errors
    /// Reason that the stream ended.
    pub(crate) async fn next(&mut self) -> Result<Raw, Ended> {
        match self.events.recv().await {
            Some(Ok(event)) => Ok(event),
            Some(Err(e)) => Err(stream_error(&e)),
            None => Err(self.end().await),
        }
    }

    /// Returns an event that is already available.
    pub(crate) fn ready(&mut self) -> Option<Result<Raw, Ended>> {
        self.events.try_recv().ok().map(|event| event.map_err(|e| stream_error(&e)))
    }

    async fn end(&mut self) -> Ended {
        match (&mut self.reader).await {
            // Another stream from the same place would have the same event.
            Err(e) if e.is_panic() => {
                let detail = "an event of the binary log cannot be read: the driver panicked";
                Ended::new(LossCause::FeedFailed, detail)
            }
            _ => Ended::new(LossCause::Unavailable, "the server ended the stream"),
        }
    }
}

impl Drop for Dump {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn read(mut stream: BinlogStream, sender: mpsc::Sender<Result<Raw, Error>>) {
    loop {
        let event = std::future::poll_fn(|cx| Pin::new(&mut stream).poll_next(cx)).await;
        let is_last = !matches!(event, Some(Ok(_)));
        let Some(event) = event else { return };
        if sender.send(event).await.is_err() || is_last {
            return;
        }
    }
}

/// Returns the settings of the stream's session. Source: MariaDB Knowledge Base, "Replication
/// protocol: COM_BINLOG_DUMP"; MySQL's sql/rpl_binlog_sender.cc.
fn settings(flavor: Flavor, heartbeat: Duration) -> String {
    let period_ns = heartbeat.as_nanos();
    match flavor {
        // 4 means support for MariaDB's GTID events.
        Flavor::MariaDb => format!(
            "SET @mariadb_slave_capability = 4, @master_heartbeat_period = {period_ns}, \
             SESSION max_statement_time = 0"
        ),
        Flavor::MySql => format!(
            "SET @master_heartbeat_period = {period_ns}, @source_heartbeat_period = {period_ns}, \
             @source_binlog_checksum = @@GLOBAL.binlog_checksum"
        ),
    }
}

fn stream_error(e: &Error) -> Ended {
    let text = full_text(e);
    // MySQL reports it by its text and the number of other errors.
    let is_id_conflict = |message: &str| message.contains("same server_uuid/server_id");
    match e {
        Error::Server(e) if e.code == SAME_ID || is_id_conflict(&e.message) => Ended::new(
            LossCause::Unavailable,
            format!(
                "another replica has the feed's number; set a unique `source.server_id` for \
                 each, or omit it: {text}"
            ),
        ),
        Error::Server(e) if e.code == FATAL_READING => {
            Ended::new(LossCause::LogPruned, format!("the binary log's stream: {text}"))
        }
        _ => Ended::new(LossCause::Unavailable, format!("the binary log's stream: {text}")),
    }
}
