//! State that all connections of a worker share. One thread uses it.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::Context;
use std::time::{Duration, SystemTime};

use hotrow_answer::metrics::WorkerMetrics;
use hotrow_answer::rejection::http_date;
use hotrow_http1::head::HeadParser;
use hotrow_http2::connection::Scratch;
use hotrow_measure::clock::Nanos;
use hotrow_resp::parser::Parser;
use tokio::task::yield_now;

use hotrow_config::Limits;

/// Bytes that one read takes from a socket. A connection keeps at most this plus `header_bytes`.
pub const READ_BYTES: usize = 32 * 1024;
/// Largest buffer for answers that is kept for the next connection.
const OUTPUT_KEPT_BYTES: usize = 256 * 1024;
/// Work of one connection before others have their turn, in bytes that it writes: as many as take
/// about a tenth of a millisecond.
const TURN_BYTES: usize = 256 * 1024;
/// What a request or a command costs of it, besides its bytes.
pub(super) const REQUEST_WORK: usize = TURN_BYTES / 32;
/// What a byte of a request costs of it: one of a list of ids makes the server look up.
pub(super) const WORK_PER_REQUEST_BYTE: usize = 8;
/// Length of a date (RFC 9110 section 5.6.7).
pub(super) const DATE_BYTES: usize = 29;

/// Clock, limits, counters and buffers of a worker. A connection that waits has no buffer of its
/// own.
pub struct WorkerContext {
    /// Time of the worker's last sweep; at most one sweep old.
    pub now: Cell<Nanos>,
    limits: RefCell<Rc<Limits>>,
    /// Those of them that the parser applies.
    parse_limits: Cell<hotrow_http1::Limits>,
    /// `true`: connections may speak HTTP/2.
    pub(crate) http2: bool,
    /// Clients of all workers that took nothing at their last sweep.
    pub(super) blocked: Arc<AtomicU64>,
    /// Counters of the worker.
    pub metrics: Arc<WorkerMetrics>,
    /// Input of the connection that is reading.
    pub(super) scratch: RefCell<Box<[u8]>>,
    /// Parser for heads that arrive whole.
    pub(crate) parser: Cell<HeadParser>,
    /// Memory for the frames of the connection of HTTP/2 that is reading.
    pub(super) http2_scratch: Cell<Scratch>,
    /// Text of the head of HTTP/2 that is being written.
    pub(super) head_text: Cell<Vec<u8>>,
    /// Parser for commands that arrive whole.
    pub(super) command_parser: Cell<Parser>,
    output: Cell<Vec<u8>>,
    date: Cell<Date>,
    /// Work that is left of the present turn.
    work_left: Cell<usize>,
}

/// The present time as text.
#[derive(Clone, Copy)]
struct Date {
    text: [u8; DATE_BYTES],
    /// End of the second that it names.
    until: Nanos,
}

impl WorkerContext {
    /// Creates the state of a worker that starts at `now`.
    #[must_use]
    pub fn new(limits: Limits, metrics: Arc<WorkerMetrics>, now: Nanos) -> Self {
        Self {
            now: Cell::new(now),
            parse_limits: Cell::new(parse_limits(&limits)),
            limits: RefCell::new(Rc::new(limits)),
            http2: false,
            blocked: Arc::default(),
            metrics,
            scratch: RefCell::new(vec![0; READ_BYTES].into_boxed_slice()),
            parser: Cell::default(),
            http2_scratch: Cell::default(),
            head_text: Cell::default(),
            command_parser: Cell::default(),
            output: Cell::default(),
            date: Cell::new(Date { text: [b' '; DATE_BYTES], until: Nanos(0) }),
            work_left: Cell::new(TURN_BYTES),
        }
    }

    /// Lets connections speak HTTP/2, or not; `blocked` is shared with the other workers.
    #[must_use]
    pub(crate) fn with(self, http2: bool, blocked: Arc<AtomicU64>) -> Self {
        Self { http2, blocked, ..self }
    }

    /// Returns the limits in force.
    #[inline]
    pub fn limits(&self) -> Rc<Limits> {
        Rc::clone(&self.limits.borrow())
    }

    /// Returns those of them that the parser applies.
    #[inline]
    pub(super) fn parse_limits(&self) -> hotrow_http1::Limits {
        self.parse_limits.get()
    }

    /// Puts other limits in force: for requests whose heads have not been parsed, and for time-outs
    /// from the next sweep on.
    pub fn set_limits(&self, limits: &Limits) {
        self.parse_limits.set(parse_limits(limits));
        *self.limits.borrow_mut() = Rc::new(limits.clone());
    }

    /// Begins the turn of a connection.
    #[inline]
    pub(super) fn begin_turn(&self) {
        self.work_left.set(TURN_BYTES);
    }

    /// Notes work of the present turn.
    #[inline]
    pub(super) fn worked(&self, work: usize) {
        self.work_left.set(self.work_left.get().saturating_sub(work));
    }

    /// Returns whether the connection must let others have their turn, those included of which the
    /// kernel knows and the worker does not yet. Its own next one comes behind them.
    #[inline]
    pub(super) fn must_yield(&self, cx: &mut Context<'_>) -> bool {
        self.is_turn_over() && pin!(yield_now()).poll(cx).is_pending()
    }

    /// Returns whether the work of the present turn is done.
    #[inline]
    pub(super) fn is_turn_over(&self) -> bool {
        self.work_left.get() == 0
    }

    /// Returns an empty buffer for answers.
    #[inline]
    pub(super) fn take_output(&self) -> Vec<u8> {
        self.output.take()
    }

    /// Takes the buffer back.
    pub(super) fn give_output(&self, mut buffer: Vec<u8>) {
        if buffer.capacity() <= OUTPUT_KEPT_BYTES {
            buffer.clear();
            self.output.set(buffer);
        }
    }

    /// Returns the date at `now`.
    pub(crate) fn date(&self, now: Nanos) -> [u8; DATE_BYTES] {
        let date = self.date.get();
        if now < date.until { date.text } else { self.renew_date(now) }
    }

    #[cold]
    fn renew_date(&self, now: Nanos) -> [u8; DATE_BYTES] {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let left = Duration::from_secs(1) - Duration::from_nanos(since.subsec_nanos().into());
        let mut text = [b' '; DATE_BYTES];
        let written = http_date(since.as_secs()).to_string();
        text.copy_from_slice(&written.as_bytes()[..DATE_BYTES]);
        self.date.set(Date { text, until: now.after(left) });
        text
    }
}

fn parse_limits(limits: &Limits) -> hotrow_http1::Limits {
    hotrow_http1::Limits {
        head_bytes: limits.header_bytes,
        fields: limits.headers,
        target_bytes: limits.target_bytes,
        body_bytes: limits.body_bytes,
    }
}
