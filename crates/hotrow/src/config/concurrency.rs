//! `[limits.concurrency]`: the number of concurrent queries and the queue for them.

use std::ops::RangeInclusive;
use std::time::Duration;

use hotrow_admission::concurrency::limit::Kind;
use hotrow_admission::concurrency::queue;
use hotrow_server::config::Concurrency;

use super::reader::Section;
use super::resolve::{ms, s};

const SHORT: RangeInclusive<Duration> = ms(1)..=Duration::from_mins(1);

/// Reads the limit on queries and the queue in front of it.
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
