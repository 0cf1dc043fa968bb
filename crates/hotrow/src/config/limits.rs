//! The sections of `[limits]` with rules of their own: limits in bytes, the number of concurrent
//! queries and the queue for them, the circuit breaker, load shedding.
//!
//! Reference `configuration`: `[limits]`
//!
//! Past a limit, a request gets the status in parentheses. *By the memory*:
//! [derived](overload.md#memory).
//!
//! - `connections`: Open data connections (503). Lowered at start to fit `ulimit -n`.
//! - `connections_per_client`: The same per address or IPv6 /64 (429). `0`: unlimited, as needed
//!   behind a proxy.
//! - `requests_in_flight`: Requests waiting for database or feed (503).
//! - `header_bytes`: Request head (431).
//! - `headers`: Header fields (431).
//! - `target_bytes`: Target, or id in a batch body (414). At most `header_bytes`.
//! - `body_bytes`: Request body (413).
//! - `header_timeout`: First to last byte of a head (408).
//! - `body_timeout`: End of head to end of body (408).
//! - `idle_timeout`: Idle connections are closed.
//! - `idle_reclaim`: Then a connection [yields its slot](design.md#hostile-clients).
//! - `write_timeout`: A client that takes nothing is reset.
//! - `request_timeout`: End of body to an answer that needs the database (504).
//! - `drain_delay`: [Stop signal](rollout.md#stopping-an-instance) to closing listeners and idle
//!   connections.
//! - `drain_timeout`: From then to cutting off requests.
//! - `max_batch`: Ids in a batch (400).
//! - `position_wait`: Wait for the feed of `Hotrow-Min-Position`.
//! - `answer_bytes`: One answer (413).
//! - `answers_bytes_total`: Answers read or sent (503). At least `answer_bytes`.
//! - `bodies_bytes_total`: Request bodies (503). At least `body_bytes`.
//! - `rows_bytes_total`: Rows read and not yet taken (503).
//! - `send_bytes`: Of [clients that do not read](design.md#hostile-clients).
//! - `drain_rate_min`: Bytes per second that a client must take, over `write_timeout`, or is reset.
//! - `privileged_waiters`: Waiting `no-cache` and `Hotrow-Min-Position` requests (503).
//! - `checks_per_s`: Hits [checked against the database](verify.md#the-check-in-every-server).
//! - `waiting_keys`: Cold keys of a collection waiting for a query (503). At least `max_batch`.
//!
//! Reference `configuration`: `[limits.breaker]`
//!
//! See [circuit breaker](overload.md#circuit-breaker).
//!
//! - `enabled`: `false`: every read is tried.
//! - `failures`: Failed reads in a row that open it.
//! - `calls_min`: Reads in `window` before `failure_rate` counts.
//! - `probes`: Test reads; all must succeed.
//! - `window`: Sliding window of `failure_rate`.
//! - `failure_rate`: Share of failed reads that opens it.
//! - `open_for`: Time open, less up to half at random.
//! - `open_for_max`: Bound of `open_for`, which each failed probe doubles.
//!
//! Reference `configuration`: `[limits.shed]`
//!
//! See [shedding](overload.md#shedding).
//!
//! - `enabled`: `false`: nothing is shed.
//! - `priority_header`: Honour `Hotrow-Priority`.
//! - `queue_delay_target`: Delay of a worker's loop, or of cold keys before their query, that is
//!   pressure.
//! - `queue_delay_interval`: Time that it must last.
//! - `memory_share`: Share of `memory_limit` that is pressure.
//! - `open_files_threshold`: The same of descriptors left by `limits.connections`.
//! - `memory_limit`: Memory of the process. At least 1.3 × `cache.capacity` / `memory_share`, or a
//!   warning is logged.
//!
//! Reference `configuration`: `[limits.concurrency]`
//!
//! [Queries at once, and the order of waiting keys](overload.md#concurrency).
//!
//! - `kind`: How the limit on queries is found.
//! - `tolerance`: Duration of a query, relative to its duration alone, that lowers the limit. Not
//!   `fixed`.
//! - `probe_interval`: Age of the duration alone at which it is measured again. Not `fixed`.
//! - `queue`: What is read first from a standing queue.
//! - `queue_target`: Longest wait in a standing queue.
//! - `queue_interval`: A queue not emptied for so long is standing.
//! - `query_target`: A query takes no more keys than it can read in this time. Only `adaptive`.
//! - `deadline_header`: Honour `Hotrow-Deadline-Ms`.

use std::ops::RangeInclusive;
use std::time::Duration;

use hotrow_admission::concurrency::limit::Kind;
use hotrow_admission::concurrency::queue;
use hotrow_admission::{breaker, shed};
use hotrow_config::{ByteLimits, Concurrency, Limits, Shed};

use super::reader::Section;
use super::units::{KIB, MIB, ms, s};

