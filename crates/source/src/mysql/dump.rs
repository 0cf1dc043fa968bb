//! The stream of the binary log, on a connection of its own.

use std::pin::Pin;
use std::time::Duration;

use futures_core::Stream as _;
use mysql_async::binlog::events::Event as Raw;
use mysql_async::prelude::Queryable as _;
use mysql_async::{BinlogStream, BinlogStreamRequest, Conn, Error};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::connect::full_text;
use super::probe::End;
use super::server::Flavor;
use super::session::{Ended, timely};
use crate::LossCause;

/// Events that have come in and wait to be handled.
const BUFFERED_MAX: usize = 8;
/// The server's own words for what it cannot go on with.
const FATAL_READING: u16 = 1236;
/// MariaDB's: a replica came with the number of another, which is turned away.
const SAME_ID: u16 = 4052;

/// The running stream.
#[derive(Debug)]
pub(crate) struct Dump {
    events: mpsc::Receiver<Result<Raw, Error>>,
    reader: JoinHandle<()>,
}

impl Dump {
    /// Asks for everything from `end` on, and waits for the first event: then the server has agreed. Blocks as long as
    /// `limit` at each step.
    ///
    /// # Errors
    /// What the server said.
    pub(crate) async fn start(
        mut conn: Conn,
        flavor: Flavor,
        server_id: u32,
        end: &End,
        heartbeat: Duration,
        limit: Duration,
    ) -> Result<Self, Ended> {
        let doing = "setting up the stream";
        timely(limit, doing, async { Ok(conn.query_drop(settings(flavor, heartbeat)).await?) }).await?;
        let request =
            BinlogStreamRequest::new(server_id).with_filename(end.file.as_bytes()).with_pos(end.place.offset());
        let stream = timely(limit, doing, async { Ok(conn.get_binlog_stream(request).await?) }).await?;
        let (give, events) = mpsc::channel(BUFFERED_MAX);
        // A task of its own: where bytes make the driver panic, this ends and not the feed.
        let reader = tokio::spawn(read(stream, give));
        let mut dump = Self { events, reader };
        // The server begins with the name of the file.
        timely(limit, "the stream's begin", dump.next()).await?;
        Ok(dump)
    }

    /// The next event.
    ///
    /// # Errors
    /// Why there is none any more.
    pub(crate) async fn next(&mut self) -> Result<Raw, Ended> {
        match self.events.recv().await {
            Some(Ok(event)) => Ok(event),
            Some(Err(e)) => Err(stream_error(&e)),
            None => Err(self.end().await),
        }
    }

    /// An event that is there already.
    pub(crate) fn ready(&mut self) -> Option<Result<Raw, Ended>> {
        self.events.try_recv().ok().map(|event| event.map_err(|e| stream_error(&e)))
    }

    async fn end(&mut self) -> Ended {
        let detail = match (&mut self.reader).await {
            Err(e) if e.is_panic() => "an event of the binary log cannot be read: the driver panicked",
            _ => "the server ended the stream",
        };
        Ended::new(LossCause::Unavailable, detail)
    }
}

impl Drop for Dump {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn read(mut stream: BinlogStream, give: mpsc::Sender<Result<Raw, Error>>) {
    loop {
        let event = std::future::poll_fn(|cx| Pin::new(&mut stream).poll_next(cx)).await;
        let is_last = !matches!(event, Some(Ok(_)));
        let Some(event) = event else { return };
        if give.send(event).await.is_err() || is_last {
            return;
        }
    }
}

/// What the stream's session says before it asks for the log. Source: MariaDB Knowledge Base, "Replication protocol:
/// COM_BINLOG_DUMP"; MySQL's sql/rpl_binlog_sender.cc.
fn settings(flavor: Flavor, heartbeat: Duration) -> String {
    let period_ns = heartbeat.as_nanos();
    match flavor {
        // 4: it understands MariaDB's GTID events.
        Flavor::MariaDb => format!(
            "SET @mariadb_slave_capability = 4, @master_heartbeat_period = {period_ns}, SESSION max_statement_time = 0"
        ),
        Flavor::MySql => format!(
            "SET @master_heartbeat_period = {period_ns}, @source_heartbeat_period = {period_ns}, \
             @source_binlog_checksum = @@GLOBAL.binlog_checksum"
        ),
    }
}

fn stream_error(e: &Error) -> Ended {
    let text = full_text(e);
    // MySQL tells it by its words and the number of others.
    let is_taken = |message: &str| message.contains("same server_uuid/server_id");
    match e {
        Error::Server(e) if e.code == SAME_ID || is_taken(&e.message) => Ended::new(
            LossCause::Unavailable,
            format!(
                "another replica has our number; give each a `source.server_id` of its own, or leave it out: {text}"
            ),
        ),
        Error::Server(e) if e.code == FATAL_READING => {
            Ended::new(LossCause::LogPruned, format!("the binary log's stream: {text}"))
        }
        _ => Ended::new(LossCause::Unavailable, format!("the binary log's stream: {text}")),
    }
}
