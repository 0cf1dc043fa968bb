//! The thread that sends spans to the collector: OTLP over HTTP, one message at a time.
//!
//! It collects spans for [`INTERVAL`], or until a message is full. A message that fails is sent
//! again within the bounds of [`retry`]; later spans wait in the bounded queue.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use hotrow_net::http_client::{ClientError, Connection, PROGRAM, Whole, body};
use hotrow_otel::encode;
use hotrow_otel::retry::{self, Attempt, Next};
use hotrow_otel::span::Attribute;
use hotrow_supervisor::shutdown::Shutdown;
use hotrow_supervisor::{self as supervisor, Supervisor};
use http::header::{CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request};
use tokio::time::{sleep, timeout};

use super::{SpanOutcome, Tracer, headers};
use crate::throttle::TRACE_EXPORT;

/// Longest wait of a span for others of its message.
const INTERVAL: Duration = Duration::from_secs(1);
/// Longest time of one attempt, from the connection to the last byte of the answer.
const ATTEMPT_TIME_MAX: Duration = Duration::from_secs(10);
/// Longest time for the spans that are left at the end of the process.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(2);
/// Most bytes of an answer.
const ANSWER_BYTES_MAX: usize = 16 << 10;
/// Most characters of the collector's own words in a line of the log.
const MESSAGE_CHARS_MAX: usize = 200;

/// Starts the thread that sends spans until everything must end, and what is left then.
pub(super) fn start(
    tracer: Arc<Tracer>,
    shutdown: &Shutdown,
    supervisor: &Supervisor,
) -> io::Result<JoinHandle<Option<()>>> {
    let (ending, shutdown) = (shutdown.clone(), shutdown.clone());
    let in_hand = Arc::new(AtomicU64::new(0));
    let (lost, losing) = (Arc::clone(&in_hand), Arc::clone(&tracer));
    supervisor.spawn(
        "traces",
        move || ending.is_ending(),
        // Spans of a message that was being sent when it failed.
        move || losing.count(SpanOutcome::Failed, lost.swap(0, Ordering::Relaxed)),
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let mut exporter = Exporter::new(&tracer, &shutdown, &in_hand);
            runtime.block_on(exporter.run());
            drop(exporter);
            // A resolution of a name that hangs must not delay the end.
            runtime.shutdown_background();
            Ok(())
        },
    )
}

/// Reason for which an attempt failed.
#[derive(Debug, thiserror::Error)]
enum AttemptError {
    #[error("no complete answer within {} s", ATTEMPT_TIME_MAX.as_secs())]
    TimedOut,
    #[error("{0}")]
    Client(#[from] ClientError),
    #[error("the message cannot be requested: {0}")]
    Request(#[from] http::Error),
    #[error("answers {status}")]
    Status { status: u16, retry_after_s: Option<u64> },
}

impl AttemptError {
    fn attempt(&self) -> Attempt {
        match self {
            Self::Status { status, retry_after_s } => {
                Attempt::Status { status: *status, retry_after_s: *retry_after_s }
            }
            Self::TimedOut | Self::Client(_) | Self::Request(_) => Attempt::NoAnswer,
        }
    }
}

struct Exporter<'a> {
    tracer: &'a Tracer,
    shutdown: &'a Shutdown,
    /// Spans of the message that is being sent.
    in_hand: &'a AtomicU64,
    resource: Vec<Attribute>,
    /// Header fields of the file when it could be read last.
    fields: HeaderMap,
    connection: Option<Connection>,
}

impl<'a> Exporter<'a> {
    fn new(tracer: &'a Tracer, shutdown: &'a Shutdown, in_hand: &'a AtomicU64) -> Self {
        let instance = tracer.ids.root().trace_id.to_string();
        let resource = vec![
            Attribute::new("service.name", tracer.config.service_name.clone()),
            Attribute::new("service.version", env!("CARGO_PKG_VERSION")),
            Attribute::new("service.instance.id", instance),
        ];
        let fields = HeaderMap::new();
        Self { tracer, shutdown, in_hand, resource, fields, connection: None }
    }

    /// Sends spans until everything must end, and then what is left, within [`FLUSH_TIME_MAX`].
    async fn run(&mut self) {
        let (shutdown, tracer, in_hand) = (self.shutdown, self.tracer, self.in_hand);
        let too_late = async {
            shutdown.ending().await;
            sleep(FLUSH_TIME_MAX).await;
        };
        tokio::select! {
            () = self.send_all() => {}
            () = too_late => {}
        }
        let mut left = in_hand.swap(0, Ordering::Relaxed);
        loop {
            let batch = tracer.recorder.take_batch();
            if batch.is_empty() {
                break;
            }
            left += batch.len() as u64;
        }
        tracer.count(SpanOutcome::Failed, left);
    }

    async fn send_all(&mut self) {
        loop {
            // Before the last look at the queue, so that nothing recorded before the end is missed.
            let is_ending = self.shutdown.is_ending();
            loop {
                let batch = self.tracer.recorder.take_batch();
                if batch.is_empty() {
                    break;
                }
                self.deliver(batch).await;
            }
            if is_ending {
                return;
            }
            tokio::select! {
                () = self.shutdown.ending() => {}
                () = self.tracer.is_full.notified() => {}
                () = sleep(INTERVAL) => {}
            }
        }
    }