/// Default of limits that are derived from the memory unless the file sets them.
const BY_MEMORY: &str = "by the memory";
/// Largest byte limit: beyond any machine.
const BYTES_MAX: u64 = 1 << 50;

/// Reads limits in bytes on answers, request bodies and rows: keys of `[limits]` itself.
pub(super) fn byte_limits(section: &mut Section<'_>) -> ByteLimits {
    let mut size = |name, least| {
        let bytes = section.size_or(name, 0, BY_MEMORY, least..=BYTES_MAX);
        // The default 0 is outside of the range: only the file sets a number.
        (bytes > 0).then_some(bytes)
    };
    ByteLimits {
        answer: size("answer_bytes", 64 * KIB),
        answers_total: size("answers_bytes_total", MIB),
        bodies_total: size("bodies_bytes_total", 64 * KIB),
        rows_total: size("rows_bytes_total", MIB),
    }
}

/// Refuses totals below the largest single answer or body.
pub(super) fn check_bytes(section: &Section<'_>, limits: &Limits) {
    let ByteLimits { answer, answers_total, bodies_total, .. } = limits.bytes;
    if let (Some(answer), Some(total)) = (answer, answers_total)
        && total < answer
    {
        let what =
            format!("must be at least limits.answer_bytes: {total} bytes are less than {answer}");
        section.refuse("answers_bytes_total", what);
    }
    let body = limits.body_bytes as u64;
    if let Some(total) = bodies_total.filter(|total| *total < body) {
        let what =
            format!("must be at least limits.body_bytes: {total} bytes are less than {body}");
        section.refuse("bodies_bytes_total", what);
    }
}

const SHORT: RangeInclusive<Duration> = ms(1)..=Duration::from_mins(1);

/// Reads `[limits.concurrency]`: the limit on queries and the queue in front of it.
pub(super) fn concurrency(mut section: Section<'_>) -> (Concurrency, queue::Config) {
    let concurrency = Concurrency {
        kind: section.choice(
            "kind",
            [("gradient", Kind::Gradient), ("aimd", Kind::Aimd), ("fixed", Kind::Fixed)],
        ),
        tolerance: section.share("tolerance", 2.0, 1.1..=100.0),
        probe_interval: section.duration("probe_interval", s(30), s(1)..=Duration::from_hours(1)),
        deadline_header: section.flag("deadline_header", true),
    };
    let queue = queue::Config {
        adaptive: section.choice("queue", [("adaptive", true), ("fifo", false)]),
        target: section.duration("queue_target", ms(100), SHORT),
        interval: section.duration("queue_interval", ms(500), SHORT),
        query_target: section.duration("query_target", ms(100), SHORT),
    };
    section.finish();
    (concurrency, queue)
}

/// Reads `[limits.breaker]`.
pub(super) fn breaker(mut section: Section<'_>) -> Option<breaker::Config> {
    let enabled = section.flag("enabled", true);
    let mut count = |name, default, range| {
        // The ranges fit.
        section.count(name, default, range) as u32
    };
    let failures = count("failures", 5, 1..=10_000);
    let calls_min = count("calls_min", 20, 1..=100_000);
    let probes = count("probes", 3, 1..=100);
    let config = breaker::Config {
        failures,
        calls_min,
        probes,
        window: section.duration("window", s(10), s(1)..=Duration::from_mins(10)),
        failure_rate: section.share("failure_rate", 0.5, 0.01..=1.0),
        open_for: section.duration("open_for", s(1), ms(10)..=Duration::from_mins(10)),
        open_for_max: section.duration("open_for_max", s(5), ms(10)..=Duration::from_hours(1)),
    };
    if config.open_for > config.open_for_max {
        section.refuse(
            "open_for",
            "must not be longer than limits.breaker.open_for_max, which bounds it",
        );
    }
    section.finish();
    enabled.then_some(config)
}

/// Reads `[limits.shed]`.
pub(super) fn shed(mut section: Section<'_>) -> Option<Shed> {
    let enabled = section.flag("enabled", true);
    let priority_header = section.flag("priority_header", false);
    let pressure = shed::Config {
        queue_delay_target: section.duration("queue_delay_target", ms(20), ms(1)..=s(10)),
        // The delays of the event loops are sampled ten times a second.
        queue_delay_interval: section.duration(
            "queue_delay_interval",
            ms(500),
            ms(200)..=Duration::from_mins(1),
        ),
        memory_share: section.share("memory_share", 0.85, 0.1..=0.99),
        open_files_threshold: section.share("open_files_threshold", 0.85, 0.1..=0.99),
    };
    let words = "the control group's, or the machine's";
    let memory_limit = section.size_or("memory_limit", 0, words, MIB..=1 << 50);
    section.finish();
    let memory_limit_bytes = (memory_limit > 0).then_some(memory_limit);
    enabled.then_some(Shed { pressure, memory_limit_bytes, priority_header })
}
