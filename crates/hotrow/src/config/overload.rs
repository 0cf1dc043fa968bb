//! `[limits.breaker]` and `[limits.shed]`: the circuit breaker and load shedding.

use std::time::Duration;

use hotrow_admission::{breaker, shed};
use hotrow_server::config::Shed;

use super::reader::Section;
use super::resolve::{MIB, ms, s};

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
    let memory_limit = section.size_or("memory_limit", (0, words), MIB..=1 << 50);
    section.finish();
    let memory_limit_bytes = (memory_limit > 0).then_some(memory_limit);
    enabled.then_some(Shed { pressure, memory_limit_bytes, priority_header })
}