    /// Sends one message, as often as [`retry`] permits.
    async fn deliver(&mut self, batch: Vec<hotrow_otel::span::Span>) {
        let spans = batch.len() as u64;
        self.in_hand.store(spans, Ordering::Relaxed);
        let message = encode::request(&self.resource, env!("CARGO_PKG_VERSION"), &batch);
        drop(batch);
        let message = Bytes::from(message);
        let begun = Instant::now();
        let mut attempts = 0;
        let delivered = loop {
            supervisor::turn();
            attempts += 1;
            let is_ending = self.shutdown.is_ending();
            let error = match self.attempt(&message).await {
                Ok(answer) => break Some(encode::rejected(&answer)),
                Err(error) => error,
            };
            self.connection = None;
            self.tracer.failed_attempts.fetch_add(1, Ordering::Relaxed);
            let random = self.tracer.ids.number() as f64 / u64::MAX as f64;
            let next = retry::next(error.attempt(), attempts, begun.elapsed(), random);
            let gives_up = is_ending || next == Next::GiveUp;
            self.log_failure(&error, spans, gives_up);
            match next {
                Next::Again(pause) if !gives_up => tokio::select! {
                    // One more attempt is made.
                    () = self.shutdown.ending() => {}
                    () = sleep(pause) => {}
                },
                Next::Again(_) | Next::Done | Next::GiveUp => break None,
            }
        };
        self.in_hand.store(0, Ordering::Relaxed);
        let Some(rejected) = delivered else {
            return self.tracer.count(SpanOutcome::Failed, spans);
        };
        let not_taken = rejected.spans.min(spans);
        self.tracer.count(SpanOutcome::Rejected, not_taken);
        self.tracer.count(SpanOutcome::Exported, spans - not_taken);
        if not_taken > 0 || !rejected.message.is_empty() {
            self.log_rejected(not_taken, &rejected.message);
        }
    }

    fn log_failure(&self, error: &AttemptError, spans: u64, gives_up: bool) {
        TRACE_EXPORT.warn(|suppressed| {
            let endpoint = &self.tracer.config.endpoint;
            tracing::warn!(
                %endpoint,
                %error,
                spans,
                is_lost = gives_up,
                suppressed,
                "spans were not exported"
            );
        });
    }

    fn log_rejected(&self, spans: u64, message: &str) {
        let detail: String =
            message.chars().filter(|c| !c.is_control()).take(MESSAGE_CHARS_MAX).collect();
        TRACE_EXPORT.warn(|suppressed| {
            tracing::warn!(spans, detail, suppressed, "the collector rejected spans");
        });
    }

    /// Sends a message once. Returns the body of the answer.
    async fn attempt(&mut self, message: &Bytes) -> Result<Vec<u8>, AttemptError> {
        self.read_fields();
        timeout(ATTEMPT_TIME_MAX, self.within_time(message))
            .await
            .unwrap_or(Err(AttemptError::TimedOut))
    }

    async fn within_time(&mut self, message: &Bytes) -> Result<Vec<u8>, AttemptError> {
        let config = &self.tracer.config;
        let mut open = match self.connection.take() {
            Some(mut open) => open.is_ready().await.then_some(open),
            None => None,
        };
        loop {
            let is_reused = open.is_some();
            let mut connection = match open.take() {
                Some(connection) => connection,
                None => Connection::open(&config.endpoint, config.ca_file.as_deref()).await?,
            };
            let answer = match connection.send(self.request(message)?).await {
                Ok(answer) => answer,
                // The collector may have closed the idle connection.
                Err(ClientError::Http(_)) if is_reused => continue,
                Err(error) => return Err(error.into()),
            };
            let status = answer.status();
            if !status.is_success() {
                let retry_after_s = answer.headers().get(RETRY_AFTER).and_then(retry_after);
                return Err(AttemptError::Status { status: status.as_u16(), retry_after_s });
            }
            // The status counts: an answer that is too large or breaks off rejects nothing.
            let answer = body(answer, ANSWER_BYTES_MAX).await;
            self.connection = answer.is_ok().then_some(connection);
            return Ok(answer.unwrap_or_default());
        }
    }

    fn request(&self, message: &Bytes) -> Result<Request<Whole>, http::Error> {
        let endpoint = &self.tracer.config.endpoint;
        let mut request = Request::post(&*endpoint.target)
            .header(HOST, &*endpoint.authority)
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, PROGRAM)
            .body(Whole(message.clone()))?;
        for (name, value) in &self.fields {
            request.headers_mut().append(name, value.clone());
        }
        Ok(request)
    }

    /// Reads the file of header fields again: credentials are renewed.
    fn read_fields(&mut self) {
        let Some(path) = &self.tracer.config.headers_file else { return };
        match headers::read(path) {
            Ok(fields) => self.fields = fields,
            Err(error) => TRACE_EXPORT.warn(|suppressed| {
                tracing::warn!(%error, suppressed, "the earlier header fields are used");
            }),
        }
    }
}

/// Returns the seconds of `Retry-After`, which has a number or a date.
fn retry_after(value: &HeaderValue) -> Option<u64> {
    let text = value.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(seconds);
    }
    let at = httpdate::parse_http_date(text).ok()?;
    Some(at.duration_since(SystemTime::now()).unwrap_or_default().as_secs())
}
